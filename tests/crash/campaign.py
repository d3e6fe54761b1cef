"""A run: lives of the broker under load, each ended by force or by request, then a drain."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import uvloop
from async_client import AsyncClient, LostError, RefusedError
from broker_process import BrokerProcess, Kind, StartError
from checker import Verdict, check
from history import History
from publishers import PLANS, Publisher
from readers import STEADY, Habits, Reader, draw_habits
from topology import (
    DEAD_LETTERS,
    QUEUES,
    SINGLE_READER,
    Changes,
    depths,
    examine,
)

#: connection-forced, which a broker that is asked to end tells its clients.
CONNECTION_FORCED = 320
DRAIN_TIMEOUT_S = 60.0
NOTICE_TIMEOUT_S = 30.0
#: Readers beside the first of a queue.
MORE_READERS = {"plain.1": 2, "fan.1": 1, "work": 1, "dead": 1}
READ_BY_GET = {"fan.2"}


@dataclass(frozen=True, slots=True)
class Moment:
    """When a life ends, and what goes on then."""

    name: str
    share: float
    #: Seconds after the broker serves; or, while it starts, shares of the time a start takes.
    earliest: float
    latest: float
    publishing: bool = True
    reading: bool = True


STARTING = Moment("while starting", 0.12, 0.1, 1.0, publishing=False, reading=False)
MOMENTS = (
    Moment("under load", 0.46, 0.15, 1.1),
    Moment("right after the start", 0.12, 0.0, 0.08),
    STARTING,
    Moment("while draining", 0.15, 0.05, 0.5, publishing=False),
    Moment("while filling", 0.15, 0.1, 0.6, reading=False),
)


@dataclass
class Options:
    """What a run does."""

    ends: int
    seed: int
    base: Path
    #: Ask the broker to end instead of killing it.
    orderly: bool = False
    #: Lines for the broker's configuration.
    settings: Sequence[str] = ()
    kind: Kind = Kind.AS_SERVED
    say: Callable[[str], None] = print


@dataclass
class Outcome:
    """What a run has shown."""

    options: Options
    history: History
    verdict: Verdict
    ends: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


def run_campaign(campaign: Campaign) -> Outcome:
    """Run it in a loop of its own."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(campaign.run())


class Campaign:
    """One run."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.broker = BrokerProcess(options.base, options.settings, options.kind)
        self.history = History(
            single_reader=SINGLE_READER, dead_letters=DEAD_LETTERS, orderly=options.orderly
        )
        self.ends: Counter[str] = Counter()
        self._rng = random.Random(options.seed)
        self._changes = Changes(self.history, self._fork())
        self._clients: set[AsyncClient] = set()
        self._stopping = False

    def _fork(self) -> random.Random:
        return random.Random(self._rng.getrandbits(64))

    async def run(self) -> Outcome:
        """All lives, the drain, the verdict."""
        begun = time.monotonic()
        try:
            for number in range(1, self.options.ends + 1):
                moment = self._draw(number)
                await self._live(moment)
                self.ends[moment.name] += 1
                if number % 10 == 0 or number == self.options.ends:
                    self._progress(number, begun)
            await self._drain()
            await self._look_again()
        finally:
            self.broker.end()
        outcome = Outcome(self.options, self.history, check(self.history), self.ends)
        outcome.seconds = time.monotonic() - begun
        return outcome

    def _draw(self, number: int) -> Moment:
        choices = [m for m in MOMENTS if not (self.options.orderly and m is STARTING)]
        if number == 1:
            return choices[0]  # Something must be there before it can be lost.
        return self._rng.choices(choices, [moment.share for moment in choices])[0]

    def _progress(self, number: int, begun: float) -> None:
        history = self.history
        self.options.say(
            f"{number:4d} ends in {time.monotonic() - begun:5.1f} s,"
            f" {len(history.messages):7d} published, {len(history.deliveries):7d} delivered,"
            f" backlog {history.backlog:6d}, start {self.broker.start_s:.2f} s"
        )

    # -- one life ----------------------------------------------------------------------------------

    async def _live(self, moment: Moment) -> None:
        wait = self._rng.uniform(moment.earliest, moment.latest)
        if moment is STARTING:
            await self.broker.kill_while_starting(wait * self.broker.start_s)
            return
        await self.broker.start()
        self.history.life += 1
        self._stopping = False
        publishers = self._publishers() if moment.publishing else []
        readers = self._readers() if moment.reading else []
        load = asyncio.create_task(self._load(publishers, readers))
        await asyncio.sleep(wait)
        if not self.broker.runs:
            self.history.surprises.append(f"the broker ended by itself in life {self.history.life}")
        if self.options.orderly:
            await self._end_orderly(readers)
        else:
            self.broker.kill()
            for client in self._clients:
                client.mute()
        # A client that never notices the end is a fault of the test; do not wait for it for ever.
        await asyncio.wait_for(load, NOTICE_TIMEOUT_S)

    async def _end_orderly(self, readers: list[Reader]) -> None:
        """Readers leave first: then they have seen all that was delivered, and can tell."""
        for reader in readers:
            reader.stopping = True
        deadline = time.monotonic() + 10
        while any(reader.running for reader in readers) and time.monotonic() < deadline:
            await asyncio.sleep(0.005)
        self._stopping = True
        code = await self.broker.stop()
        if code:
            self.history.surprises.append(f"exit code {code} after a request to end")

    def _publishers(self) -> list[Publisher]:
        return [Publisher(self.history, plan, self._fork()) for plan in PLANS]

    def _readers(self, habits: Habits | None = None) -> list[Reader]:
        readers = []
        for queue in QUEUES:
            for number in range(1 + MORE_READERS.get(queue, 0)):
                rng = self._fork()
                if habits is None and rng.random() < 0.15:
                    continue  # Its queue fills.
                drawn = habits or draw_habits(
                    rng,
                    may_leave=queue not in SINGLE_READER,
                    may_reject=queue in DEAD_LETTERS,
                    by_get=queue in READ_BY_GET or (queue == "plain.1" and number == 2),
                )
                readers.append(Reader(self.history, f"{queue}#{number}", queue, drawn, rng))
        return readers

    async def _load(self, publishers: list[Publisher], readers: list[Reader]) -> None:
        """Every client on a connection of its own, until the last has seen its last octet."""
        for reader in readers:
            reader.running = True
        if await self._with_client(lambda client: examine(client, self.history), stays=False):
            actors = [publisher.run for publisher in publishers]
            actors += [reader.run for reader in readers]
            await asyncio.gather(*map(self._with_client, (*actors, self._changes.run)))
        for reader in readers:
            reader.running = False

    async def _with_client(
        self, act: Callable[[AsyncClient], Awaitable[None]], stays: bool = True
    ) -> bool:
        """Act on a new connection; whether it was there to the end."""
        try:
            client = await AsyncClient.connect(self.broker.host, self.broker.port)
        except LostError:
            return False
        self._clients.add(client)
        try:
            await act(client)
            if not stays:
                await client.close()
                return True
        except LostError:
            pass
        except RefusedError as error:
            if not (self._stopping and error.code == CONNECTION_FORCED):
                self.history.surprises.append(f"refused in life {self.history.life}: {error}")
                client.drop()
        finally:
            await client.lost.wait()
            self._clients.discard(client)
        return False

    # -- the end -----------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Take all that is left, with readers that acknowledge everything."""
        await self.broker.start()
        self.history.life += 1
        self._stopping = False
        readers = self._readers(STEADY)
        load = asyncio.create_task(self._load([], readers))
        await self._with_client(lambda client: self._until_empty(client, readers), stays=False)
        for reader in readers:
            reader.stopping = True
        while any(reader.running for reader in readers):
            await asyncio.sleep(0.005)
            if not self.broker.runs:
                raise StartError(f"ended by itself\n{self.broker.last_words()}")
        self._stopping = True
        code = await self.broker.stop()
        await load
        if code:
            self.history.surprises.append(f"exit code {code} after the drain")

    async def _until_empty(self, client: AsyncClient, readers: list[Reader]) -> None:
        seen, quiet = -1, 0
        deadline = time.monotonic() + DRAIN_TIMEOUT_S
        while quiet < 3:
            await asyncio.sleep(0.05)
            left = await depths(client)
            delivered = len(self.history.deliveries)
            still = (
                sum(left.values()) == 0
                and delivered == seen
                and all(reader.idle for reader in readers)
            )
            quiet = quiet + 1 if still else 0
            if delivered != seen:
                deadline = time.monotonic() + DRAIN_TIMEOUT_S
            seen = delivered
            if time.monotonic() > deadline:
                break
        self.history.left_over = {f"{queue}": count for queue, count in left.items()}

    async def _look_again(self) -> None:
        """After the drain and an orderly end the queues are empty, and the rest is as it was."""
        await self.broker.start()
        self.history.life += 1
        left: dict[str, int] = {}

        async def look(client: AsyncClient) -> None:
            left.update(await depths(client))
            await self._changes.look(client)

        await self._with_client(look, stays=False)
        for queue, count in left.items():
            self.history.left_over[f"{queue} after one more restart"] = count
        code = await self.broker.stop()
        if code:
            self.history.surprises.append(f"exit code {code} at the very end")
