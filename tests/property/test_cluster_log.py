"""Raft's log and its account of the disk, against models that are too simple to be wrong."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from warren.cluster.raft.durability import Durability
from warren.cluster.raft.effects import Persist, Send
from warren.cluster.raft.log import RaftLog
from warren.cluster.raft.messages import TimeoutNow
from warren.cluster.raft.types import (
    Entry,
    EntryKind,
    HardState,
    Membership,
    Snapshot,
    Stored,
    founding,
    membership_entry,
    membership_of,
)

FOUNDERS = Membership(("a", "b", "c"))
OTHERS = [Membership(("a", "b")), Membership(("a", "b", "c"), ("d",)), Membership(("a",))]


class Model:
    """Every entry that the log stands for, from the first one on."""

    def __init__(self) -> None:
        self.entries = list(founding(FOUNDERS).entries)
        self.commit = 1
        self.snapshot = Snapshot()
        self.term = 1

    def membership(self, index: int) -> Membership:
        found = Membership()
        for entry in self.entries[:index]:
            if entry.kind is EntryKind.MEMBERSHIP:
                found = membership_of(entry)
        return found


def check(log: RaftLog, model: Model) -> None:
    assert log.last_index == len(model.entries)
    assert log.last_term == (model.entries[-1].term if model.entries else 0)
    assert log.membership == model.membership(len(model.entries))
    for index in range(1, len(model.entries) + 1):
        if index > log.base_index:
            assert log.entry_at(index) == model.entries[index - 1]
        if index >= log.base_index:
            assert log.term_at(index) == model.entries[index - 1].term
        else:
            assert log.term_at(index) is None
        if index >= log.snapshot.index:
            assert log.membership_at(index) == model.membership(index)
    assert log.term_at(log.last_index + 1) is None


def folded(stored: Stored, persist: Persist) -> Stored:
    """A disk after a write."""
    if persist.snapshot is not None:
        head = (persist.hard_state, persist.snapshot, persist.base_index, persist.base_term)
        return Stored(*head, persist.entries)
    kept = stored.entries[: persist.first_index - stored.base_index - 1]
    assert len(kept) == persist.first_index - stored.base_index - 1
    head = (persist.hard_state, stored.snapshot, stored.base_index, stored.base_term)
    return Stored(*head, kept + persist.entries)


def check_disk(durability: Durability, log: RaftLog, disk: Stored) -> None:
    """What is said to be stable is on the disk, as it is in memory."""
    for index in range(log.base_index + 1, durability.stable_index + 1):
        if index <= disk.snapshot.index and index <= disk.base_index:
            continue
        assert disk.entries[index - disk.base_index - 1] == log.entry_at(index)


@given(st.data())
@settings(deadline=None)
def test_log_and_disk(data: st.DataObject) -> None:
    stored = founding(FOUNDERS)
    log, model, durability = RaftLog(stored), Model(), Durability(1)
    disk, written = stored, []
    for _ in range(data.draw(st.integers(1, 30))):
        last = len(model.entries)
        match data.draw(st.integers(0, 5)):
            case 0:
                new = [
                    membership_entry(model.term, data.draw(st.sampled_from(OTHERS)))
                    if data.draw(st.integers(0, 3)) == 0
                    else Entry(model.term, EntryKind.COMMAND, data.draw(st.binary(max_size=2)))
                    for _ in range(data.draw(st.integers(1, 4)))
                ]
                log.append(new)
                durability.appended(last + 1)
                model.entries += new
            case 1 if last > model.commit:
                first = data.draw(st.integers(model.commit + 1, last))
                model.term += 1
                log.truncate(first)
                durability.truncated(first)
                del model.entries[first - 1 :]
            case 2:
                model.commit = data.draw(st.integers(model.commit, last))
            case 3 if model.commit > log.snapshot.index:
                index = data.draw(st.integers(log.snapshot.index + 1, model.commit))
                term = model.entries[index - 1].term
                image = Snapshot(index, term, log.membership_at(index), b"image")
                log.compact(image, keep=data.draw(st.integers(0, 4)))
                durability.snapshot_changed()
            case 4:
                persist = durability.take(HardState(model.term), log)
                if persist is not None:
                    written.append(persist)
            case 5 if written:
                count = data.draw(st.integers(1, len(written)))
                for persist in written[:count]:
                    disk = folded(disk, persist)
                durability.persisted(written[count - 1].token)
                del written[:count]
        check(log, model)
        check_disk(durability, log, disk)
        reloaded = RaftLog(disk)
        assert reloaded.last_index == disk.base_index + len(disk.entries)


@given(st.integers(1, 30), st.integers(1, 12), st.booleans())
def test_a_snapshot_from_elsewhere(last: int, index: int, same: bool) -> None:
    """What follows the snapshot stays if this log has the snapshot's last entry."""
    log = RaftLog(founding(FOUNDERS))
    log.append([Entry(1, EntryKind.COMMAND, b"%d" % n) for n in range(2, last + 1)])
    known = log.term_at(index)
    term = known if same and known is not None else 7
    log.restore(Snapshot(index, term, OTHERS[0], b"image"))
    keeps = same and known is not None
    assert log.last_index == (max(last, index) if keeps else index)
    assert (log.base_index, log.base_term) == (index, term)
    assert log.membership == OTHERS[0]


@given(st.lists(st.integers(0, 3), max_size=30))
def test_messages_wait_for_their_token_and_not_longer(steps: list[int]) -> None:
    log, durability = RaftLog(founding(FOUNDERS)), Durability(1)
    waiting: list[tuple[int, Send]] = []
    issued: list[int] = []
    for number, step in enumerate(steps):
        if step == 0:
            durability.term_changed()
        elif step == 1:
            send = Send("b", TimeoutNow(number))
            token = durability.latest_token
            if durability.hold(token, send) is None:
                waiting.append((token, send))
            else:
                assert token <= durability.done_token
        elif step == 2:
            persist = durability.take(HardState(number), log)
            if persist is not None:
                issued.append(persist.token)
        elif issued:
            token = issued.pop(0)
            released = durability.persisted(token)
            assert released == [send for needed, send in waiting if needed <= token]
            waiting = [held for held in waiting if held[0] > token]
