"""What nodes say to each other. The sender's name comes from the link, which has proved it."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from warren.cluster.raft.types import (
    APPEND_ENTRIES_MAX,
    CHUNK_BYTES_MAX,
    SNAPSHOT_BYTES_MAX,
    Entry,
    Membership,
    Number,
)

#: A read's name: the node's boot number and a count, so an answer to an earlier life fits nothing.
ReadContext = tuple[Number, Number]


class _Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=True):
    term: Number


class VoteRequest(_Message, frozen=True, tag=1):
    """Vote for me. When `preliminary`: would you? `term` is the one to come and nothing changes.

    `transfer` says that the leader itself asked for this election.
    """

    last_index: Number
    last_term: Number
    preliminary: bool
    transfer: bool


class VoteReply(_Message, frozen=True, tag=2):
    """A granted one repeats the term of the request, a refusal tells the voter's own."""

    granted: bool
    preliminary: bool


class Append(_Message, frozen=True, tag=3):
    """The entries after `previous_index`; without any, a heartbeat. `round` is for reads."""

    previous_index: Number
    previous_term: Number
    commit: Number
    round: Number
    entries: Annotated[tuple[Entry, ...], Meta(max_length=APPEND_ENTRIES_MAX)]


class AppendReply(_Message, frozen=True, tag=4):
    """`index`: up to where the log is the leader's and synced, or the previous index refused.

    With a refusal, the hint names the last place where the logs may still be the same.
    """

    accepted: bool
    index: Number
    round: Number
    hint_index: Number
    hint_term: Number


class InstallSnapshot(_Message, frozen=True, tag=5):
    """One chunk of a snapshot; all chunks of one have the same head."""

    index: Number
    index_term: Number
    membership: Membership
    total_bytes: Annotated[int, Meta(ge=0, le=SNAPSHOT_BYTES_MAX)]
    checksum: Annotated[int, Meta(ge=0, lt=2**32)]
    offset: Number
    data: Annotated[bytes, Meta(max_length=CHUNK_BYTES_MAX)]


class SnapshotReply(_Message, frozen=True, tag=6):
    """How much of the snapshot at `index` is there: the offset of the chunk to send next."""

    index: Number
    offset: Number


class TimeoutNow(_Message, frozen=True, tag=7):
    """The leader wants this node to be the next one: campaign at once."""


class ReadRequest(_Message, frozen=True, tag=8):
    """From where on may I read?"""

    context: ReadContext


class ReadReply(_Message, frozen=True, tag=9):
    """Everything that was true when the request came is in the log up to `index`."""

    context: ReadContext
    index: Number


Message = (
    VoteRequest
    | VoteReply
    | Append
    | AppendReply
    | InstallSnapshot
    | SnapshotReply
    | TimeoutNow
    | ReadRequest
    | ReadReply
)
