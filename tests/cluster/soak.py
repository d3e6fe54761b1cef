"""A cluster of mirrored queues at a steady load for a long time, a node restarted now and then.

    python tests/cluster/soak.py --minutes 30 --every-s 120

The load is a share (`--load 0.7`) of what the same clients got through before, without pauses, or
`--rate` messages a second. In the end nothing that was confirmed may be missing, and memory, disk
and latency must be as flat as the limits below say. `--document` writes the figures to
docs/soak.md.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiormq
from aiormq.abc import DeliveredMessage
from fault_clients import ANSWER_S, Client
from fault_ledger import Ledger
from soak_figures import Figures, Numbers, Sample, document

from warren.testing import Cluster

NODES = (1, 2, 3)
#: Every producer has a queue of its own, which one consumer takes from.
STREAMS_OF_A_NODE = 2
BODY_BYTES = 200
#: Unanswered publishes of a producer; more wait for their answers.
WINDOW = 200
PREFETCH = 300
#: How long the load is tried without pauses to find out what 100 % is.
TRIAL_S = 15.0
SAMPLE_S = 5.0
DRAIN_S = 120.0
POLICY = '{"ha-mode":"all","ha-sync-mode":"automatic"}'
PAGE = Path(__file__).parents[2] / "docs" / "soak.md"
Say = Callable[[str], None]


@dataclass
class Stream:
    """One queue: what was sent to it and what came of it."""

    name: str
    sent: int = 0
    confirmed: Numbers = field(default_factory=Numbers)
    seen: Numbers = field(default_factory=Numbers)
    #: Sent more than once, since it was refused or its answer never came.
    repeated: set[int] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    def arrived(self, number: int, redelivered: bool) -> None:
        if not self.seen.add(number) and not redelivered and number not in self.repeated:
            self.faults.append(f"{self.name}: {number} came twice without a word")
        if number > self.sent:
            self.faults.append(f"{self.name}: {number} was never sent")

    def verdict(self) -> list[str]:
        """Everything that must not have happened."""
        missing = self.confirmed.missing_in(self.seen)
        lost = [f"{self.name}: {len(missing)} lost, as {missing[:5]}"] if missing else []
        return self.faults + lost


class SteadyProducer(Client):
    """Publishes at a pace, as fast as answers come if there is none."""

    def __init__(self, url: str, ledger: Ledger, stream: Stream, figures: Figures) -> None:
        self.url = url
        self.ledger = ledger
        self.stopping = asyncio.Event()
        self.stream = stream
        self.rate: float | None = None
        self._figures = figures
        self._unanswered: dict[int, float] = {}
        self._room = asyncio.Semaphore(WINDOW)

    def is_done(self) -> bool:
        return self.stopping.is_set() and not self._unanswered

    async def work(self, channel: Any) -> None:
        await channel.confirm_delivery()
        tasks: set[asyncio.Task[None]] = set()
        again = sorted(self._unanswered)
        self.stream.repeated.update(again)
        self._room = asyncio.Semaphore(WINDOW)
        due_s = time.monotonic()
        try:
            while again or not self.stopping.is_set():
                if channel.is_closed:
                    raise ConnectionError
                await asyncio.wait_for(self._room.acquire(), ANSWER_S)
                number = again.pop(0) if again else self._new_number(due_s)
                task = asyncio.create_task(self._publish(channel, number))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                due_s = await self._until_next(due_s)
            if tasks:
                await asyncio.wait(tasks, timeout=ANSWER_S)
        finally:
            for task in list(tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _until_next(self, due_s: float) -> float:
        if self.rate is None:
            await asyncio.sleep(0)
            return time.monotonic()
        due_s += 1 / self.rate
        # After an outage it goes on at its pace; what was not sent meanwhile is not made up for.
        due_s = max(due_s, time.monotonic() - 1)
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        return due_s

    def _new_number(self, due_s: float) -> int:
        self.stream.sent += 1
        self._unanswered[self.stream.sent] = due_s
        return self.stream.sent

    async def _publish(self, channel: Any, number: int) -> None:
        body = str(number).encode().ljust(BODY_BYTES)
        try:
            while True:
                try:
                    await channel.basic_publish(
                        body,
                        routing_key=self.stream.name,
                        properties=aiormq.spec.Basic.Properties(delivery_mode=2),
                        mandatory=True,
                    )
                    break
                except aiormq.exceptions.DeliveryError:
                    self.ledger.events["refused"] += 1
                    self.stream.repeated.add(number)
                    await asyncio.sleep(0.1)
        except Exception:  # the connection is lost, which the producer sees by its channel
            return
        finally:
            self._room.release()
        self.stream.confirmed.add(number)
        self._figures.confirmed(time.monotonic() - self._unanswered.pop(number))


class SteadyConsumer(Client):
    """Takes from one queue and acknowledges."""

    def __init__(self, url: str, ledger: Ledger, stream: Stream) -> None:
        self.url = url
        self.ledger = ledger
        self.stopping = asyncio.Event()
        self.stream = stream

    def is_done(self) -> bool:
        return self.stopping.is_set()

    async def work(self, channel: Any) -> None:
        await channel.basic_qos(prefetch_count=PREFETCH)

        async def on_message(message: DeliveredMessage) -> None:
            self.stream.arrived(int(message.body), bool(message.delivery.redelivered))
            assert message.delivery.delivery_tag is not None
            await channel.basic_ack(message.delivery.delivery_tag)

        begun = await asyncio.wait_for(
            channel.basic_consume(self.stream.name, on_message), ANSWER_S
        )
        while not self.stopping.is_set():
            await asyncio.sleep(0.1)
            if channel.is_closed:
                raise ConnectionError
            if begun.consumer_tag not in channel.consumers:
                return


class Soak:
    """One run on a cluster that is up."""

    def __init__(self, cluster: Cluster, say: Say) -> None:
        self._cluster = cluster
        self._say = say
        self.ledger = Ledger()
        self.figures = Figures()
        self.streams = [
            Stream(f"soak.{node}.{i}") for node in NODES for i in range(STREAMS_OF_A_NODE)
        ]
        self.producers: list[SteadyProducer] = []
        self._restarting = 0

    async def run(self, seconds: float, every_s: float, load: float, rate: float | None) -> None:
        """Raises AssertionError when it cannot be finished."""
        await self._declare()
        tasks = self._begin()
        sampling = asyncio.create_task(self._sample())
        try:
            self._set_rate(await self._trial() * load if rate is None else rate)
            self.figures.begin()
            await self._restart_now_and_then(seconds, every_s)
            await self._finish(tasks)
        finally:
            for task in (*tasks, sampling):
                task.cancel()
            await asyncio.gather(*tasks, sampling, return_exceptions=True)

    async def _declare(self) -> None:
        self._cluster.ctl(1, "set_policy", "soak", "^soak", POLICY, "--apply-to", "queues")
        for stream in self.streams:
            home = int(stream.name.split(".")[1])
            connection = await aiormq.connect(self._cluster.url(home))
            await (await connection.channel()).queue_declare(stream.name, durable=True)
            await connection.close()

    def _begin(self) -> list[asyncio.Task[None]]:
        """Producers are on the node after the queue's, consumers on the one after that."""
        clients: list[Client] = []
        for stream in self.streams:
            home = int(stream.name.split(".")[1])
            urls = [self._cluster.url((home + shift - 1) % 3 + 1) for shift in (1, 2)]
            producer = SteadyProducer(urls[0], self.ledger, stream, self.figures)
            self.producers.append(producer)
            clients += [producer, SteadyConsumer(urls[1], self.ledger, stream)]
        self.clients = clients
        return [asyncio.create_task(client.run()) for client in clients]

    async def _trial(self) -> float:
        """Messages a second without pauses."""
        await asyncio.sleep(2)
        before = sum(stream.seen.count for stream in self.streams)
        await asyncio.sleep(TRIAL_S)
        rate = (sum(stream.seen.count for stream in self.streams) - before) / TRIAL_S
        self._say(f"without pauses: {rate:.0f} msg/s")
        return rate

    def _set_rate(self, rate: float) -> None:
        assert rate > 0, "nothing goes through"
        self.figures.rate = rate
        self._say(f"from now on {rate:.0f} msg/s")
        for producer in self.producers:
            producer.rate = rate / len(self.producers)

    async def _restart_now_and_then(self, seconds: float, every_s: float) -> None:
        until_s = time.monotonic() + seconds
        node = 0
        while (left_s := until_s - time.monotonic()) > 0:
            await asyncio.sleep(min(every_s, left_s))
            if until_s - time.monotonic() <= 0:
                return
            node = node % 3 + 1
            self._say(f"restart {node}: {self.figures.last()}")
            self._restarting = node
            await asyncio.to_thread(self._cluster.restart, node)
            await asyncio.to_thread(self._cluster.wait_until_ready)
            self._restarting = 0

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_S)
            running = [n for n in NODES if n != self._restarting]
            sample = await asyncio.to_thread(Sample.of, self._cluster, running)
            self.figures.add(sample)

    async def _finish(self, tasks: list[asyncio.Task[None]]) -> None:
        for producer in self.producers:
            producer.stopping.set()
        producing = tasks[::2]
        _, pending = await asyncio.wait(producing, timeout=DRAIN_S)
        assert not pending, f"{len(pending)} producers cannot finish: {self.ledger.events}"
        until_s = time.monotonic() + DRAIN_S
        while any(stream.confirmed.missing_in(stream.seen) for stream in self.streams):
            if time.monotonic() > until_s:
                break
            await asyncio.sleep(0.2)
        for client in self.clients:
            client.stopping.set()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--every-s", type=float, default=120, help="between two restarts (120)")
    parser.add_argument("--load", type=float, default=0.7, help="share of what goes through (0.7)")
    parser.add_argument("--rate", type=float, help="messages a second, instead")
    parser.add_argument("--document", action="store_true", help=f"write {PAGE.name}")
    options = parser.parse_args(arguments)
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)
    began_s = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began_s:7.1f}  {text}", flush=True)

    with Cluster(3) as cluster:
        soak = Soak(cluster, say)
        seconds = options.minutes * 60
        asyncio.run(soak.run(seconds, options.every_s, options.load, options.rate))
    faults = [fault for stream in soak.streams for fault in stream.verdict()]
    table = soak.figures.table()
    say(f"{dict(soak.ledger.events)}\n\n{table}\n")
    confirmed = sum(stream.confirmed.count for stream in soak.streams)
    say(f"{confirmed} confirmed; {len(faults)} faults")
    faults += soak.figures.verdict()
    if options.document:
        PAGE.write_text(document(soak.figures, options.minutes, options.every_s, confirmed, faults))
    for fault in faults[:20]:
        print(f"NOT SO: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
