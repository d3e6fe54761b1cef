"""The publishers of a crash test."""

from __future__ import annotations

import asyncio
import random
import zlib
from dataclasses import dataclass
from typing import Any

from async_client import AsyncChannel, AsyncClient, Confirms, Content, LostError
from history import History, Message
from topology import FAN, FANNED

#: (exchange, routing key, queues)
Target = tuple[str, str, tuple[str, ...]]
PLAIN: tuple[Target, ...] = tuple(("", f"plain.{n}", (f"plain.{n}",)) for n in range(3))
FAN_OUT: Target = (FAN, "", FANNED)
PRIORITY: Target = ("", "priority", ("priority",))
WORK: Target = ("", "work", ("work",))

#: Publishers wait while so many copies are unsettled.
BACKLOG_MAX = 12_000
#: Bodies are cut from here.
_BLOCK = random.Random(20240229).randbytes(1 << 20)
#: The largest body, and how often it is that: most are small, some need several frames.
_SIZES = {0: 8, 300: 62, 8_000: 25, 64_000: 4, 300_000: 1}


@dataclass(frozen=True, slots=True)
class Plan:
    """How one publisher publishes."""

    name: str
    targets: tuple[Target, ...]
    #: Unconfirmed messages at most.
    window: int
    #: In transactions instead of with confirms.
    in_transactions: bool = False


PLANS = (
    Plan("one", (PLAIN[0],), 300),
    Plan("step", (PLAIN[1],), 1),
    Plan("deep", (PLAIN[2],), 200),
    Plan("fan", (FAN_OUT,), 100),
    Plan("priority", (PRIORITY,), 50),
    Plan("work", (WORK,), 100),
    Plan("all", (*PLAIN, FAN_OUT, PRIORITY, WORK), 200),
    Plan("transactions", (PLAIN[0], PLAIN[1], FAN_OUT, WORK), 0, in_transactions=True),
)


def fingerprint(properties: dict[str, Any], body: bytes) -> int:
    """What must be the same at both ends."""
    number = (properties.get("headers") or {}).get("n")
    shown = (properties.get("delivery_mode"), properties.get("priority"), number)
    return zlib.crc32(body, zlib.crc32(repr(shown).encode()))


class Publisher:
    """One publisher during one life of the broker."""

    def __init__(self, history: History, plan: Plan, rng: random.Random) -> None:
        self._history = history
        self._plan = plan
        self._rng = rng
        self._session = f"{plan.name}.{history.life}"
        self._number = 0
        # What cannot be routed comes back; the other half takes the shorter way in the broker.
        self._mandatory = rng.random() < 0.5
        self.stopping = False

    async def run(self, client: AsyncClient) -> None:
        """Publish until the connection ends, or until told to stop and all is answered."""
        channel = await client.channel()
        channel.on_message = self._take_back
        try:
            if self._plan.in_transactions:
                await self._in_transactions(channel)
            else:
                await self._with_confirms(channel)
        except LostError:
            if not client.muted and client.ended is None:
                raise

    def _take_back(self, content: Content) -> None:
        self._history.messages[content.properties["message_id"]].returned = True

    async def _with_confirms(self, channel: AsyncChannel) -> None:
        await channel.call("confirm.select")
        confirms = Confirms(channel, _confirm)
        while not self.stopping:
            for _ in range(self._rng.randint(1, 30)):
                await confirms.fewer_than(self._plan.window)
                await channel.client.writable()
                confirms.add(self._publish(channel))
            await self._rest(channel.client)
        await confirms.fewer_than(1)

    async def _in_transactions(self, channel: AsyncChannel) -> None:
        await channel.call("tx.select")
        while not self.stopping:
            await channel.client.writable()
            batch = [self._publish(channel, held=True) for _ in range(self._rng.randint(1, 25))]
            if self._rng.random() < 0.1:
                await channel.call("tx.rollback")
                continue
            for message in batch:
                message.held = False
            await channel.call("tx.commit")
            for message in batch:
                message.confirmed = True
            await self._rest(channel.client)

    async def _rest(self, client: AsyncClient) -> None:
        await asyncio.sleep(self._rng.uniform(0.002, 0.03))
        while self._history.backlog > BACKLOG_MAX and not self.stopping:
            await asyncio.sleep(0.02)
            await client.writable()

    def _publish(self, channel: AsyncChannel, held: bool = False) -> Message:
        exchange, key, queues = self._rng.choice(self._plan.targets)
        persistent = self._rng.random() < 0.8
        self._number += 1
        name = f"{self._session}.{self._number}"
        body = self._body()
        properties: dict[str, Any] = {
            "delivery_mode": 2 if persistent else 1,
            "message_id": name,
            "headers": {"n": self._number},
        }
        priority = 0
        if queues == ("priority",):
            priority = self._rng.randint(0, 5)
            properties["priority"] = priority
        message = self._history.publish(
            Message(
                name=name,
                session=self._session,
                number=self._number,
                queues=queues,
                persistent=persistent,
                priority=priority,
                fingerprint=fingerprint(properties, body),
                life=self._history.life,
                held=held,
            )
        )
        channel.publish(exchange, key, properties, body, self._mandatory)
        return message

    def _body(self) -> bytes:
        (largest,) = self._rng.choices(list(_SIZES), list(_SIZES.values()))
        size = self._rng.randint(0, largest)
        at = self._rng.randint(0, len(_BLOCK) - size)
        return _BLOCK[at : at + size]


def _confirm(message: Message) -> None:
    message.confirmed = True
