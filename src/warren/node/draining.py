"""A node that is taken out of service: its masters go to others, then its clients are sent away.

All nodes agree on who is drained, and it stays so over restarts until an operator ends it. What a
drained node has of mirrored queues it keeps and follows; queues that are on it alone can still be
had through the other nodes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from warren.management.cluster_control import DrainStatus
from warren.node.errors import StartError
from warren.telemetry.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.engine.mirror import Mirror
    from warren.node.node import Node

#: What clients are told, with connection.close 320.
GOODBYE = "Node was put into maintenance mode"
#: So many masters are on their way at a time.
MOVES_AT_A_TIME = 16
LOOK_S = 0.02
#: A drained node passes on what a failover has left it with, as often as this.
LOOK_AGAIN_S = 1.0
#: Clients are sent away even if masters cannot go, when none has gone for so long.
PATIENCE_S = 10.0
#: So many queues are named.
NAMED_MAX = 100


class Draining:
    """`agreed` says what all nodes have agreed on for this one; the rest follows by itself."""

    def __init__(self, node: Node, drained_nodes: Callable[[], frozenset[str]]) -> None:
        self._node = node
        self._drained_nodes = drained_nodes
        self._log = logger("cluster")
        self._work: asyncio.Task[None] | None = None
        self._is_done = False
        self._planned = 0

    @property
    def is_wanted(self) -> bool:
        """Whether the node is to be out of service."""
        return self._work is not None

    def agreed(self, drained: bool) -> None:
        """What the table of nodes says of this one, whenever it is another table."""
        if drained is self.is_wanted:
            return
        if drained:
            if not self._node.is_open:
                # It starts as one that was drained before.
                self._node.is_suspended = self._is_done = True
            self._work = asyncio.get_running_loop().create_task(self._drain())
        else:
            self.stop()
            self._is_done = False
            self._resume()

    def stop(self) -> None:
        """Do nothing more."""
        if self._work is not None:
            self._work.cancel()
            self._work = None

    def _resume(self) -> None:
        try:
            self._node.resume_clients()
        except StartError as error:
            self._node.failure.set(error)
            return
        self._log.info("the node is in service again: clients are let in")

    def status(self) -> DrainStatus:
        """How far it is."""
        if not self.is_wanted:
            return DrainStatus("in service")
        left = self._mirrored()
        names = sorted((it.queue.vhost.name, it.queue.name) for it in left)
        return DrainStatus(
            "drained" if self._is_done else "draining",
            planned=max(self._planned, len(left)),
            left=len(left),
            left_queues=names[:NAMED_MAX],
            connections=len(self._node.engine.connections),
        )

    # -- the work ----------------------------------------------------------------------------------

    async def _drain(self) -> None:
        if not self._is_done:
            self._planned = len(self._mirrored())
            self._log.info("the node is drained: %d masters are to move", self._planned)
            await self._move_all()
            await self._node.suspend_clients(GOODBYE)
            self._is_done = True
            left = len(self._mirrored())
            moved = max(0, self._planned - left)
            self._node.engine.emit(
                "node.drain.ended", node=self._node.name, moved=moved, masters_left=left
            )
            self._log.info("the node is drained: %d masters have moved, %d stay", moved, left)
        while True:
            await asyncio.sleep(LOOK_AGAIN_S)
            self._begin_moves()

    async def _move_all(self) -> None:
        loop = asyncio.get_running_loop()
        fewest, until_s = self._planned, loop.time() + PATIENCE_S
        while self._begin_moves() and loop.time() < until_s:
            await asyncio.sleep(LOOK_S)
            left = len(self._mirrored())
            if left < fewest:
                fewest, until_s = left, loop.time() + PATIENCE_S

    def _mirrored(self) -> list[Mirror]:
        """The masters of this node that others are to have replicas of."""
        mirrors = self._node.engine.mirrors
        if mirrors is None:
            return []
        return [it for it in mirrors.mastered() if it.view is not None and len(it.view.wanted) > 1]

    def _begin_moves(self) -> int:
        """Hand over some of what others have in full; how many masters can or do move."""
        here, drained = self._node.name, self._drained_nodes()
        able, under_way = [], 0
        for mirror in self._mirrored():
            assert mirror.view is not None
            heirs = [it for it in mirror.view.in_sync if it != here and it not in drained]
            if mirror.replica is not None and mirror.replica.is_handing_over:
                under_way += 1
            elif heirs:
                able.append((mirror, heirs))
        counts = Counter(self._node.engine.queues_at)

        def move() -> None:
            for mirror, heirs in able[: max(0, MOVES_AT_A_TIME - under_way)]:
                # Not all to the same one.
                heir = min(heirs, key=lambda name: (counts[name], name))
                counts[heir] += 1
                mirror.hand_over(heir)

        if able:
            self._node.in_turn(move)
        return under_way + len(able)
