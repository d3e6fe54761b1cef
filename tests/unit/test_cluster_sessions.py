"""Sessions: a request that is tried again is applied once."""

from __future__ import annotations

from warren.cluster.sessions import (
    SESSIONS_MAX,
    WINDOW,
    OpenSession,
    Outcome,
    Request,
    Sessions,
    Verdict,
    encode_proposal,
)


class Counter:
    """Counts what is applied to it."""

    def __init__(self) -> None:
        self.applied: list[bytes] = []

    def apply(self, index: int, command: bytes) -> bytes:
        self.applied.append(command)
        return b"%d" % index

    def image(self) -> bytes:
        return b",".join(self.applied)

    def restore(self, image: bytes) -> None:
        self.applied = image.split(b",") if image else []


def opened() -> tuple[Sessions, Counter]:
    counter = Counter()
    machine = Sessions(counter)
    assert machine.apply(5, encode_proposal(OpenSession("n1"))) == Outcome(
        Verdict.OPENED, 5, 0, "n1"
    )
    return machine, counter


def request(sequence: int, open_from: int = 0, session: int = 5) -> bytes:
    return encode_proposal(Request(session, sequence, open_from, b"c%d" % sequence))


def test_a_repeated_request_gets_the_first_answer() -> None:
    machine, counter = opened()
    assert machine.apply(6, request(1)) == Outcome(Verdict.APPLIED, 5, 1, "", b"6")
    assert machine.apply(7, request(2)).verdict is Verdict.APPLIED
    assert machine.apply(8, request(1)) == Outcome(Verdict.REPEATED, 5, 1, "", b"6")
    assert counter.applied == [b"c1", b"c2"]


def test_requests_may_come_out_of_order() -> None:
    machine, counter = opened()
    machine.apply(6, request(2))
    machine.apply(7, request(1))
    machine.apply(8, request(2))
    assert counter.applied == [b"c2", b"c1"]


def test_answered_requests_are_forgotten() -> None:
    machine, counter = opened()
    machine.apply(6, request(1))
    machine.apply(7, request(2, open_from=2))
    assert machine.apply(8, request(1)).verdict is Verdict.FORGOTTEN
    assert counter.applied == [b"c1", b"c2"]


def test_a_session_remembers_within_bounds() -> None:
    machine, counter = opened()
    assert machine.apply(6, request(WINDOW)).verdict is Verdict.MALFORMED
    assert machine.apply(7, request(WINDOW, open_from=1)).verdict is Verdict.APPLIED
    assert counter.applied == [b"c%d" % WINDOW]


def test_the_session_that_was_used_longest_ago_goes() -> None:
    machine, counter = opened()
    machine.apply(6, encode_proposal(OpenSession("n2")))
    machine.apply(7, request(1))
    for index in range(SESSIONS_MAX - 1):
        machine.apply(100 + index, encode_proposal(OpenSession("crowd")))
    assert len(machine) == SESSIONS_MAX
    assert machine.apply(5_000, request(1, session=6)).verdict is Verdict.EXPIRED
    assert machine.apply(5_001, request(1)).verdict is Verdict.REPEATED
    assert counter.applied == [b"c1"]


def test_nonsense_is_nobodys_request() -> None:
    machine, counter = opened()
    for data in (b"", b"\x01", b"\x02\x90", b"\x01\x92\x01\xff", b"\x01\x92\x01\xa1\xff"):
        assert machine.apply(9, data).verdict is Verdict.MALFORMED
    assert counter.applied == []


def test_sessions_are_in_the_image() -> None:
    machine, _ = opened()
    machine.apply(6, request(1))
    copy = Sessions(Counter())
    copy.restore(machine.image())
    assert copy.image() == machine.image()
    for index, data in enumerate((request(1), request(2, open_from=2), request(1)), 7):
        assert copy.apply(index, data) == machine.apply(index, data)
    assert copy.image() == machine.image()
