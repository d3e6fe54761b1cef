"""A cluster under load whose nodes are killed, suspended and cut off at random.

    python tests/cluster/faults.py --seconds 180 --seed 7

Producers with confirms on all nodes publish to durable queues on all nodes, and publish again what
was refused or not answered; consumers take and acknowledge. In the end all is healed and drained:
nothing that was confirmed may be missing, nothing may come that was never sent, what comes twice
must say so, and a queue with one consumer keeps the order of every producer.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import aiormq
from aiormq.abc import DeliveredMessage

from warren.testing import Cluster

NODES = (1, 2, 3)
#: Publishes of a producer that are not answered yet.
WINDOW = 20
#: Publishes of a producer in a second.
RATE = 40
#: A client that cannot reach its node tries again after this.
AGAIN_S = 0.15
#: How long an answer may take before a client gives its connection up.
ANSWER_S = 20.0
#: How long the drain may take.
DRAIN_S = 60.0

Id = tuple[str, int]


@dataclass
class Ledger:
    """What was sent, what was confirmed, and what came."""

    sent: set[Id] = field(default_factory=set)
    confirmed: set[Id] = field(default_factory=set)
    #: Sent more than once, since it was refused or its answer never came.
    repeated: set[Id] = field(default_factory=set)
    #: By queue, in the order of arrival: (id, whether it was flagged as redelivered).
    arrived: dict[str, list[tuple[Id, bool]]] = field(default_factory=lambda: defaultdict(list))
    seen: set[Id] = field(default_factory=set)
    events: Counter[str] = field(default_factory=Counter)

    def faults(self, ordered: set[str]) -> list[str]:
        """Everything that must not have happened."""
        found = []
        lost = self.confirmed - self.seen
        if lost:
            found.append(f"{len(lost)} confirmed messages are lost, as {sorted(lost)[:5]}")
        phantoms = self.seen - self.sent
        if phantoms:
            found.append(f"{len(phantoms)} messages were never sent, as {sorted(phantoms)[:5]}")
        for queue, arrived in self.arrived.items():
            found += self._queue_faults(queue, arrived, queue in ordered)
        return found

    def _queue_faults(
        self, queue: str, arrived: list[tuple[Id, bool]], is_ordered: bool
    ) -> list[str]:
        found = []
        had: set[Id] = set()
        # One delivery is the first; that is not always the one that is read first.
        plain = Counter(message for message, redelivered in arrived if not redelivered)
        for message, times in plain.items():
            if times > 1 and message not in self.repeated:
                found.append(f"{queue}: {message} came {times} times without a word")
        newest: dict[str, int] = {}
        for message, _ in arrived:
            if message in had:
                continue
            had.add(message)
            producer, number = message
            if message in self.repeated:
                continue
            if is_ordered and number < newest.get(producer, -1):
                found.append(f"{queue}: {message} came after {newest[producer]}")
            newest[producer] = max(number, newest.get(producer, -1))
        return found


class Client:
    """Something that keeps a connection to a node, whatever happens to it."""

    def __init__(self, cluster: Cluster, node: int, ledger: Ledger) -> None:
        self.url = cluster.url(node)
        self.ledger = ledger
        self.stopping = asyncio.Event()

    async def run(self) -> None:
        """Until it is told to stop and has nothing left to do."""
        while not self.is_done():
            connection: Any = None
            try:
                connection = await asyncio.wait_for(aiormq.connect(self.url), ANSWER_S)
                await self.work(await connection.channel())
            except Exception as error:  # whatever the client library makes of a lost connection
                self.ledger.events[f"{type(self).__name__}: {type(error).__name__}"] += 1
            except asyncio.CancelledError:
                if asyncio.current_task().cancelling():  # type: ignore[union-attr]
                    raise
                # The client library cancels what waits on a connection that is lost.
            finally:
                await _end(connection)
            await asyncio.sleep(AGAIN_S)

    def is_done(self) -> bool:
        raise NotImplementedError

    async def work(self, channel: Any) -> None:
        raise NotImplementedError


async def _end(connection: Any) -> None:
    if connection is None:
        return
    try:
        await asyncio.wait_for(connection.close(), 2)
    except (Exception, asyncio.CancelledError):
        return


class Producer(Client):
    """Publishes numbered messages to one queue."""

    def __init__(self, cluster: Cluster, node: int, ledger: Ledger, queue: str) -> None:
        super().__init__(cluster, node, ledger)
        self.queue = queue
        self.name = f"{node}>{queue}"
        self.next_number = 0
        self.unanswered: set[int] = set()

    def is_done(self) -> bool:
        return self.stopping.is_set() and not self.unanswered

    async def work(self, channel: Any) -> None:
        await channel.confirm_delivery()
        under_way: set[asyncio.Task[int | None]] = set()
        again = sorted(self.unanswered)
        self.ledger.repeated.update((self.name, number) for number in again)
        try:
            while again or not self.stopping.is_set():
                number = again.pop(0) if again else self._new_number()
                under_way.add(asyncio.create_task(self._publish(channel, number)))
                done = {task for task in under_way if task.done()}
                if len(under_way) - len(done) >= WINDOW:
                    more, _ = await asyncio.wait(
                        under_way, timeout=ANSWER_S, return_when=asyncio.FIRST_COMPLETED
                    )
                    done |= more
                    if not more:
                        raise TimeoutError
                under_way -= done
                again += _refused(done)
                if channel.is_closed:
                    raise ConnectionError
                await asyncio.sleep(1 / RATE)
            if under_way:
                await asyncio.wait(under_way, timeout=ANSWER_S)
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    def _new_number(self) -> int:
        self.next_number += 1
        return self.next_number

    async def _publish(self, channel: Any, number: int) -> int | None:
        message = (self.name, number)
        self.ledger.sent.add(message)
        self.unanswered.add(number)
        try:
            await channel.basic_publish(
                f"{self.name} {number}".encode(),
                routing_key=self.queue,
                properties=aiormq.spec.Basic.Properties(delivery_mode=2),
                mandatory=True,
            )
        except aiormq.exceptions.DeliveryError as error:
            kind = "returned" if isinstance(error, aiormq.exceptions.PublishError) else "refused"
            self.ledger.events[kind] += 1
            self.ledger.repeated.add(message)
            await asyncio.sleep(AGAIN_S)
            return number
        self.unanswered.discard(number)
        self.ledger.confirmed.add(message)
        return None


def _refused(done: set[asyncio.Task[int | None]]) -> list[int]:
    """The numbers to be published again; raises what a task has raised."""
    errors = [None if task.cancelled() else task.exception() for task in done]
    for error in errors:
        if error is not None:
            raise error
    results = [task.result() for task in done]
    return sorted(number for number in results if number is not None)


class Consumer(Client):
    """Takes from one queue, and acknowledges a little later."""

    def __init__(
        self, cluster: Cluster, node: int, ledger: Ledger, queue: str, dice: random.Random
    ) -> None:
        super().__init__(cluster, node, ledger)
        self.queue = queue
        self._dice = dice

    def is_done(self) -> bool:
        return self.stopping.is_set()

    async def work(self, channel: Any) -> None:
        await channel.basic_qos(prefetch_count=30)
        tags: asyncio.Queue[int] = asyncio.Queue()

        async def on_message(message: DeliveredMessage) -> None:
            self._note(message)
            assert message.delivery.delivery_tag is not None
            tags.put_nowait(message.delivery.delivery_tag)

        begun = await asyncio.wait_for(channel.basic_consume(self.queue, on_message), ANSWER_S)
        while not self.stopping.is_set():
            if channel.is_closed:
                raise ConnectionError
            if begun.consumer_tag not in channel.consumers:
                self.ledger.events["cancelled"] += 1
                return
            await asyncio.sleep(self._dice.uniform(0, 0.05))
            newest = 0
            while not tags.empty():
                newest = tags.get_nowait()
            if newest:
                await channel.basic_ack(newest, multiple=True)

    def _note(self, message: DeliveredMessage) -> None:
        producer, _, number = message.body.decode().rpartition(" ")
        found = (producer, int(number))
        self.ledger.seen.add(found)
        self.ledger.arrived[self.queue].append((found, bool(message.delivery.redelivered)))


class Chaos:
    """What happens to the nodes, by dice."""

    def __init__(self, cluster: Cluster, dice: random.Random, say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._dice = dice
        self._say = say

    def run(self, seconds: float) -> None:
        """One thing after the other, healed in between."""
        until_s = time.monotonic() + seconds
        acts = [self._kill, self._kill, self._kill, self._pause, self._isolate, self._kill_two]
        while time.monotonic() < until_s:
            self._dice.choice(acts)()
            time.sleep(self._dice.uniform(0.2, 3.0))

    def _node(self) -> int:
        return self._dice.choice(self._cluster.numbers)

    def _rest(self, least_s: float, most_s: float) -> None:
        time.sleep(self._dice.uniform(least_s, most_s))

    def _kill(self) -> None:
        node = self._node()
        self._say(f"kill {node}")
        self._cluster.kill(node)
        self._rest(0.0, 2.5)
        self._cluster.start(node)
        self._say(f"{node} is back")

    def _kill_two(self) -> None:
        nodes = self._dice.sample(self._cluster.numbers, 2)
        self._say(f"kill {nodes}")
        for node in nodes:
            self._cluster.kill(node)
            self._rest(0.0, 0.5)
        self._rest(0.0, 2.0)
        self._cluster.start_all()
        self._say(f"{nodes} are back")

    def _pause(self) -> None:
        node, seconds = self._node(), self._dice.uniform(0.5, 5.0)
        self._say(f"pause {node} for {seconds:.1f} s")
        self._cluster.pause(node)
        time.sleep(seconds)
        self._cluster.resume(node)

    def _isolate(self) -> None:
        node, seconds = self._node(), self._dice.uniform(0.5, 5.0)
        self._say(f"isolate {node} for {seconds:.1f} s")
        self._cluster.isolate(node)
        time.sleep(seconds)
        self._cluster.heal()


class Run:
    """A seeded run on a cluster that is up."""

    def __init__(self, cluster: Cluster, seed: int, say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._dice = random.Random(seed)
        self._say = say
        self.ledger = Ledger()
        #: Queues with one consumer, which must keep the order.
        self._ordered = {f"ordered.{home}" for home in NODES}
        self._shared = {f"shared.{home}" for home in NODES}

    async def run(self, seconds: float) -> list[str]:
        """The faults that were found."""
        await self._declare()
        producers = [
            Producer(self._cluster, node, self.ledger, queue)
            for node in NODES
            for queue in sorted(self._ordered | self._shared)
        ]
        consumers = [self._consumer(self._dice.choice(NODES), q) for q in sorted(self._ordered)]
        consumers += [self._consumer(node, q) for q in sorted(self._shared) for node in NODES[:2]]
        tasks = [asyncio.create_task(client.run()) for client in [*producers, *consumers]]
        try:
            await asyncio.to_thread(Chaos(self._cluster, self._dice, self._say).run, seconds)
            self._say("all is healed")
            await asyncio.to_thread(self._cluster.wait_until_ready)
            for producer in producers:
                producer.stopping.set()
            count = len(producers)
            await self._all_over(tasks[:count], "producers")
            stuck = await self._drained()
            for consumer in consumers:
                consumer.stopping.set()
            await self._all_over(tasks[count:], "consumers")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return stuck + self.ledger.faults(self._ordered)

    def _consumer(self, node: int, queue: str) -> Consumer:
        return Consumer(self._cluster, node, self.ledger, queue, random.Random(self._dice.random()))

    async def _declare(self) -> None:
        for home in NODES:
            connection = await aiormq.connect(self._cluster.url(home))
            channel = await connection.channel()
            for sort in ("ordered", "shared"):
                await channel.queue_declare(f"{sort}.{home}", durable=True)
            await connection.close()

    async def _all_over(self, tasks: list[asyncio.Task[None]], who: str) -> None:
        done, pending = await asyncio.wait(tasks, timeout=DRAIN_S)
        for task in done:
            task.result()
        if pending:
            raise AssertionError(f"{len(pending)} {who} cannot finish: {self.ledger.events}")

    async def _drained(self) -> list[str]:
        """Until the queues are empty; what is left in them when they do not get so."""
        until_s = time.monotonic() + DRAIN_S
        connection = await aiormq.connect(self._cluster.url(1))
        channel = await connection.channel()
        while True:
            left = {}
            for queue in sorted(self._ordered | self._shared):
                declared = await channel.queue_declare(queue, passive=True)
                if declared.message_count:
                    left[queue] = declared.message_count
            missing = len(self.ledger.confirmed - self.ledger.seen)
            if not left and not missing:
                break
            if time.monotonic() > until_s:
                return [f"not drained: {left}, {missing} confirmed messages have not come"]
            await asyncio.sleep(0.2)
        await asyncio.sleep(0.5)
        await connection.close()
        return []


def go(cluster: Cluster, seconds: float, seed: int, say: Callable[[str], None]) -> Ledger:
    """A run; raises AssertionError with all that is wrong."""
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)
    run = Run(cluster, seed, say)
    work: Awaitable[list[str]] = run.run(seconds)
    faults = asyncio.run(work)  # type: ignore[arg-type]
    ledger = run.ledger
    say(
        f"{len(ledger.sent)} sent, {len(ledger.confirmed)} confirmed, {len(ledger.seen)} came, "
        f"{len(ledger.repeated)} published again; {dict(ledger.events)}"
    )
    if faults:
        raise AssertionError(f"seed {seed}:\n" + "\n".join(faults[:20]))
    return ledger


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--directory", help="where the nodes' files are kept; else they are not")
    options = parser.parse_args(arguments)
    began_s = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began_s:7.2f}  {text}", flush=True)

    say(f"seed {options.seed}")
    with Cluster(3, directory=options.directory) as cluster:
        go(cluster, options.seconds, options.seed, say)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
