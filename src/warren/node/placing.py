"""The placement of mirrors, joined to the agreement and the loop of a node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from warren.node.best_replica import BestReplica
from warren.node.placement import Placement

if TYPE_CHECKING:
    from warren.management.peers import Peers
    from warren.node.agreement import Agreement
    from warren.node.node import Node
    from warren.node.views import QueueViews


class Placing:
    """Proposes soon after something has happened, in a turn of its own."""

    def __init__(
        self, queues: QueueViews, agreement: Callable[[], Agreement], peers: Peers, node: Node
    ) -> None:
        self._node = node
        self._is_waking = self._is_over = False
        self._placement = Placement(
            queues,
            lambda: agreement().member.views,
            lambda: agreement().member.nodes,
            lambda decision: agreement().change_view(decision),
            self._wake,
            node.engine.clock.now_ms,
            BestReplica(peers, node.engine).find,
        )
        #: Now and then: what has failed is tried again.
        self.look = self._placement.look

    def leads_changed(self, leads: bool) -> None:
        """A node that can have no copies itself sends nobody any."""
        self._placement.leads_changed(leads and self._node.engine.mirrors is not None)

    def stop(self) -> None:
        """Propose nothing more."""
        self._is_over = True

    def _wake(self) -> None:
        if not self._is_waking and not self._is_over:
            self._is_waking = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._is_waking = False
        if not self._is_over:
            self._node.in_turn(self._placement.run)
