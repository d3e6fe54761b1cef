"""A log of the agreement without nodes that are lost for good."""

from __future__ import annotations

from pathlib import Path

import pytest

from warren.cluster.raft.effects import Persist
from warren.cluster.raft.types import (
    Entry,
    EntryKind,
    HardState,
    Membership,
    Snapshot,
    Stored,
    membership_entry,
    membership_of,
)
from warren.cluster.raft_storage import FileRaftStorage
from warren.cluster.survivors import NobodyLeftError, without

COMMAND = Entry(2, EntryKind.COMMAND, b"kept")
LOG = Stored(
    HardState(4, "b"),
    entries=(
        membership_entry(0, Membership(("a", "b", "c"))),
        COMMAND,
        membership_entry(3, Membership(("a", "b", "c"), ("d",))),
    ),
)


def members(stored: Stored) -> list[Membership]:
    found = [entry for entry in stored.entries if entry.kind is EntryKind.MEMBERSHIP]
    return [stored.snapshot.membership, *map(membership_of, found)]


def test_no_membership_names_the_lost() -> None:
    left = without(LOG, ["b", "c", "unknown"])
    assert members(left) == [
        Membership(),
        Membership(("a",)),
        Membership(("a",), ("d",)),
        Membership(("a",), ("d",)),
    ]
    # In a term of its own, in which nobody has voted, and behind all that there was.
    assert left.hard_state == HardState(5, None)
    assert left.entries[1] == COMMAND
    assert [entry.term for entry in left.entries] == [0, 2, 3, 5]


def test_done_twice_it_is_done_once() -> None:
    left = without(LOG, ["b", "c"])
    assert without(left, ["b", "c"]) is left
    assert without(LOG, ["x"]) is LOG


def test_a_snapshot_is_of_the_survivors_too() -> None:
    snapshot = Snapshot(7, 3, Membership(("a", "b", "c")), b"image")
    stored = Stored(HardState(3), snapshot, 7, 3, ())
    left = without(stored, ["c"])
    assert members(left) == [Membership(("a", "b")), Membership(("a", "b"))]
    assert left.snapshot.data == b"image"


def test_somebody_must_be_left() -> None:
    with pytest.raises(NobodyLeftError):
        without(LOG, ["a", "b", "c"])


def test_it_is_on_the_disk_as_one_change(tmp_path: Path) -> None:
    disk = FileRaftStorage(str(tmp_path))
    disk.create(LOG)
    disk.close()
    disk = FileRaftStorage(str(tmp_path))
    stored = disk.load()
    assert stored is not None
    left = without(stored, ["b", "c"])
    disk.save([Persist(0, left.hard_state, left.base_index + 1, left.entries, left.snapshot)])
    disk.close()
    assert FileRaftStorage(str(tmp_path)).load() == left
