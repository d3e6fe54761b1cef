"""How far every node has applied the log, and who waits for all of them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.cluster.metadata import Node


class AppliedEverywhere:
    """Proposals that are applied here and may not be elsewhere.

    A node that was declared down while it was there (its network was cut) tells of nothing until
    all others know that it is back: else one who made a queue on it would be told so here, and
    that its home is down there.
    """

    def __init__(self, node: str, incarnation: int) -> None:
        self._node = node
        self._incarnation = incarnation
        self._is_down = False
        #: The entry that says that this node is back.
        self._back_at = 0
        #: name -> (incarnation, index)
        self._told: dict[str, tuple[int, int]] = {}
        #: (index, ticket), in the order of the log.
        self._waiting: deque[tuple[int, int]] = deque()

    def look(self, table: Mapping[str, Node], index: int, is_leap: bool = False) -> None:
        """The table after an entry; a leap leads over entries that nobody has seen here."""
        own = table.get(self._node)
        is_down = own is not None and own.incarnation == self._incarnation and not own.is_alive
        if (self._is_down or is_leap) and not is_down:
            self._back_at = index
        self._is_down = is_down

    def told(self, node: str, incarnation: int, index: int) -> None:
        """A node says how far it is. Within one life that never goes back."""
        self._told[node] = max(self._told.get(node, (0, 0)), (incarnation, index))

    def wait(self, index: int, ticket: int) -> None:
        """What is applied here at `index` is waited for."""
        self._waiting.append((index, ticket))

    def everywhere(self, table: Mapping[str, Node], own_index: int) -> list[tuple[int, int]]:
        """Those that every living node has applied; they are waited for no more."""
        if not self._waiting or self._is_down:
            return []
        floor = self.floor(table, own_index)
        if floor < self._back_at:
            return []
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
