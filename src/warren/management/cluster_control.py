"""What operators do to a cluster, as the API and warrenctl see it.

A node brings the one thing behind this: `node.cluster_control`. A node by itself has
`warren.node.standalone.StandaloneControl`; one that is joined to others has its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from warren.management.context import ListenerFacts

NodeType = Literal["disc", "ram"]

#: HTTP statuses of a refusal: the request makes no sense; it does not fit the state of things;
#: something that is needed for it does not answer.
BAD_REQUEST, CONFLICT, UNAVAILABLE = 400, 409, 503


class ClusterError(Exception):
    """Why something cannot be done, in words for the operator."""

    def __init__(self, reason: str, status: int = CONFLICT) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """One node as the node that is asked knows it; of one that is down only the name is sure."""

    name: str
    is_running: bool
    node_type: NodeType = "disc"
    os_pid: int | None = None
    #: What the node is in the agreement, as `leader` or `follower`.
    role: str | None = None
    product: str = ""
    version: str = ""
    runtime: str = ""
    cpu_cores: int = 0
    #: Short resources: `memory`, `disk`.
    alarms: Sequence[str] = ()
    listeners: Sequence[ListenerFacts] = ()
    #: An operator has taken it out of service.
    is_drained: bool = False


@dataclass(frozen=True, slots=True)
class AgreementStatus:
    """What the node knows of the agreement on metadata."""

    #: None: nobody leads, or nobody that can be heard.
    leader: str | None
    term: int
    #: The nodes whose majority decides, and those that only listen so far.
    voters: Sequence[str]
    learners: Sequence[str] = ()
    #: The last entry that is carried out here.
    applied: int = 0
    #: Whether the node has a part in a majority, and has caught up with it.
    is_ready: bool = False


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The cluster as one node sees it."""

    #: The node that says so.
    node: str
    cluster_name: str
    #: False between `stop_app` and `start_app`.
    is_app_running: bool
    #: All nodes that belong to it, by name, also those that are down.
    members: Sequence[MemberStatus]
    #: By node: those that it cannot reach.
    partitions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: None for a node by itself, which has nobody to agree with.
    agreement: AgreementStatus | None = None


@dataclass(frozen=True, slots=True)
class DrainStatus:
    """How far a node is that is taken out of service."""

    state: Literal["in service", "draining", "drained"]
    #: Masters of mirrored queues that it had at the beginning, and has still.
    planned: int = 0
    left: int = 0
    #: Some of those: virtual host and name.
    left_queues: Sequence[tuple[str, str]] = ()
    connections: int = 0


class ClusterControl(Protocol):
    """All raise ClusterError for what cannot be done."""

    def status(self) -> ClusterStatus:
        """The cluster as this node sees it."""

    def online_nodes(self) -> Sequence[str]:
        """The names of the nodes that run, by name."""

    async def join(self, node: str, node_type: NodeType) -> bool:
        """Make this node, which forgets all it has, one of that node's; False: it is already."""

    async def forget(self, node: str, offline: bool, force: bool) -> None:
        """Take a node that is stopped out of the cluster; offline: this one is stopped too."""

    async def reset(self, force: bool) -> None:
        """Leave the cluster and forget everything; force: also without telling the others."""

    async def stop_app(self) -> None:
        """Let no clients in, and take no part; the process goes on."""

    async def start_app(self) -> None:
        """Undo that."""

    async def drain(self) -> None:
        """Take this node out of service: returns when all nodes know it, and the work begins."""

    async def revive(self) -> None:
        """Put it into service again."""

    def drain_status(self) -> DrainStatus:
        """How far that is."""

    async def set_name(self, name: str) -> None:
        """Rename the cluster."""

    async def block_link(self, peer: str, blocked: bool) -> None:
        """Let nothing through to and from another node, as if the network did; or again."""

    def blocked_links(self) -> Sequence[str]:
        """The nodes that are blocked so."""


def app_is_running(node: str) -> ClusterError:
    """What must be done on a stopped node was asked of one that runs."""
    return ClusterError(
        f"Warren is still running on node {node}.\n"
        f"Please stop it first with: warrenctl -n {node} stop_app"
    )


def joins_itself(node: str) -> ClusterError:
    """A node was to join itself."""
    return ClusterError(f"cannot cluster node with itself: {node}")


def not_a_member(node: str) -> ClusterError:
    """The node that is named is not in the cluster."""
    return ClusterError(f"{node}: the node selected is not in the cluster")


def member_is_running(node: str) -> ClusterError:
    """A node that runs cannot be forgotten."""
    return ClusterError(
        f"Warren on node {node} must be stopped before it can be removed: "
        f"warrenctl -n {node} stop_app"
    )


def not_clustered() -> ClusterError:
    """There is no link that could be blocked."""
    return ClusterError("not clustered", BAD_REQUEST)
