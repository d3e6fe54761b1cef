"""A node among others, as operators of clusters see it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from warren.management.cluster_control import (
    ClusterStatus,
    MemberStatus,
    not_a_member,
    not_clustered,
)
from warren.node.standalone import StandaloneControl

if TYPE_CHECKING:
    from warren.node.cluster import NodeCluster
    from warren.node.node import Node


class ClusteredControl(StandaloneControl):
    """A `ClusterControl` for a node that is joined to others."""

    def __init__(self, node: Node, cluster: NodeCluster) -> None:
        super().__init__(node)
        self._cluster = cluster

    def status(self) -> ClusterStatus:
        """All nodes of the agreement; those are running that all agree are alive."""
        members = {member.name: member for member in super().status().members}
        agreement = self._cluster.agreement
        known = agreement.status() if agreement is not None else None
        for name in (*known.voters, *known.learners) if known is not None else ():
            found = known.nodes.get(name) if known is not None else None
            is_alive = found is not None and found.is_alive
            members.setdefault(name, MemberStatus(name, is_alive))
        shown = [members[name] for name in sorted(members)]
        return dataclasses.replace(super().status(), members=shown)

    def online_nodes(self) -> Sequence[str]:
        return [member.name for member in self.status().members if member.is_running]

    async def block_link(self, peer: str, blocked: bool) -> None:
        links = self._cluster.links
        if links is None:
            raise not_clustered()
        if peer not in {member.name for member in self.status().members}:
            raise not_a_member(peer)
        if blocked:
            links.block(peer)
        else:
            links.unblock(peer)

    def blocked_links(self) -> Sequence[str]:
        links = self._cluster.links
        return [] if links is None else [one.name for one in links.status() if one.blocked]
