"""A cluster under load whose nodes are killed, suspended and cut off at random, also one way only.

    python tests/cluster/faults.py --seconds 180 --seed 7
    python tests/cluster/faults.py --seconds 180 --seed 7 --mirrored

Producers with confirms on all nodes publish to durable queues on all nodes, and publish again what
was refused or not answered; consumers take and acknowledge. In the end all is healed and drained:
nothing that was confirmed may be missing, nothing may come that was never sent, what comes twice
must say so, and a queue with one consumer keeps the order of every producer. Mirrored queues must
be synchronised everywhere in the end, and whichever replica is master has the same messages.
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
from typing import Any, TypeVar

import aiormq
from aiormq.abc import DeliveredMessage
from rings import await_ring, make_master, mirror

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
#: A queue of mirrored runs that nobody consumes from before the end, and what it gets a second.
KEPT, KEPT_RATE = "ha.kept", 4

Id = tuple[str, int]
Result = TypeVar("Result")


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

    def __init__(
        self, cluster: Cluster, node: int, ledger: Ledger, queue: str, rate: float = RATE
    ) -> None:
        super().__init__(cluster, node, ledger)
        self.queue = queue
        self._rate = rate
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
                await asyncio.sleep(1 / self._rate)
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
        found = id_of(message.body)
        self.ledger.seen.add(found)
        self.ledger.arrived[self.queue].append((found, bool(message.delivery.redelivered)))


def id_of(body: bytes) -> Id:
    """The producer of a message, and its number there."""
    producer, _, number = body.decode().rpartition(" ")
    return producer, int(number)


class Chaos:
    """What happens to the nodes, by dice."""

    def __init__(
        self,
        cluster: Cluster,
        dice: random.Random,
        say: Callable[[str], None],
        mirrored: bool = False,
    ) -> None:
        self._cluster = cluster
        self._dice = dice
        self._say = say
        self._acts = [self._kill] * 3 + [self._pause, self._isolate, self._kill_two]
        self._acts += [self._break_network, self._one_way, self._resets]
        if mirrored:
            self._acts += [self._kill_all, self._restart]

    def run(self, seconds: float) -> None:
        """One thing after the other, healed in between."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self._dice.choice(self._acts)()
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

    def _kill_all(self) -> None:
        self._say("kill all")
        for node in self._dice.sample(self._cluster.numbers, len(self._cluster.numbers)):
            self._cluster.kill(node)
        self._cluster.start_all()
        self._say("all are back")

    def _restart(self) -> None:
        node = self._node()
        self._say(f"stop {node}")
        self._cluster.stop(node)
        self._cluster.start(node)
        self._say(f"{node} is back")

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

    def _break_network(self) -> None:
        """Between two nodes, or around one."""
        a, b = self._dice.sample(self._cluster.numbers, 2)
        seconds = self._dice.uniform(0.5, 5.0)
        links = self._cluster.links
        if self._dice.random() < 0.5:
            self._say(f"cut {a} and {b} for {seconds:.1f} s")
            links.cut(a, b)
        else:
            self._say(f"cut {a} off for {seconds:.1f} s")
            links.isolate(a)
        time.sleep(seconds)
        links.heal()

    def _one_way(self) -> None:
        """What a node says is not heard, or it hears nothing."""
        node, seconds = self._node(), self._dice.uniform(0.5, 5.0)
        is_mute = self._dice.random() < 0.5
        self._say(f"{node} is {'not heard' if is_mute else 'deaf'} for {seconds:.1f} s")
        for other in self._cluster.numbers:
            if other != node:
                self._cluster.links.cut_one_way(*((node, other) if is_mute else (other, node)))
        time.sleep(seconds)
        self._cluster.links.heal()

    def _resets(self) -> None:
        a, b = self._dice.sample(self._cluster.numbers, 2)
        times = self._dice.randrange(1, 6)
        self._say(f"reset the links of {a} and {b}, {times} times")
        for _ in range(times):
            self._cluster.links.reset(a, b)
            self._rest(0.05, 0.5)


class Run:
    """A seeded run on a cluster that is up."""

    def __init__(
        self, cluster: Cluster, seed: int, say: Callable[[str], None], mirrored: bool = False
    ) -> None:
        self._cluster = cluster
        self._dice = random.Random(seed)
        self._say = say
        self._mirrored = mirrored
        self.ledger = Ledger()
        prefix = "ha." if mirrored else ""
        #: Queues with one consumer, which must keep the order.
        self._ordered = {f"{prefix}ordered.{home}" for home in NODES}
        self._shared = {f"{prefix}shared.{home}" for home in NODES}

    async def run(self, seconds: float) -> list[str]:
        """The faults that were found."""
        await self._declare()
        producers = [
            Producer(self._cluster, node, self.ledger, queue)
            for node in NODES
            for queue in sorted(self._ordered | self._shared)
        ]
        if self._mirrored:
            producers += [
                Producer(self._cluster, node, self.ledger, KEPT, KEPT_RATE) for node in NODES
            ]
        consumers = [self._consumer(self._dice.choice(NODES), q) for q in sorted(self._ordered)]
        consumers += [self._consumer(node, q) for q in sorted(self._shared) for node in NODES[:2]]
        tasks = [asyncio.create_task(client.run()) for client in [*producers, *consumers]]
        try:
            chaos = Chaos(self._cluster, self._dice, self._say, self._mirrored)
            await asyncio.to_thread(chaos.run, seconds)
            self._say("all is healed")
            await asyncio.to_thread(self._cluster.wait_until_ready)
            for producer in producers:
                producer.stopping.set()
            count = len(producers)
            await self._all_over(tasks[:count], "producers")
            stuck = await self._kept_everywhere() if self._mirrored else []
            stuck += await self._drained()
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
            for queue in sorted(self._ordered | self._shared):
                if queue.endswith(str(home)):
                    await channel.queue_declare(queue, durable=True)
            if self._mirrored and home == NODES[0]:
                await channel.queue_declare(KEPT, durable=True)
            await connection.close()

    async def _kept_everywhere(self) -> list[str]:
        """All replicas are in sync; each as master in turn has the same messages of one queue."""
        for queue in sorted([*self._ordered, *self._shared, KEPT]):
            await asyncio.to_thread(await_ring, self._cluster, queue, synchronised=NODES)
        contents: dict[int, list[Id]] = {}
        for node in NODES:
            await asyncio.to_thread(make_master, self._cluster, KEPT, node)
            contents[node] = await self._look_into(KEPT)
        found = []
        first, *others = contents
        for other in others:
            if contents[first] != contents[other]:
                differing = sorted(set(contents[first]) ^ set(contents[other]))[:5]
                sizes = {node: len(content) for node, content in contents.items()}
                found.append(f"{KEPT} differs between {first} and {other}: {differing}, {sizes}")
        for message in contents[first]:
            self.ledger.seen.add(message)
            self.ledger.arrived[KEPT].append((message, False))
        self._say(f"{len(contents[first])} messages of {KEPT} on every node")
        await self._with_channel(lambda channel: channel.queue_purge(KEPT))
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
                await _end(connection)
            await asyncio.sleep(AGAIN_S)

    async def _all_over(self, tasks: list[asyncio.Task[None]], who: str) -> None:
        done, pending = await asyncio.wait(tasks, timeout=DRAIN_S)
        for task in done:
            task.result()
        if pending:
            raise AssertionError(f"{len(pending)} {who} cannot finish: {self.ledger.events}")

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
        for queue in sorted(self._ordered | self._shared):
            declared = await channel.queue_declare(queue, passive=True)
            if declared.message_count:
                left[queue] = declared.message_count
        return left


def go(
    cluster: Cluster,
    seconds: float,
    seed: int,
    say: Callable[[str], None],
    mirrored: bool = False,
) -> Ledger:
    """A run; raises AssertionError with all that is wrong."""
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)
    if mirrored:
        mirror(cluster, r"^ha\.", {"ha-mode": "all", "ha-sync-mode": "automatic"})
    run = Run(cluster, seed, say, mirrored)
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
    parser.add_argument("--mirrored", action="store_true", help="with mirrored queues")
    parser.add_argument("--directory", help="where the nodes' files are kept; else they are not")
    options = parser.parse_args(arguments)
    began_s = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began_s:7.2f}  {text}", flush=True)

    say(f"seed {options.seed}")
    with Cluster(3, directory=options.directory, proxied_links=True) as cluster:
        go(cluster, options.seconds, options.seed, say, options.mirrored)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
