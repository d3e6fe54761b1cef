"""One run under faults: a workload, what happens meanwhile, the drain, and the verdict."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import aiormq
from bad_disks import BadDisks
from fault_acts import LASTING_S, Chaos
from fault_clients import AGAIN_S, ANSWER_S, Client, end
from fault_ledger import Id, Ledger, Outcome, id_of
from fault_workloads import WORKLOADS, Stage
from rings import RingsGoOn, await_that, make_master, mirror

from warren.testing import Cluster

#: How long the drain may take.
DRAIN_S = 90.0
#: Replicas of a mirrored queue; where there are more nodes, some have none.
REPLICAS = 3

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is made of; with the same seed the dice fall alike, as far as nodes let them."""

    seconds: float = 60
    seed: int = 1
    nodes: int = 3
    mirrored: bool = False
    workload: str = "W1"
    #: What happens first, whatever the dice say.
    must: tuple[str, ...] = ()
    #: If not empty: nothing else happens.
    only: tuple[str, ...] = ()
    #: How long what is cut or suspended stays so, at least and at most.
    lasting_s: tuple[float, float] = LASTING_S


@dataclass(slots=True)
class Finished:
    """What came of a run."""

    ledger: Ledger
    outcome: Outcome
    faults: list[str]
    #: What happened to the nodes, and how often.
    acts: dict[str, int]
    took_s: float


class Run:
    """A seeded run on a cluster that is up."""

    def __init__(
        self,
        cluster: Cluster,
        plan: Plan,
        say: Callable[[str], None],
        disks: BadDisks | None = None,
    ) -> None:
        self._cluster = cluster
        self._plan = plan
        self._say = say
        self.ledger = Ledger()
        self._dice = random.Random(plan.seed)
        prefix = "ha." if plan.mirrored else ""
        replicas = min(REPLICAS, len(cluster.numbers))
        self._stage = Stage(cluster, self.ledger, self._dice, say, prefix, replicas)
        self.workload = WORKLOADS[plan.workload](self._stage)
        self.chaos = Chaos(
            cluster,
            self._dice,
            say,
            mirrored=plan.mirrored,
            disks=disks,
            must=plan.must,
            only=plan.only,
            lasting_s=plan.lasting_s,
        )
        self._tasks: dict[Client, asyncio.Task[None]] = {}

    async def run(self) -> list[str]:
        """The faults that were found."""
        if self._plan.mirrored:
            await asyncio.to_thread(mirror, self._cluster, r"^ha\.", self._stage.policy())
        workload = self.workload
        await workload.prepare()
        self.ledger.twice = workload.twice
        self._start_clients()
        over = asyncio.Event()
        meanwhile = asyncio.create_task(workload.meanwhile(over))
        try:
            self.ledger.measure(True)
            await asyncio.to_thread(self.chaos.run, self._plan.seconds)
            self._say("all is healed")
            await asyncio.to_thread(self._cluster.wait_until_ready)
            over.set()
            await meanwhile
            self._start_clients()
            await self._end_all(workload.producers, "producers")
            self.ledger.measure(False)
            wrong = await self._kept_everywhere() if self._plan.mirrored else []
            wrong += await self._drained()
            await self._end_all(workload.consumers, "consumers")
            wrong += await workload.check()
        finally:
            for task in [*self._tasks.values(), meanwhile]:
                task.cancel()
            await asyncio.gather(*self._tasks.values(), meanwhile, return_exceptions=True)
        return wrong + self.chaos.faults + self.ledger.faults(workload.ordered)

    def _start_clients(self) -> None:
        for client in [*self.workload.producers, *self.workload.consumers]:
            if client not in self._tasks:
                self._tasks[client] = asyncio.create_task(client.run())

    async def _end_all(self, clients: list[Client], who: str) -> None:
        for client in clients:
            client.stopping.set()
        done, pending = await asyncio.wait([self._tasks[it] for it in clients], timeout=DRAIN_S)
        for task in done:
            task.result()
        if pending:
            raise AssertionError(f"{len(pending)} {who} cannot finish: {self.ledger.events}")

    # -- replicas ----------------------------------------------------------------------------------

    async def _kept_everywhere(self) -> list[str]:
        """All replicas are in sync; each as master in turn has the same messages of one queue."""
        try:
            await asyncio.to_thread(RingsGoOn(self._cluster).wait_synchronised, DRAIN_S)
        except TimeoutError as error:
            return [f"not synchronised: {error}"]
        queue = self.workload.kept
        if queue is None:
            return []
        ring = await asyncio.to_thread(
            await_that,
            self._cluster,
            queue,
            lambda it: len(it.synchronised) == self._stage.replicas,
            f"{self._stage.replicas} synchronised",
        )
        contents: dict[int, list[Id]] = {}
        for name in ring.synchronised:
            node = self._cluster.nodes.index(name) + 1
            await asyncio.to_thread(make_master, self._cluster, queue, node)
            contents[node] = await self._look_into(queue)
        found = []
        first, *others = contents
        for other in others:
            if contents[first] != contents[other]:
                differing = sorted(set(contents[first]) ^ set(contents[other]))[:5]
                sizes = {node: len(content) for node, content in contents.items()}
                found.append(f"{queue} differs between {first} and {other}: {differing}, {sizes}")
        for message in contents[first]:
            self.ledger.arrive(queue, message, redelivered=False)
        self._say(f"{len(contents[first])} messages of {queue} on every replica")
        await self._with_channel(lambda channel: channel.queue_purge(queue))
        return found

    async def _look_into(self, queue: str) -> list[Id]:
        """All messages, which stay there."""

        async def look(channel: Any) -> list[Id]:
            found = []
            while (got := await channel.basic_get(queue)).body:
                found.append(id_of(got.body))
            return found

        return await self._with_channel(look)

    async def _with_channel(self, work: Callable[[Any], Awaitable[Result]]) -> Result:
        """What work on a channel comes to; a node may send its clients away and let them in again.

        Nodes on a machine that is too busy take each other for dead.
        """
        until_s = time.monotonic() + DRAIN_S
        while True:
            connection: Any = None
            try:
                connection = await asyncio.wait_for(aiormq.connect(self._cluster.url(1)), ANSWER_S)
                return await asyncio.wait_for(work(await connection.channel()), ANSWER_S)
            except (aiormq.exceptions.AMQPError, OSError, TimeoutError):
                if time.monotonic() > until_s:
                    raise
                self.ledger.events["looked again"] += 1
            finally:
                await end(connection)
            await asyncio.sleep(AGAIN_S)

    # -- the drain ---------------------------------------------------------------------------------

    async def _drained(self) -> list[str]:
        """Until the queues are empty; what is left in them when they do not get so."""
        until_s = time.monotonic() + DRAIN_S
        while True:
            left = await self._with_channel(self._ready)
            missing = len(self.ledger.confirmed - self.ledger.seen)
            if not left and not missing:
                break
            if time.monotonic() > until_s:
                return [f"not drained: {left}, {missing} confirmed messages have not come"]
            await asyncio.sleep(0.2)
        await asyncio.sleep(0.5)
        return []

    async def _ready(self, channel: Any) -> dict[str, int]:
        """How many messages wait in the queues where some do."""
        left = {}
        for queue in sorted(self.workload.queues):
            declared = await channel.queue_declare(queue, passive=True)
            if declared.message_count:
                left[queue] = declared.message_count
        return left


def go(
    cluster: Cluster,
    plan: Plan,
    say: Callable[[str], None],
    disks: BadDisks | None = None,
    kind: type[Run] = Run,
) -> Finished:
    """A run, with all that is wrong."""
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)
    began_s = time.monotonic()
    run = kind(cluster, plan, say, disks)
    try:
        faults = asyncio.run(run.run())
    except AssertionError as error:
        # What never came to its end is as wrong as what came out wrong.
        faults = [str(error), *run.ledger.faults(run.workload.ordered)]
    ledger = run.ledger
    say(
        f"{len(ledger.sent)} sent, {len(ledger.confirmed)} confirmed, {len(ledger.seen)} came, "
        f"{len(ledger.repeated)} published again; {dict(ledger.events)}"
    )
    outcome = ledger.outcome(run.workload.ordered)
    return Finished(ledger, outcome, faults, run.chaos.done, time.monotonic() - began_s)


def unfinished() -> Finished:
    """Of a run that nodes did not let come to its end."""
    ledger = Ledger()
    return Finished(ledger, ledger.outcome(set()), [], {}, 0.0)


def checked(
    cluster: Cluster, plan: Plan, say: Callable[[str], None], disks: BadDisks | None = None
) -> Finished:
    """The same; raises AssertionError with all that is wrong."""
    result = go(cluster, plan, say, disks)
    if result.faults:
        raise AssertionError(f"{plan}:\n" + "\n".join(result.faults[:20]))
    return result
