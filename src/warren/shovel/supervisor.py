"""Obeys the parameters of component `shovel`: starts, restarts and ends shovels as they change.

In a cluster each shovel is at work on one node, which all nodes choose alike from those that run.
While they do not agree, two may be at work on one shovel for a moment: they share the messages of
its source, and nothing else happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from warren.client.connection import ClientError
from warren.shovel.settings import PAUSED, BadShovel, is_paused, parse_shovel, without_pause
from warren.shovel.worker import OwnPlace, Status, Worker
from warren.telemetry.log import logger

if TYPE_CHECKING:
    from warren.engine.engine import Engine

COMPONENT = "shovel"
LOOK_S = 0.5
#: The rate of a shovel is that of so many looks.
RATE_LOOKS = 10
#: What is on its way when a shovel is paused is waited for so long.
PAUSE_S = 10.0

Key = tuple[str, str]


@dataclass(slots=True)
class _Job:
    """A shovel of this node."""

    value: Any
    worker: Worker | None
    status: Status
    task: asyncio.Task[None] | None
    #: How much was moved, at the last looks.
    counts: deque[int] = field(default_factory=lambda: deque(maxlen=RATE_LOOKS + 1))

    @property
    def rate(self) -> float:
        """Messages a second."""
        looks = len(self.counts) - 1
        return (self.counts[-1] - self.counts[0]) / (looks * LOOK_S) if looks > 0 else 0.0


class Shovels:
    """See the module's text."""

    def __init__(
        self,
        engine: Engine,
        own_place: OwnPlace,
        running: Callable[[], Sequence[str]],
        is_open: Callable[[], bool],
        forget: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._engine = engine
        self._own_place = own_place
        #: The other nodes that run.
        self._running = running
        #: Whether the node serves clients.
        self._is_open = is_open
        #: Clears the parameter of a shovel that has done its work: (virtual host, name).
        self._forget = forget
        self._jobs: dict[Key, _Job] = {}
        self._task: asyncio.Task[None] | None = None
        self._log = logger("shovel")

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        """End all shovels; what they have not been told of comes again."""
        tasks = [job.task for job in self._jobs.values() if job.task is not None]
        tasks += [self._task] if self._task is not None else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._jobs.clear()

    def jobs(self) -> list[tuple[str, str, Any, Status, float]]:
        """Virtual host, name, value, status and rate of each shovel of this node."""
        return [
            (vhost, name, job.value, job.status, job.rate)
            for (vhost, name), job in sorted(self._jobs.items())
        ]

    def restart(self, vhost: str, name: str) -> bool:
        """Begin a shovel anew; False when this node has none of that name."""
        job = self._jobs.pop((vhost, name), None)
        if job is None:
            return False
        if job.task is not None:
            job.task.cancel()
        self._look()
        return True

    async def _watch(self) -> None:
        while True:
            try:
                self._look()
            except Exception:  # noqa: BLE001 - the others of the node must go on
                self._log.exception("a fault of ours while looking after shovels")
            await asyncio.sleep(LOOK_S)

    def _look(self) -> None:
        wanted = self._wanted()
        for key in [key for key, job in self._jobs.items() if wanted.get(key) != job.value]:
            before, value = self._jobs.pop(key), wanted.get(key)
            is_same = without_pause(value) == without_pause(before.value)
            if is_same and is_paused(value) and before.worker is not None:
                self._jobs[key] = self._pause(before, value)
                continue
            if before.task is not None:
                before.task.cancel()
            if is_same and before.worker is not None:
                self._jobs[key] = self._begin(key, value, before.worker)
        for key, value in wanted.items():
            if key not in self._jobs:
                self._jobs[key] = self._begin(key, value)
        for job in self._jobs.values():
            job.counts.append(job.status.forwarded)

    def _wanted(self) -> dict[Key, Any]:
        """The shovels of this node."""
        if not self._is_open():
            return {}
        own = self._engine.settings.node_name
        nodes = sorted({own, *self._running()})
        return {
            (vhost, name): value
            for (vhost, component, name), value in self._engine.parameters.items()
            if component == COMPONENT and choose_node(vhost, name, nodes) == own
        }

    def _pause(self, job: _Job, value: Any) -> _Job:
        """It takes nothing more; `_work` sees it end."""
        job.value = value
        assert job.worker is not None
        if job.task is None or job.task.done() or not job.worker.pause():
            if job.task is not None:
                job.task.cancel()
            job.status.change(PAUSED)
        else:
            asyncio.get_running_loop().call_later(PAUSE_S, job.task.cancel)
        return job

    def _begin(self, key: Key, value: Any, before: Worker | None = None) -> _Job:
        vhost, name = key
        try:
            settings = parse_shovel(value)
        except BadShovel as error:
            status = Status()
            status.change("terminated", str(error))
            return _Job(value, None, status, None)
        worker = Worker(name, vhost, settings, self._own_place, self._engine.cluster_name)
        if before is not None:
            worker.go_on_from(before)
        if is_paused(value):
            worker.status.change(PAUSED)
            return _Job(value, worker, worker.status, None)
        task = asyncio.get_running_loop().create_task(self._work(key, worker))
        return _Job(value, worker, worker.status, task)

    async def _work(self, key: Key, worker: Worker) -> None:
        vhost, name = key
        self._log.info("shovel '%s' in vhost '%s' is started", name, vhost)
        try:
            await worker.run()
        except ClientError:
            return
        except asyncio.CancelledError:
            if worker.is_pausing:
                worker.status.change(PAUSED)
            raise
        if worker.is_pausing:
            self._log.info("shovel '%s' in vhost '%s' is paused", name, vhost)
            worker.status.change(PAUSED)
            return
        self._log.info("shovel '%s' in vhost '%s' has moved all and is deleted", name, vhost)
        with contextlib.suppress(LookupError):
            await self._forget(vhost, name)


def choose_node(vhost: str, name: str, nodes: Sequence[str]) -> str:
    """The node that has a shovel, of those that run; another one only when that node goes."""

    def weight(node: str) -> bytes:
        return hashlib.blake2b(f"{vhost}\0{name}\0{node}".encode(), digest_size=8).digest()

    return max(nodes, key=weight)
