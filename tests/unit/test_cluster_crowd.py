"""What a leader is given to propose: once each, in order, and never more than it can hold."""

from __future__ import annotations

from warren.cluster.member_crowd import CROWD_MAX, LATELY_BYTES_MAX, LATELY_MAX, Crowd
from warren.cluster.raft.effects import Position, Refusal


class Log:
    """Takes so many proposals, then is busy."""

    def __init__(self, room: int, refusal: Refusal = Refusal.BUSY) -> None:
        self.room = room
        self.refusal = refusal
        self.taken: list[bytes] = []

    def __call__(self, proposal: bytes) -> Position | Refusal:
        if len(self.taken) >= self.room:
            return self.refusal
        self.taken.append(proposal)
        return Position(1, len(self.taken))


def test_what_is_sent_again_stands_in_the_log_once() -> None:
    crowd, log = Crowd(), Log(2)
    crowd.add([b"a", b"b", b"c", b"a"])
    crowd.put_into_log(log)
    assert log.taken == [b"a", b"b"]
    # In the log, waiting, and new.
    crowd.add([b"a", b"c", b"d", b"c"])
    assert len(crowd) == 2
    for proposal in (b"a", b"b"):
        crowd.applied(proposal, True)
    # A try that was under way when it was applied.
    crowd.add([b"a"])
    log.room = 9
    crowd.put_into_log(log)
    assert log.taken == [b"a", b"b", b"c", b"d"]


def test_what_was_not_final_is_taken_again() -> None:
    crowd, log = Crowd(), Log(9)
    crowd.add([b"a"])
    crowd.put_into_log(log)
    crowd.applied(b"a", False)
    crowd.add([b"a"])
    crowd.put_into_log(log)
    assert log.taken == [b"a", b"a"]


def test_memory_is_bounded() -> None:
    crowd, log = Crowd(), Log(0)
    crowd.add([b"%d" % i for i in range(CROWD_MAX + 10)])
    crowd.put_into_log(log)
    assert len(crowd) == CROWD_MAX
    other = Crowd()
    for i in range(LATELY_MAX + 1):
        other.applied(b"%d" % i, True)
    large = bytes(LATELY_BYTES_MAX + 1)
    other.applied(large, True)
    other.add([b"0", b"1", large])
    assert len(other) == 2


def test_one_that_does_not_lead_keeps_nothing() -> None:
    crowd = Crowd()
    crowd.add([b"a", b"b"])
    crowd.put_into_log(Log(0, Refusal.NOT_LEADER))
    assert len(crowd) == 0
    crowd.add([b"a"])
    crowd.put_into_log(Log(1))
    crowd.leads_no_more()
    crowd.add([b"a"])
    assert len(crowd) == 1


def test_one_that_is_refused_does_not_hold_the_others_up() -> None:
    crowd, taken = Crowd(), []

    def propose(proposal: bytes) -> Position | Refusal:
        if proposal == b"large":
            return Refusal.TOO_LARGE
        taken.append(proposal)
        return Position(1, 1)

    crowd.add([b"a", b"large", b"b"])
    crowd.put_into_log(propose)
    assert taken == [b"a", b"b"]
