"""A log of the agreement without nodes that are lost for good, when those left are no majority.

Nobody can agree on that any more, so an operator decides it for one survivor. All members that the
log and its snapshot name are named without the lost ones, as if these had never been there, and a
last entry of a new term tells other survivors, who have not rewritten theirs. What only the lost
ones had is lost with them.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from warren.cluster.raft.types import (
    Entry,
    EntryKind,
    HardState,
    Membership,
    Stored,
    membership_entry,
    membership_of,
)


class NobodyLeftError(ValueError):
    """Without these nobody would vote."""


def without(stored: Stored, lost: Iterable[str]) -> Stored:
    """The log without these nodes; the same log if it does not name them as members now."""
    names = frozenset(lost)
    members = _last_membership(stored)
    if not names & set(members.nodes):
        return stored
    left = _left(members, names)
    if not left.voters:
        raise NobodyLeftError("nobody would be left to vote")
    term = stored.hard_state.term + 1
    entries = tuple(_rewritten(entry, names) for entry in stored.entries)
    snapshot = stored.snapshot
    if snapshot.membership.voters:
        kept = _left(snapshot.membership, names)
        # At a time when nobody of those was there, the ones that are here now stand for them.
        membership = kept if kept.voters else left
        snapshot = msgspec.structs.replace(snapshot, membership=membership)
    return msgspec.structs.replace(
        stored,
        hard_state=HardState(term, None),
        snapshot=snapshot,
        entries=(*entries, membership_entry(term, left)),
    )


def _last_membership(stored: Stored) -> Membership:
    for entry in reversed(stored.entries):
        if entry.kind is EntryKind.MEMBERSHIP:
            return membership_of(entry)
    return stored.snapshot.membership


def _left(membership: Membership, lost: frozenset[str]) -> Membership:
    return Membership(
        tuple(name for name in membership.voters if name not in lost),
        tuple(name for name in membership.learners if name not in lost),
    )


def _rewritten(entry: Entry, lost: frozenset[str]) -> Entry:
    if entry.kind is not EntryKind.MEMBERSHIP:
        return entry
    left = _left(membership_of(entry), lost)
    # A membership needs somebody; one of only lost nodes is replaced by the last entry's.
    return (
        membership_entry(entry.term, left)
        if left.voters
        else Entry(entry.term, EntryKind.NOOP, b"")
    )
