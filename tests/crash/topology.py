"""The queues of a crash test: those that stay, and those that come and go during the run."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from async_client import AsyncChannel, AsyncClient, Confirms, Content, RefusedError
from history import History

FAN, CHANGES = "crash.fan", "crash.changes"
FANNED = ("fan.0", "fan.1", "fan.2")
#: Queues that stay, with their arguments.
QUEUES: dict[str, dict[str, Any]] = {
    "plain.0": {},
    "plain.1": {},
    "plain.2": {},
    **{name: {} for name in FANNED},
    "priority": {"x-max-priority": 5},
    "work": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
    "dead": {},
}
EXCHANGES = {FAN: "fanout", CHANGES: "topic"}
DEAD_LETTERS = {"work": "dead"}
#: One reader each, which stays for a whole life.
SINGLE_READER = frozenset(("plain.0", "plain.2", "fan.0", "priority"))

#: What comes and goes.
CHANGING_QUEUES = tuple(f"changing.{number}" for number in range(5))
CHANGING_EXCHANGES = tuple(f"crash.changing.{number}" for number in range(2))
PASSING = "passing"


async def _found(client: AsyncClient, name: str, **values: Any) -> dict[str, Any] | None:
    """A passive declare on a channel of its own; None for what is not there."""
    channel = await client.channel()
    try:
        found: dict[str, Any] = await channel.call(name, passive=True, **values)
    except RefusedError as error:
        if error.code != 404:
            raise
        return None
    await channel.call("channel.close", reply_code=200)
    return found


async def depths(client: AsyncClient) -> dict[str, int]:
    """Ready messages of the queues that stay; of those that are not there, none."""
    names = list(QUEUES)
    found = await asyncio.gather(
        *(_found(client, "queue.declare", queue=name) for name in names), return_exceptions=True
    )
    counts = {}
    for name, answer in zip(names, found, strict=True):
        if isinstance(answer, BaseException):
            raise answer
        if answer is not None:
            counts[name] = int(answer["message_count"])
    return counts


async def examine(client: AsyncClient, history: History) -> None:
    """Look at what must stay; declare what is missing, so that the run can go on."""
    channel = await client.channel()
    present = await depths(client)
    history.backlog = sum(present.values())
    first = history.life == 1
    for exchange, kind in EXCHANGES.items():
        thing = f"exchange {exchange}"
        if not first and await _found(client, "exchange.declare", exchange=exchange) is not None:
            history.sight("seen", thing)
            continue
        if not first:
            history.sight("missing", thing)
        history.sight("create", thing)
        await channel.call("exchange.declare", exchange=exchange, type=kind, durable=True)
        history.sight("created", thing)
    for queue, arguments in QUEUES.items():
        thing = f"queue {queue}"
        if queue in present:
            history.sight("seen", thing)
        else:
            if not first:
                history.sight("missing", thing)
            history.sight("create", thing)
        # A queue that came back with other arguments refuses this.
        await channel.call("queue.declare", queue=queue, durable=True, arguments=arguments)
        if queue not in present:
            history.sight("created", thing)
        if queue in FANNED:
            await _bind_to_fan(channel, queue, history, again=queue not in present)


async def _bind_to_fan(channel: AsyncChannel, queue: str, history: History, again: bool) -> None:
    """Not twice, once it was answered: a binding that the broker loses must show."""
    thing = f"binding {queue}"
    answered = any(sight.thing == thing and sight.step == "created" for sight in history.sights)
    if answered and not again:
        return
    history.sight("create", thing)
    await channel.call("queue.bind", queue=queue, exchange=FAN)
    history.sight("created", thing)


class Changes:
    """Declares and deletes during the run, and looks after every restart what is there."""

    def __init__(self, history: History, rng: random.Random) -> None:
        self._history = history
        self._rng = rng
        #: What the next step is chosen by; the checker has its own opinion.
        self._there: set[str] = set()
        self._bound: set[str] = set()
        self._returned = False

    async def run(self, client: AsyncClient) -> None:
        """Look, then change one thing after another until the connection ends."""
        await self.look(client)
        channel = await self._publishing_channel(client)
        await self._declare(channel, PASSING, durable=False)
        while True:
            await self._change(channel)
            await asyncio.sleep(self._rng.uniform(0.002, 0.03))
            await client.writable()

    async def look(self, client: AsyncClient) -> None:
        """Find out what is there."""
        if f"queue {PASSING}" in self._there:
            self._history.sight("restart", f"queue {PASSING}")
        for queue in (*CHANGING_QUEUES, PASSING):
            answer = await _found(client, "queue.declare", queue=queue)
            self._note(f"queue {queue}", answer)
            if answer is None:
                self._bound.discard(queue)
        for exchange in CHANGING_EXCHANGES:
            answer = await _found(client, "exchange.declare", exchange=exchange)
            self._note(f"exchange {exchange}", answer)
        channel = await self._publishing_channel(client)
        for queue in sorted(self._bound):
            await self._probe(channel, queue)

    def _note(self, thing: str, answer: dict[str, Any] | None) -> None:
        if answer is None:
            self._history.sight("missing", thing)
            self._there.discard(thing)
        else:
            self._history.sight("seen", thing, answer.get("message_count", 0))
            self._there.add(thing)

    async def _publishing_channel(self, client: AsyncClient) -> AsyncChannel:
        channel = await client.channel()
        self._confirms = Confirms(channel, lambda _: None)
        self._returned = False
        channel.on_message = self._take_back
        await channel.call("confirm.select")
        return channel

    def _take_back(self, _: Content) -> None:
        self._returned = True

    async def _change(self, channel: AsyncChannel) -> None:
        dice = self._rng.random()
        if dice < 0.15:
            exchange = self._rng.choice(CHANGING_EXCHANGES)
            thing = f"exchange {exchange}"
            if thing in self._there:
                await self._delete(channel, "exchange.delete", thing, exchange=exchange)
            else:
                self._history.sight("create", thing)
                await channel.call("exchange.declare", exchange=exchange, type="direct", durable=1)
                self._history.sight("created", thing)
                self._there.add(thing)
            return
        queue = self._rng.choice(CHANGING_QUEUES)
        thing, binding = f"queue {queue}", f"binding {queue}"
        if thing not in self._there:
            await self._declare(channel, queue, durable=True)
        elif dice < 0.35:
            self._history.sight("delete", binding)
            await self._delete(channel, "queue.delete", thing, queue=queue)
            self._history.sight("deleted", binding)
            self._bound.discard(queue)
        elif dice < 0.5:
            await self._bind(channel, queue)
        else:
            await self._put(channel, queue)

    async def _declare(self, channel: AsyncChannel, queue: str, durable: bool) -> None:
        thing = f"queue {queue}"
        self._history.sight("create", thing)
        answer = await channel.call("queue.declare", queue=queue, durable=durable)
        self._history.sight("created", thing, answer["message_count"])
        self._there.add(thing)

    async def _delete(self, channel: AsyncChannel, method: str, thing: str, **values: Any) -> None:
        self._history.sight("delete", thing)
        await channel.call(method, **values)
        self._history.sight("deleted", thing)
        self._there.discard(thing)

    async def _bind(self, channel: AsyncChannel, queue: str) -> None:
        thing = f"binding {queue}"
        values = {"queue": queue, "exchange": CHANGES, "routing_key": queue}
        if queue in self._bound:
            self._history.sight("delete", thing)
            await channel.call("queue.unbind", **values)
            self._history.sight("deleted", thing)
            self._bound.discard(queue)
        else:
            self._history.sight("create", thing)
            # It may be there when the answer is lost.
            self._bound.add(queue)
            await channel.call("queue.bind", **values)
            self._history.sight("created", thing)

    async def _put(self, channel: AsyncChannel, queue: str) -> None:
        count = self._rng.randint(1, 8)
        self._history.sight("put", f"queue {queue}", count)
        for _ in range(count):
            channel.publish("", queue, {"delivery_mode": 2}, b"changing", mandatory=True)
            self._confirms.add(queue)
        await self._confirms.fewer_than(1)
        if self._returned:
            self._returned = False
            self._history.surprises.append(f"a message for {queue} came back as unroutable")
        self._history.sight("stored", f"queue {queue}", count)

    async def _probe(self, channel: AsyncChannel, queue: str) -> None:
        """Whether the binding is there: a message either goes through it or comes back."""
        self._history.sight("put", f"queue {queue}", 1)
        channel.publish(CHANGES, queue, {"delivery_mode": 2}, b"probe", mandatory=True)
        self._confirms.add(queue)
        await self._confirms.fewer_than(1)
        if self._returned:
            self._returned = False
            self._history.sight("put", f"queue {queue}", -1)
            self._history.sight("missing", f"binding {queue}")
            self._bound.discard(queue)
        else:
            self._history.sight("stored", f"queue {queue}", 1)
            self._history.sight("seen", f"binding {queue}")
