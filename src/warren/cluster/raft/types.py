"""The nouns of Raft: entries, memberships, snapshots, and what a node finds on its disk.

Sizes are bounded here, in the types, so that a decoder refuses what is too large before anything
looks at it.
"""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec
from msgspec import Meta

#: Terms, indexes and sizes stay exact in every language and far from any overflow.
NUMBER_MAX = 2**53
NODES_MAX = 64
COMMAND_BYTES_MAX = 1 << 20
APPEND_ENTRIES_MAX = 1024
CHUNK_BYTES_MAX = 1 << 20
SNAPSHOT_BYTES_MAX = 1 << 30

NodeId = Annotated[str, Meta(min_length=1, max_length=255)]
Number = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
Nodes = Annotated[tuple[NodeId, ...], Meta(max_length=NODES_MAX)]


class ProtocolError(ValueError):
    """A peer said what no correct peer can say. It has changed nothing, or the term alone."""


class EntryKind(enum.IntEnum):
    """What an entry of the log is for."""

    #: The first entry of every leader: by committing it, all before it is committed.
    NOOP = 0
    COMMAND = 1
    MEMBERSHIP = 2


class Entry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One entry of the log; its index is its place."""

    term: Number
    kind: EntryKind
    data: Annotated[bytes, Meta(max_length=COMMAND_BYTES_MAX)]


class Membership(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Who decides (voters) and who only listens (learners), both in order of name."""

    voters: Nodes = ()
    learners: Nodes = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes, voters first."""
        return self.voters + self.learners

    @property
    def majority(self) -> int:
        """How many voters decide."""
        return len(self.voters) // 2 + 1

    def is_sound(self) -> bool:
        """Whether names are in order and none is there twice."""
        return (
            list(self.voters) == sorted(set(self.voters))
            and list(self.learners) == sorted(set(self.learners))
            and not set(self.voters).intersection(self.learners)
        )

    def with_learner(self, node: str) -> Membership:
        return Membership(self.voters, tuple(sorted((*self.learners, node))))

    def with_voter(self, node: str) -> Membership:
        """`node` votes from now on; it is no learner any more."""
        return Membership(
            tuple(sorted((*self.voters, node))), tuple(n for n in self.learners if n != node)
        )

    def without(self, node: str) -> Membership:
        return Membership(
            tuple(n for n in self.voters if n != node),
            tuple(n for n in self.learners if n != node),
        )


class HardState(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What must never be forgotten: the term, and whom the node voted for in it."""

    term: Number = 0
    vote: NodeId | None = None


class Snapshot(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The state machine's image after `index`, and who the members were there."""

    index: Number = 0
    term: Number = 0
    membership: Membership = Membership()
    data: bytes = b""


class Stored(msgspec.Struct, frozen=True):
    """All that a node has on its disk. The log may begin before the snapshot, never after it."""

    hard_state: HardState = HardState()
    snapshot: Snapshot = Snapshot()
    base_index: int = 0
    base_term: int = 0
    entries: tuple[Entry, ...] = ()


_membership_decoder = msgspec.msgpack.Decoder(Membership)


def founding(membership: Membership) -> Stored:
    """The disk of a founder: a log whose first entry, the same on all, names the first members.

    A node that joins a cluster later starts with `Stored()`, knows nobody and waits. It gets that
    entry like any other.
    """
    return Stored(entries=(membership_entry(0, membership),))


def membership_entry(term: int, membership: Membership) -> Entry:
    """The entry that makes `membership` the members from there on."""
    return Entry(term, EntryKind.MEMBERSHIP, msgspec.msgpack.encode(membership))


def membership_of(entry: Entry) -> Membership:
    """The members that an entry sets; ProtocolError when it holds none."""
    try:
        membership = _membership_decoder.decode(entry.data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"an entry holds no membership: {error}") from error
    if not membership.is_sound() or not membership.voters:
        raise ProtocolError("an entry holds a membership that cannot be")
    return membership
