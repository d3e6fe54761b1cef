"""Who is there, as far as this node can tell; what a leader has to say about it.

Every node keeps count, so that a new leader knows at once what the old one knew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.cluster.metadata_commands import NodeDown, NodeUp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.cluster.metadata import Node


class Liveness:
    """What links have told."""

    def __init__(self, node: str, incarnation: int, silent_ms: int, now_ms: int) -> None:
        self._node = node
        self._incarnation = incarnation
        self._silent_ms = silent_ms
        self._since_ms = now_ms
        self._heard_ms: dict[str, int] = {}
        #: Live links, and which incarnation of the node is at their other end.
        self._links: dict[str, int] = {}
        self._refused: set[str] = set()
        #: The incarnations that have said that they take no part any more.
        self._stopped: dict[str, int] = {}

    def up(self, node: str, incarnation: int, now_ms: int) -> None:
        self._links[node] = incarnation
        self.heard(node, now_ms)

    def down(self, node: str) -> None:
        self._links.pop(node, None)

    def refused(self, node: str) -> None:
        self._refused.add(node)

    def stopped(self, node: str, incarnation: int) -> None:
        self._stopped[node] = incarnation

    def heard(self, node: str, now_ms: int) -> None:
        self._heard_ms[node] = now_ms
        self._refused.discard(node)

    def held_up(self, gap_ms: int) -> None:
        """This node itself did not listen for a while: that is not the others' silence."""
        self._since_ms += gap_ms
        for node in self._heard_ms:
            self._heard_ms[node] += gap_ms

    def is_linked(self, node: str) -> bool:
        return node in self._links

    def verdict(self, name: str, node: Node, now_ms: int) -> NodeDown | NodeUp | None:
        """What is to be changed about a node of the table."""
        incarnation = node.incarnation
        if name == self._node:
            back = not node.is_alive and incarnation == self._incarnation
            return NodeUp(name, incarnation) if back else None
        link = self._links.get(name)
        silent = now_ms - self._heard_ms.get(name, self._since_ms) > self._silent_ms
        gone = name in self._refused and link is None
        # A later incarnation is there: this one is not.
        replaced = link is not None and link > incarnation
        stopped = self._stopped.get(name) == incarnation
        if node.is_alive:
            is_down = silent or gone or replaced or stopped
            return NodeDown(name, incarnation, stopped) if is_down else None
        back = link == incarnation and not silent and not stopped
        return NodeUp(name, incarnation) if back else None

    def verdicts(
        self, table: Mapping[str, Node], now_ms: int
    ) -> list[tuple[str, NodeDown | NodeUp]]:
        """All that is to be changed."""
        found = [(name, self.verdict(name, node, now_ms)) for name, node in table.items()]
        return [(name, verdict) for name, verdict in found if verdict is not None]
