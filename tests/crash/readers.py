"""The consumers of a crash test: pushed to or asking, quick or slow, fickle or steady."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from async_client import AsyncChannel, AsyncClient, Content
from history import ACK, REJECT, REQUEUE, Delivery, History
from publishers import fingerprint


@dataclass(frozen=True, slots=True)
class Habits:
    """How a reader treats what it gets."""

    prefetch: int = 200
    #: Shares of all deliveries.
    requeued: float = 0.0
    rejected: float = 0.0
    #: Acknowledged together, with `multiple`; one by one when 1.
    batch: int = 1
    #: The longest a delivery waits for its acknowledgement; never acknowledged when None.
    patience_s: float | None = 0.02
    #: Closes its channel now and then and starts again with a new one.
    fickle: bool = False
    #: Asks with basic.get.
    by_get: bool = False


STEADY = Habits(batch=50)


def draw_habits(rng: random.Random, *, may_leave: bool, may_reject: bool, by_get: bool) -> Habits:
    """Habits for one life."""
    return Habits(
        prefetch=rng.choice((1, 5, 30, 100, 300, 0)),
        requeued=rng.choice((0.0, 0.0, 0.03)),
        rejected=0.25 if may_reject else 0.0,
        batch=rng.choice((1, 1, 10, 60)),
        patience_s=rng.choice((0.005, 0.03, 0.1, None)),
        fickle=may_leave and rng.random() < 0.4,
        by_get=by_get,
    )


class Reader:
    """One consumer during one life of the broker."""

    def __init__(
        self, history: History, name: str, queue: str, habits: Habits, rng: random.Random
    ) -> None:
        self.queue = queue
        self._history = history
        self._name = f"{name}.{history.life}"
        self._habits = habits
        self._rng = rng
        self._channels = 0
        self._session = ""
        self._channel: AsyncChannel | None = None
        #: Not settled yet, by delivery tag.
        self._pending: dict[int, Delivery] = {}
        self._of_channel: list[Delivery] = []
        self.stopping = False
        self.running = False

    @property
    def idle(self) -> bool:
        """Whether it owes no acknowledgement."""
        return not self._pending

    async def run(self, client: AsyncClient) -> None:
        """Read until the connection ends, or until told to stop."""
        try:
            await self._run(client)
        finally:
            self.running = False

    async def _run(self, client: AsyncClient) -> None:
        while not self.stopping:
            channel = await self._open(client)
            if self._habits.by_get:
                await self._get(channel)
            else:
                await self._consume(channel)
            if client.ended is not None or client.muted:
                return
            await self._close(channel)

    async def _open(self, client: AsyncClient) -> AsyncChannel:
        channel = await client.channel()
        self._channels += 1
        self._session = f"{self._name}.{self._channels}"
        self._channel = channel
        self._pending.clear()
        self._of_channel = []
        channel.on_message = self._take
        return channel

    async def _close(self, channel: AsyncChannel) -> None:
        """All that was sent on the channel has been acted on when the answer is here."""
        settled = [delivery for delivery in self._of_channel if delivery.settled]
        # What still comes is the broker's to requeue.
        self._channel = None
        await channel.call("channel.close", reply_code=200)
        self._history.make_sure(settled)
        self._pending.clear()

    async def _consume(self, channel: AsyncChannel) -> None:
        habits = self._habits
        await channel.call("basic.qos", prefetch_count=habits.prefetch)
        await channel.call("basic.consume", queue=self.queue, consumer_tag="reader")
        patience_s = habits.patience_s
        left_s = self._rng.uniform(0.05, 0.5) if habits.fickle else float("inf")
        while not self.stopping and left_s > 0:
            pause_s = patience_s if patience_s is not None else 0.05
            await asyncio.sleep(pause_s)
            left_s -= pause_s
            await channel.client.writable()
            if channel.closed is not None:
                raise channel.closed
            if patience_s is not None:
                self._acknowledge()
        if self.stopping:
            # When this is answered, all that was delivered has been seen.
            await channel.call("basic.cancel", consumer_tag="reader")
            if patience_s is not None:
                self._acknowledge()

    async def _get(self, channel: AsyncChannel) -> None:
        gets = self._rng.randint(5, 500) if self._habits.fickle else 1 << 30
        while not self.stopping and gets:
            gets -= 1
            if await channel.call("basic.get", queue=self.queue) is None:
                await asyncio.sleep(0.02)
            await channel.client.writable()
            if len(self._pending) >= self._habits.batch and self._habits.patience_s is not None:
                self._acknowledge()
        if self._habits.patience_s is not None:
            self._acknowledge()

    def _take(self, content: Content) -> None:
        values, properties = content.values, content.properties
        delivery = self._history.deliver(
            self.queue,
            properties.get("message_id", ""),
            values["redelivered"],
            fingerprint(properties, content.body),
            self._session,
        )
        self._of_channel.append(delivery)
        channel = self._channel
        if channel is None or channel.client.muted:
            return  # Too late for a settlement.
        tag = values["delivery_tag"]
        habits = self._habits
        dice = self._rng.random()
        if dice < habits.requeued:
            channel.send("basic.nack", delivery_tag=tag, requeue=True)
            self._history.settle(delivery, REQUEUE)
        elif dice < habits.requeued + habits.rejected:
            channel.send("basic.reject", delivery_tag=tag, requeue=False)
            self._history.settle(delivery, REJECT)
        else:
            self._pending[tag] = delivery
            if habits.patience_s is not None and len(self._pending) >= habits.batch:
                self._acknowledge()

    def _acknowledge(self) -> None:
        channel = self._channel
        if not self._pending or channel is None or channel.client.muted:
            return
        if self._habits.batch > 1:
            channel.send("basic.ack", delivery_tag=max(self._pending), multiple=True)
        else:
            for tag in self._pending:
                channel.send("basic.ack", delivery_tag=tag)
        for delivery in self._pending.values():
            self._history.settle(delivery, ACK)
        self._pending.clear()
