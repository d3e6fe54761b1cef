"""What a member wants done. Its owner takes the effects after every input and carries them out."""

from __future__ import annotations

import enum

import msgspec

from warren.cluster.metadata import Node, View
from warren.cluster.raft.effects import Persist, Role


class SendFrame(msgspec.Struct, frozen=True, gc=False):
    """Send a control frame now. It may be lost, but not overtake an earlier one to that node."""

    to: str
    kind: int
    payload: bytes


class ApplyDefinition(msgspec.Struct, frozen=True, gc=False):
    """Put a change of the definitions in place. All nodes get the same ones in the same order."""

    index: int
    change: bytes


class RestoreDefinitions(msgspec.Struct, frozen=True):
    """Make the definitions equal to this image; everything up to `index` is in it."""

    index: int
    image: bytes


class Change(enum.Enum):
    """What became of a node."""

    #: A new incarnation of it has started; whatever lived with an earlier one is gone.
    REGISTERED = "registered"
    DOWN = "down"
    UP = "up"
    FORGOTTEN = "forgotten"
    #: It was taken out of service, or put into it again.
    DRAINED = "drained"
    #: Not one node: the whole table came with an image of the definitions.
    RESTORED = "restored"


class NodesChanged(msgspec.Struct, frozen=True):
    """The table of nodes is another one, by the entry at `index`."""

    index: int
    what: Change
    node: str
    table: dict[str, Node]
    #: No life that had the transient definitions is left: they are gone.
    ends_era: bool = False


class ViewsChanged(msgspec.Struct, frozen=True):
    """Who holds these queues is another by the entry at `index`; None: nobody does any more.

    Comes for every entry that is applied, also for those that the owner's definitions have had in
    an earlier life, and before the `NodesChanged` of the same entry.
    """

    index: int
    views: dict[str, View | None]
    #: The table of that moment has this life of this node, as alive.
    registered: bool
    #: A master has handed its queue over: what it has delivered stays delivered.
    planned: bool = False


class ProposalDone(msgspec.Struct, frozen=True, gc=False):
    """Applied at `index`, here and on every node that the table says is alive."""

    ticket: int
    index: int


class Why(enum.Enum):
    """Why a proposal failed. It was not applied and will not be, but for the last two of these."""

    TOO_LARGE = "the change is too large"
    BUSY = "too many changes are waiting"
    REFUSED = "it would break a rule"
    CONFLICT = "somebody else was faster"
    NOT_FOUND = "there is no such thing"
    #: It may have been applied: the majority was lost after it was sent.
    NO_MAJORITY = "no majority of the cluster's nodes can be reached"
    #: It may have been applied: the node was too far behind to see it.
    UNKNOWN = "its outcome cannot be known any more"


class ProposalFailed(msgspec.Struct, frozen=True):
    """A proposal will never be done."""

    ticket: int
    why: Why


class LeaderChanged(msgspec.Struct, frozen=True):
    """The node's role, the term or the known leader is a new one."""

    role: Role
    term: int
    leader: str | None


class ReadyChanged(msgspec.Struct, frozen=True):
    """Whether the node may serve clients."""

    ready: bool


class ClusterKnown(msgspec.Struct, frozen=True):
    """The id of the cluster, for the links' greeting; keep it."""

    cluster_id: str


class SnapshotNeeded(msgspec.Struct, frozen=True):
    """Call `Member.compact` with this index and an image of the definitions as they are now."""

    index: int


class Refused(msgspec.Struct, frozen=True):
    """The cluster does not take this node, for good: it must stop."""

    reason: str


MemberEffect = (
    SendFrame
    | Persist
    | ApplyDefinition
    | RestoreDefinitions
    | NodesChanged
    | ViewsChanged
    | ProposalDone
    | ProposalFailed
    | LeaderChanged
    | ReadyChanged
    | ClusterKnown
    | SnapshotNeeded
    | Refused
)
