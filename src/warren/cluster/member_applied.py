"""How far every node has applied the log, and who waits for all of them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.cluster.metadata import Node


class AppliedEverywhere:
    """Proposals that are applied here and may not be elsewhere."""

    def __init__(self, node: str) -> None:
        self._node = node
        #: name -> (incarnation, index)
        self._told: dict[str, tuple[int, int]] = {}
        #: (index, ticket), in the order of the log.
        self._waiting: deque[tuple[int, int]] = deque()

    def told(self, node: str, incarnation: int, index: int) -> None:
        """A node says how far it is. Within one life that never goes back."""
        self._told[node] = max(self._told.get(node, (0, 0)), (incarnation, index))

    def wait(self, index: int, ticket: int) -> None:
        """What is applied here at `index` is waited for."""
        self._waiting.append((index, ticket))

    def everywhere(self, table: Mapping[str, Node], own_index: int) -> list[tuple[int, int]]:
        """Those that every living node has applied; they are waited for no more."""
        if not self._waiting:
            return []
        floor = self.floor(table, own_index)
        done = []
        while self._waiting and self._waiting[0][0] <= floor:
            done.append(self._waiting.popleft())
        return done

    def floor(self, table: Mapping[str, Node], own_index: int) -> int:
        """All living nodes have applied the log up to here."""
        floor = own_index
        for name, node in table.items():
            if node.is_alive and name != self._node:
                incarnation, index = self._told.get(name, (0, 0))
                # What an earlier or later life has applied says nothing about this one.
                floor = min(floor, index if incarnation == node.incarnation else 0)
        return floor
