"""The workload of a showcase: a publisher with confirms, a consumer, and what each knows.

Messages are numbered. Whoever loses its node goes on at the next one: the publisher sends again
what was not confirmed, so a message may come twice, and none that was confirmed may be missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from warren.client.address import parse_address
from warren.client.connection import ClientConnection, ClientError, Delivery, connect
from warren.wire.properties import encode_properties

#: Publishes that may wait for their confirm.
WINDOW = 2000
PREFETCH = 500
#: How often a publisher is at work, in seconds.
BEAT_S = 0.02
AGAIN_S = 0.2
#: Of how many publishes the times to confirm are remembered.
TIMES = 2000


class Ledger:
    """What clients know: by number, whether it was confirmed, and how often it was received."""

    def __init__(self) -> None:
        self.published = self.confirmed = self.received = 0
        self.duplicates = self.unflagged = self.reconnects = 0
        self._confirmed = bytearray()
        self._received = bytearray()
        self.confirm_ms: deque[float] = deque(maxlen=TIMES)
        #: The longest time between two confirms since it was last reset.
        self.gap_s = 0.0
        self._last_confirm_s = 0.0

    def new_number(self) -> int:
        self.published += 1
        self._confirmed.append(0)
        self._received.append(0)
        return self.published - 1

    def confirm(self, number: int, took_s: float) -> None:
        now_s = time.monotonic()
        if self._last_confirm_s:
            self.gap_s = max(self.gap_s, now_s - self._last_confirm_s)
        self._last_confirm_s = now_s
        self.confirm_ms.append(took_s * 1000)
        if not self._confirmed[number]:
            self._confirmed[number] = 1
            self.confirmed += 1

    def receive(self, number: int, redelivered: bool) -> None:
        if self._received[number]:
            self.duplicates += 1
            self.unflagged += not redelivered
        else:
            self.received += 1
            self._received[number] = 1

    @property
    def missing(self) -> list[int]:
        """Confirmed, and not received."""
        pairs = zip(self._confirmed, self._received, strict=True)
        return [n for n, (confirmed, received) in enumerate(pairs) if confirmed and not received]

    def p99_ms(self) -> float:
        found = sorted(self.confirm_ms)
        return found[len(found) * 99 // 100] if found else 0.0


class Worker:
    """A client that goes to the next node when it loses its own."""

    def __init__(self, urls: Sequence[str], name: str) -> None:
        self._urls = list(urls)
        self._name = name
        self._turn = 0

    async def connected(self) -> ClientConnection:
        while True:
            url = self._urls[self._turn % len(self._urls)]
            try:
                return await connect(parse_address(f"{url}/%2F?heartbeat=5"), self._name)
            except ClientError:
                self._turn += 1
                await asyncio.sleep(AGAIN_S)


class Publisher(Worker):
    """Publishes at a steady rate until `stop` is set, then waits for its confirms."""

    def __init__(self, urls: Sequence[str], exchange: str, rate: int, ledger: Ledger) -> None:
        super().__init__(urls, "showcase publisher")
        self._exchange = exchange
        self._rate = rate
        self._ledger = ledger
        self.stop = asyncio.Event()
        #: Tag of this connection -> number and when it was sent.
        self._waiting: dict[int, tuple[int, float]] = {}
        self._oldest = 1
        self._tag = 0
        #: Numbers that were refused, and when each is to be sent again.
        self._refused: deque[tuple[float, int]] = deque()

    @property
    def is_done(self) -> bool:
        return self.stop.is_set() and not self._waiting and not self._refused

    async def run(self) -> None:
        while not self.is_done:
            connection = await self.connected()
            try:
                await self._work(connection)
            except ClientError:
                self._turn += 1
                self._ledger.reconnects += 1
                await asyncio.sleep(AGAIN_S)
            finally:
                await connection.close()

    async def _work(self, connection: ClientConnection) -> None:
        """Raises ClientError when the connection ends."""
        again = [number for number, _ in self._waiting.values()]
        self._waiting, self._tag, self._oldest = {}, 0, 1
        connection.on_verdict = self._verdict
        await connection.call("confirm.select", False)
        for number in again:
            self._send(connection, number)
        began_s, sent = time.monotonic(), 0
        while not self.is_done:
            if connection.ended.done():
                raise ClientError(connection.ended.result())
            while self._refused and self._refused[0][0] <= time.monotonic():
                self._send(connection, self._refused.popleft()[1])
            due = int((time.monotonic() - began_s) * self._rate)
            while sent < due and not self.stop.is_set() and len(self._waiting) < WINDOW:
                self._send(connection, self._ledger.new_number())
                sent += 1
            if len(self._waiting) >= WINDOW:
                # It is not to catch up in a burst when the queue is there again.
                began_s, sent = time.monotonic(), 0
            await connection.drain()
            await asyncio.sleep(BEAT_S)

    def _send(self, connection: ClientConnection, number: int) -> None:
        body = json.dumps({"order": number, "item": f"item-{number % 97}", "count": number % 5 + 1})
        data = body.encode()
        properties = {
            "delivery_mode": 2,
            "content_type": "application/json",
            "message_id": str(number),
        }
        header = encode_properties(properties, len(data))
        self._tag += 1
        self._waiting[self._tag] = (number, time.monotonic())
        connection.publish(self._exchange, f"order.{number % 3}", header, data)

    def _verdict(self, tag: int, multiple: bool, accepted: bool) -> None:
        tags = range(self._oldest, tag + 1) if multiple else (tag,)
        for one in tags:
            found = self._waiting.pop(one, None)
            if found is None:
                continue
            number, sent_s = found
            if accepted:
                self._ledger.confirm(number, time.monotonic() - sent_s)
            else:
                self._refused.append((time.monotonic() + AGAIN_S, number))
        if multiple:
            self._oldest = tag + 1


class Consumer(Worker):
    """Takes everything, and acknowledges it."""

    def __init__(self, urls: Sequence[str], queue: str, ledger: Ledger) -> None:
        super().__init__(urls, "showcase consumer")
        self._queue = queue
        self._ledger = ledger

    async def run(self) -> None:
        while True:
            connection = await self.connected()
            try:
                ended = asyncio.Event()
                connection.on_delivery = lambda d, it=connection: self._take(it, d)  # type: ignore[misc]
                connection.on_cancel = ended.set
                await connection.call("basic.qos", 0, PREFETCH, False)
                await connection.call(
                    "basic.consume", 0, self._queue, "", False, False, False, False, {}
                )
                await _either(connection.ended, ended)
            except ClientError:
                pass
            finally:
                await connection.close()
            self._turn += 1
            await asyncio.sleep(AGAIN_S)

    def _take(self, connection: ClientConnection, delivery: Delivery) -> None:
        self._ledger.receive(int(json.loads(delivery.body)["order"]), delivery.redelivered)
        connection.ack(delivery.tag)


async def _either(future: asyncio.Future[Any], event: asyncio.Event) -> None:
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({future, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
