"""What a Raft wants done. Its owner takes the effects after every input and carries them out."""

from __future__ import annotations

import enum

import msgspec

from warren.cluster.raft.messages import Message, ReadContext
from warren.cluster.raft.types import Entry, HardState, Snapshot


class Role(enum.Enum):
    """What a node is to the others at present."""

    FOLLOWER = "follower"
    #: Asks whether an election would succeed, before it disturbs anybody with one.
    PRECANDIDATE = "precandidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Send(msgspec.Struct, frozen=True):
    """Send now. It may be lost, come twice or late."""

    to: str
    message: Message


class Persist(msgspec.Struct, frozen=True):
    """Write and sync this, in the order of tokens, then call `Raft.persisted(token)`.

    The entries replace everything from `first_index` on. With a snapshot, they are the whole log,
    which begins after `base_index`, and replace everything there was.
    """

    token: int
    hard_state: HardState
    first_index: int
    entries: tuple[Entry, ...]
    snapshot: Snapshot | None = None
    base_index: int = 0
    base_term: int = 0


class Apply(msgspec.Struct, frozen=True):
    """These entries are committed: apply them, in order."""

    first_index: int
    entries: tuple[Entry, ...]


class Restore(msgspec.Struct, frozen=True):
    """Replace the state machine's state by this image."""

    snapshot: Snapshot


class ReadReady(msgspec.Struct, frozen=True):
    """The state machine has applied all that the read must see."""

    context: ReadContext
    index: int


class ReadFailed(msgspec.Struct, frozen=True):
    """No answer; ask again."""

    context: ReadContext


class RoleChanged(msgspec.Struct, frozen=True):
    """The node's role, the term or the known leader is a new one."""

    role: Role
    term: int
    leader: str | None


class SnapshotNeeded(msgspec.Struct, frozen=True):
    """The log is long: call `Raft.compact` with an image of the state machine."""

    index: int


Effect = Send | Persist | Apply | Restore | ReadReady | ReadFailed | RoleChanged | SnapshotNeeded


class Refusal(enum.Enum):
    """Why an input was not taken; nothing has changed then."""

    NOT_LEADER = "this node does not lead"
    NO_LEADER = "no leader is known"
    TRANSFERRING = "leadership is being handed over"
    BUSY = "too much is waiting already"
    TOO_LARGE = "the command is too large"
    CHANGE_PENDING = "another change of the members is not committed yet"
    NOTHING_COMMITTED = "the leader has not committed anything of its own term yet"
    NOT_CAUGHT_UP = "the node's log is too far behind"
    ALREADY_MEMBER = "the node is that already"
    NOT_MEMBER = "the node is no such member"
    LAST_VOTER = "the cluster needs one voter"
    TOO_MANY_NODES = "the cluster has as many nodes as it may"


class Position(msgspec.Struct, frozen=True):
    """Where a proposal stands in the log. Committed if that entry is applied with that term."""

    term: int
    index: int
