"""Which of several replicas has the most of a queue: every one of them is asked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from warren.management.mirrors import Position, position_of
from warren.management.peers import PeerSilent, Question
from warren.model.errand import Errand

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine
    from warren.management.peers import Peers

#: Queues that are asked about at a time: a node answers so many questions, and no more.
ASKING_MAX = 16
_decoder = msgspec.json.Decoder(Position)


class BestReplica:
    """Asks with the help of the running loop."""

    def __init__(self, peers: Peers, engine: Engine) -> None:
        self._peers = peers
        self._engine = engine
        self._turns: asyncio.Semaphore | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, queue: AmqpQueue, names: tuple[str, ...]) -> Errand:
        """The errand ends with a name; the first one when nobody can tell."""
        errand = Errand()
        task = asyncio.get_running_loop().create_task(self._find(queue, names, errand))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return errand

    async def _find(self, queue: AmqpQueue, names: tuple[str, ...], errand: Errand) -> None:
        if self._turns is None:
            self._turns = asyncio.Semaphore(ASKING_MAX)
        async with self._turns:
            found = await asyncio.gather(*(self._position(queue, name) for name in names))
        best = max(range(len(names)), key=lambda number: (found[number], -number))
        errand.finish(names[best])

    async def _position(self, queue: AmqpQueue, name: str) -> tuple[int, int]:
        """The epoch of its last operation, and how many it has; lower than any when unknown."""
        if name == self._engine.settings.node_name:
            own = position_of(self._engine, queue)
            return (own.epoch, own.last)
        vhost, queue_name = quote(queue.vhost.name, safe=""), quote(queue.name, safe="")
        path = f"/queues/{vhost}/{queue_name}/mirrors/position"
        try:
            answer = await self._peers.ask(name, Question("GET", path))
            told = _decoder.decode(answer.body) if answer.status == 200 else Position()
        except (PeerSilent, msgspec.DecodeError):
            told = Position()
        return (told.epoch, told.last)
