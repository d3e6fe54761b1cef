"""Who tells the others that a new life has begun while one that has everything transient ran.

Transient exchanges are in the log like all others, so a node that starts has them. They are to end
when all nodes were stopped at the same time, which no entry says by itself: after such a stop the
first node that is back finds the others alive in the table, as they were left. So a life has a part
in what is transient only when another one that has it says so, after it has seen it begin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.cluster.metadata_commands import Life, Witness

if TYPE_CHECKING:
    from warren.cluster.metadata import Metadata

#: The ticket of proposals that nobody waits for.
NOBODY = -1


class Witnessing:
    """One node's part in it."""

    def __init__(self, node: str, incarnation: int) -> None:
        self._own = Life(node, incarnation)
        #: What was seen is on its way; nothing else is said until it is applied.
        self.is_under_way = False

    def due(self, metadata: Metadata, leader: str | None) -> Witness | None:
        """What this node is to say. One is enough: whoever leads, or the first that can."""
        own, bearers = self._own, metadata.bearers
        if not metadata.unseen or self.is_under_way or bearers.get(own.node) != own.incarnation:
            return None
        nodes = metadata.nodes()
        alive = [name for name in sorted(bearers) if nodes[name].is_alive]
        if own.node != (leader if leader in alive else alive[0] if alive else own.node):
            return None
        self.is_under_way = True
        return Witness(own, metadata.unseen)
