"""What clients do in a run under faults: W1 to W8 of the plan, each with what must be true then.

All workloads have producers and consumers on every node, so on masters, on mirrors and, where there
are more nodes than replicas, on nodes that have no replica.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import aiormq
from fault_clients import (
    ANSWER_S,
    PERSISTENT,
    Client,
    Consumer,
    Getter,
    LostCaller,
    Owner,
    Producer,
    TransactionProducer,
    end,
)
from fault_ledger import Ledger
from fault_pika import PikaConsumer, PikaProducer
from rings import Refused, api, mirror

#: A queue that nobody consumes from before the end, and what it gets a second from each node.
KEPT, KEPT_RATE = "kept", 4
AUTOMATIC = {"ha-sync-mode": "automatic"}


@dataclass
class Stage:
    """What a workload works with."""

    cluster: Any
    ledger: Ledger
    dice: random.Random
    say: Callable[[str], None]
    #: What names of queues begin with; "ha." is mirrored.
    prefix: str
    replicas: int

    @property
    def nodes(self) -> list[int]:
        return list(self.cluster.numbers)

    def own_dice(self) -> random.Random:
        return random.Random(self.dice.random())

    def policy(self) -> dict[str, object]:
        """The policy of mirrored queues when nothing is changed about it."""
        if self.replicas == len(self.nodes):
            return {"ha-mode": "all", **AUTOMATIC}
        return {"ha-mode": "exactly", "ha-params": self.replicas, **AUTOMATIC}


class Workload:
    """One of them. `queues` are drained in the end, `ordered` must keep the order."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.queues: list[str] = []
        self.ordered: set[str] = set()
        #: Where a message may come twice unflagged: two dead letters of one are two messages.
        self.twice: set[str] = set()
        #: Not consumed from: looked into on every replica in the end.
        self.kept: str | None = None
        self.producers: list[Client] = []
        self.consumers: list[Client] = []

    async def prepare(self) -> None:
        """Declare what is needed, and make the clients."""
        raise NotImplementedError

    async def meanwhile(self, over: asyncio.Event) -> None:
        """Something else that goes on until the faults are over."""
        await over.wait()

    async def check(self) -> list[str]:
        """What is wrong when all clients are gone."""
        return []

    # -- for those below ---------------------------------------------------------------------------

    def name(self, rest: object) -> str:
        return f"{self.stage.prefix}{rest}"

    async def declare(self, node: int, queue: str, arguments: dict[str, Any] | None = None) -> None:
        connection = await aiormq.connect(self.stage.cluster.url(node))
        try:
            channel = await connection.channel()
            await channel.queue_declare(queue, durable=True, arguments=arguments)
        finally:
            await end(connection)

    def produce(self, node: int, queue: str, **how: Any) -> None:
        stage = self.stage
        self.producers.append(Producer(stage.cluster, node, stage.ledger, queue, **how))

    def consume(self, node: int, queue: str, kind: type[Consumer] = Consumer, **how: Any) -> None:
        stage = self.stage
        made = kind(stage.cluster, node, stage.ledger, queue, stage.own_dice(), **how)
        self.consumers.append(made)

    def any_node(self) -> int:
        return self.stage.dice.choice(self.stage.nodes)

    async def keep(self) -> None:
        """Have a queue whose replicas are compared in the end."""
        self.kept = self.name(KEPT)
        await self.declare(self.stage.nodes[0], self.kept)
        for node in self.stage.nodes:
            self.produce(node, self.kept, rate=KEPT_RATE)


class Mixed(Workload):
    """W1: producers on all nodes, consumers and gets, windows of 1, 100 and 1000; pika, too."""

    async def prepare(self) -> None:
        nodes, windows = self.stage.nodes, (20, 1, 100, 1000)
        rate = 120 / len(nodes)
        for home in nodes:
            ordered, shared = self.name(f"ordered.{home}"), self.name(f"shared.{home}")
            for queue in (ordered, shared):
                await self.declare(home, queue)
                for node in nodes:
                    self.produce(node, queue, window=windows[node % len(windows)], rate=rate)
            self.queues += [ordered, shared]
            self.ordered.add(ordered)
            self.consume(self.any_node(), ordered)
            self.consume(nodes[0], shared)
            self.consume(nodes[1], shared, kind=Getter)
        await self._by_pika()
        if self.stage.prefix:
            await self.keep()

    async def _by_pika(self) -> None:
        """A queue whose clients are of another make."""
        stage, queue = self.stage, self.name("pika")
        await self.declare(self.any_node(), queue)
        self.queues.append(queue)
        self.ordered.add(queue)
        cluster, ledger = stage.cluster, stage.ledger
        self.producers += [PikaProducer(cluster, node, ledger, queue) for node in stage.nodes[:2]]
        dice, node = stage.own_dice(), self.any_node()
        self.consumers.append(PikaConsumer(cluster, node, ledger, queue, dice))


class DeadLetters(Workload):
    """W2: messages are rejected or expire, and must come by the queue of dead letters then."""

    async def prepare(self) -> None:
        dead = self.name("dead")
        await self.declare(self.any_node(), dead)
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
        self.queues.append(dead)
        self.twice.add(dead)
        for home in self.stage.nodes:
            rejected, expiring = self.name(f"rejected.{home}"), self.name(f"expiring.{home}")
            await self.declare(home, rejected, arguments)
            await self.declare(home, expiring, {**arguments, "x-message-ttl": 2_000})
            self.queues += [rejected, expiring]
            for node in self.stage.nodes:
                self.produce(node, rejected, rate=20)
                self.produce(node, expiring, rate=10)
            self.consume(self.any_node(), rejected, rejects=0.5)
        for node in self.stage.nodes:
            self.consume(node, dead)


class Fifo(Workload):
    """W3: one producer and one consumer for each queue, every pair of nodes."""

    async def prepare(self) -> None:
        for home in self.stage.nodes:
            for node in self.stage.nodes:
                queue = self.name(f"fifo.{home}.{node}")
                await self.declare(home, queue)
                self.queues.append(queue)
                self.ordered.add(queue)
                self.produce(node, queue)
                self.consume(self.any_node(), queue)


class ManyQueues(Workload):
    """W4: very many small queues; a client publishes to all of them in turn."""

    count = 300

    async def prepare(self) -> None:
        nodes, stage = self.stage.nodes, self.stage
        self.queues = [self.name(f"small.{i}") for i in range(self.count)]
        for node in nodes:
            connection = await aiormq.connect(stage.cluster.url(node))
            channel = await connection.channel()
            for i, queue in enumerate(self.queues):
                if i % len(nodes) == node - 1:
                    await channel.queue_declare(queue, durable=True)
            await end(connection)
        self.ordered = set(self.queues)
        for node in nodes:
            mine = [queue for i, queue in enumerate(self.queues) if i % len(nodes) == node - 1]
            self.producers.append(RoundRobin(stage.cluster, node, stage.ledger, mine))
            taken = [
                queue for i, queue in enumerate(self.queues) if i % len(nodes) == node % len(nodes)
            ]
            self.consumers.append(ManyConsumer(stage.cluster, node, stage.ledger, taken))


class RoundRobin(Producer):
    """One message to each of many queues in turn."""

    def __init__(self, cluster: Any, node: int, ledger: Ledger, queues: Sequence[str]) -> None:
        super().__init__(cluster, node, ledger, "many", rate=150, window=200)
        self._queues = queues

    def queue_of(self, number: int) -> str:
        return self._queues[number % len(self._queues)]


class ManyConsumer(Consumer):
    """Consumes from many queues on one channel."""

    def __init__(self, cluster: Any, node: int, ledger: Ledger, queues: Sequence[str]) -> None:
        super().__init__(cluster, node, ledger, "many", random.Random(0))
        self._queues = queues

    async def work(self, channel: Any) -> None:
        await channel.basic_qos(prefetch_count=30)
        for queue in self._queues:
            await asyncio.wait_for(
                channel.basic_consume(queue, self._taker(channel, queue)), ANSWER_S
            )
        count = len(self._queues)
        while not self.stopping.is_set():
            if channel.is_closed:
                raise ConnectionError
            if len(channel.consumers) < count:
                self.ledger.events["cancelled"] += 1
                return
            await asyncio.sleep(0.1)

    def _taker(self, channel: Any, queue: str) -> Callable[[Any], Any]:
        async def on_message(message: Any) -> None:
            self.note_of(queue, message)
            await channel.basic_ack(message.delivery.delivery_tag)

        return on_message


class Backlog(Workload):
    """W5: a deep queue; nodes that come back are synchronised while the load goes on."""

    deep = 20_000

    async def prepare(self) -> None:
        stage, nodes = self.stage, self.stage.nodes
        deep = self.name("deep")
        await self.declare(nodes[0], deep)
        filling = Filling(stage.cluster, nodes[0], stage.ledger, deep, self.deep)
        await asyncio.wait_for(filling.run(), 300)
        stage.say(f"{self.deep} messages in {deep}")
        self.queues.append(deep)
        self.ordered.add(deep)
        for node in nodes:
            self.produce(node, deep, rate=20)
        for home in nodes:
            queue = self.name(f"fifo.{home}")
            await self.declare(home, queue)
            self.queues.append(queue)
            self.ordered.add(queue)
            self.produce(self.any_node(), queue)
            self.consume(self.any_node(), queue)

    async def meanwhile(self, over: asyncio.Event) -> None:
        """Only then is it consumed from."""
        await over.wait()
        deep = self.name("deep")
        self.consume(self.any_node(), deep, prefetch=500)


class Filling(Producer):
    """Publishes so many, as fast as they are taken, and ends."""

    def __init__(self, cluster: Any, node: int, ledger: Ledger, queue: str, count: int) -> None:
        super().__init__(cluster, node, ledger, queue, rate=1e6, window=1000)
        self.name = f"filling>{queue}"
        self._count = count

    def new_number(self) -> int:
        number = super().new_number()
        if number >= self._count:
            self.stopping.set()
        return number


class Transactions(Workload):
    """W6: transactions, confirms and messages that no queue takes, side by side."""

    async def prepare(self) -> None:
        stage = self.stage
        for home in stage.nodes:
            queue = self.name(f"tx.{home}")
            await self.declare(home, queue)
            self.queues.append(queue)
            self.ordered.add(queue)
            for node in stage.nodes:
                made = TransactionProducer(stage.cluster, node, stage.ledger, queue)
                self.producers.append(made)
            self.produce(self.any_node(), queue)
            self.producers.append(LostCaller(stage.cluster, home, stage.ledger))
            self.consume(self.any_node(), queue)
        if stage.prefix:
            await self.keep()


class PolicyFlips(Mixed):
    """W7: the policy changes all the time, and masters are moved by hand."""

    async def meanwhile(self, over: asyncio.Event) -> None:
        stage, dice = self.stage, self.stage.own_dice()
        while not over.is_set():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(over.wait(), dice.uniform(0.5, 3.0))
            with contextlib.suppress(OSError, Refused):
                if dice.random() < 0.5:
                    await asyncio.to_thread(self._flip, dice)
                else:
                    await asyncio.to_thread(self._move, dice)
        await asyncio.to_thread(self._restore)
        stage.say("the policy is as it was")

    def _flip(self, dice: random.Random) -> None:
        cluster, names = self.stage.cluster, self.stage.cluster.nodes
        chosen: dict[str, object] = dice.choice(
            [
                {"ha-mode": "all"},
                {"ha-mode": "exactly", "ha-params": 2},
                {"ha-mode": "exactly", "ha-params": 3},
                {"ha-mode": "nodes", "ha-params": dice.sample(names, 2)},
            ]
        )
        mirror(cluster, r"^ha\.", chosen | AUTOMATIC, node=dice.choice(cluster.running))
        self.stage.ledger.events["policies"] += 1

    def _move(self, dice: random.Random) -> None:
        cluster, queue = self.stage.cluster, dice.choice(self.queues)
        asked = {"action": "transfer_leader", "node": dice.choice(cluster.nodes)}
        api(cluster, dice.choice(cluster.running), "POST", f"/queues/%2F/{queue}/actions", asked)
        self.stage.ledger.events["handovers"] += 1

    def _restore(self) -> None:
        for _ in range(100):
            with contextlib.suppress(OSError, Refused):
                mirror(self.stage.cluster, r"^ha\.", self.stage.policy())
                return
        raise AssertionError("the policy cannot be set any more")


class EndingQueues(Fifo):
    """W8: exclusive and auto-delete queues, whose owners' nodes die; none may stay behind."""

    async def prepare(self) -> None:
        await super().prepare()
        stage = self.stage
        self.owners = [
            Owner(stage.cluster, node, stage.ledger, stage.prefix, sort)
            for node in stage.nodes
            for sort in ("exclusive", "auto")
        ]
        self.producers += self.owners

    async def check(self) -> list[str]:
        had = {queue for owner in self.owners for queue in owner.had}
        for _ in range(100):
            rows = await asyncio.to_thread(api, self.stage.cluster, 1, "GET", "/queues/%2F")
            left = had & {row["name"] for row in rows}
            if not left:
                self.stage.say(f"{len(had)} exclusive and auto-delete queues have come and gone")
                return []
            await asyncio.sleep(0.2)
        return [f"{len(left)} queues outlive their owners, as {sorted(left)[:5]}"]


WORKLOADS: dict[str, type[Workload]] = {
    "W1": Mixed,
    "W2": DeadLetters,
    "W3": Fifo,
    "W4": ManyQueues,
    "W5": Backlog,
    "W6": Transactions,
    "W7": PolicyFlips,
    "W8": EndingQueues,
}
__all__ = ["KEPT", "PERSISTENT", "WORKLOADS", "Stage", "Workload"]
