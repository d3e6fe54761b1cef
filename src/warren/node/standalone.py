"""A node by itself, as operators of clusters see it: a cluster of one."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from typing import TYPE_CHECKING

from warren.engine.parameters import CLUSTER_NAME
from warren.management import machine
from warren.management.cluster_control import (
    UNAVAILABLE,
    ClusterError,
    ClusterStatus,
    DrainStatus,
    MemberStatus,
    NodeType,
    app_is_running,
    joins_itself,
    member_is_running,
    not_a_member,
    not_clustered,
)
from warren.node import next_start
from warren.node.errors import StartError
from warren.node.next_start import NextStart

if TYPE_CHECKING:
    from warren.node.node import Node


class StandaloneControl:
    """A `ClusterControl` for a node that knows no others."""

    def __init__(self, node: Node) -> None:
        self._node = node
        #: By the next start it is one of a cluster.
        self._is_to_join = False

    def status(self) -> ClusterStatus:
        """One node, which runs."""
        node = self._node
        return ClusterStatus(
            node=node.name,
            cluster_name=node.engine.cluster_name,
            is_app_running=node.is_open,
            members=[self._member()],
        )

    def _member(self) -> MemberStatus:
        node, settings = self._node, self._node.engine.settings
        return MemberStatus(
            name=node.name,
            is_running=node.is_open,
            os_pid=os.getpid(),
            product=settings.product,
            version=settings.version,
            runtime=platform.python_version(),
            cpu_cores=machine.processors(),
            alarms=sorted(node.engine.alarms),
            listeners=node.operating.context.listeners if node.operating is not None else (),
        )

    def online_nodes(self) -> Sequence[str]:
        return [self._node.name] if self._node.is_open else []

    async def join(self, node: str, node_type: NodeType) -> bool:  # noqa: ARG002
        if node == self._node.name:
            raise joins_itself(node)
        self._check_stopped()
        if self._node.data_dir is None or self._node.on_restart is None:
            raise ClusterError(f"node {self._node.name} cannot be joined to others", UNAVAILABLE)
        try:
            next_start.plan(self._node.data_dir, NextStart(True, (node,)))
        except OSError as error:
            raise ClusterError(f"it cannot be written down: {error}", UNAVAILABLE) from error
        self._is_to_join = True
        return True

    async def forget(self, node: str, offline: bool, force: bool) -> None:  # noqa: ARG002
        if node != self._node.name:
            raise not_a_member(node)
        if offline:
            self._check_stopped()
        if self._node.is_open:
            raise member_is_running(node)
        raise ClusterError(f"{node} is the only node: forget everything with reset")

    async def reset(self, force: bool) -> None:  # noqa: ARG002
        self._check_stopped()
        self._node.reset_content()

    async def stop_app(self) -> None:
        await self._node.close_clients()

    async def start_app(self) -> None:
        if self._is_to_join and self._node.on_restart is not None:
            self._node.on_restart()
            return
        try:
            self._node.reopen()
        except StartError as error:
            raise ClusterError(str(error), UNAVAILABLE) from error

    async def drain(self) -> None:
        raise ClusterError(
            "a node by itself has nobody to hand its queues to: stop it with warrenctl stop_app"
        )

    async def revive(self) -> None:
        """It is in service always."""

    def drain_status(self) -> DrainStatus:
        return DrainStatus("in service")

    async def set_name(self, name: str) -> None:
        node = self._node
        node.in_turn(lambda: node.engine.set_global_parameter(CLUSTER_NAME, name))

    async def block_link(self, peer: str, blocked: bool) -> None:  # noqa: ARG002
        raise not_clustered()

    def blocked_links(self) -> Sequence[str]:
        return []

    def _check_stopped(self) -> None:
        if self._node.is_open:
            raise app_is_running(self._node.name)
