"""One shovel at work: takes messages from one broker, gives them to another, and begins again.

A message is acknowledged to its source when the destination has confirmed it (`on-confirm`), so a
crash on either side or here gives duplicates at worst. A message that the destination refuses, or
has no queue for, stays with the source.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from warren.client.address import BrokerAddress
from warren.client.connection import ClientConnection, ClientError, Delivery, connect
from warren.shovel.settings import ShovelSettings
from warren.wire.properties import decode_properties, replace_properties
from warren.wire.tables import encode_table

#: A refused message goes back to its source after this time: a full queue is not asked at once.
REFUSED_S = 0.5
#: Without acknowledgements, this much is taken ahead of what the destination has room for.
AHEAD_MAX = 1000
BLOCKED_LOOK_S = 0.05
#: A broker that is away is not asked more often than this, whatever the settings say.
RECONNECT_S_MIN = 0.1
#: Where a broker without a name is: host and port of the node itself.
OwnPlace = Callable[[bool], tuple[str, int]]


@dataclass(slots=True)
class Status:
    """How a shovel is doing."""

    state: str = "starting"
    since_s: float = field(default_factory=time.time)
    #: Why it does not run.
    reason: str = ""
    src_uri: str = ""
    dest_uri: str = ""
    forwarded: int = 0
    #: Messages that wait for the destination.
    pending: int = 0
    #: How many are still to be moved, for a shovel that ends by itself.
    remaining: int | None = None
    is_blocked: bool = False
    #: Why it did not run the last time that it did not, and when that was.
    last_error: str = ""
    last_error_s: float = 0.0

    def failed(self, reason: str) -> None:
        self.change("terminated", reason)
        self.last_error, self.last_error_s = reason, time.time()

    def change(self, state: str, reason: str = "") -> None:
        if (self.state, self.reason) != (state, reason):
            self.state, self.reason, self.since_s = state, reason, time.time()


class Worker:
    """See the module's text. `run` returns when there is nothing left to do."""

    def __init__(
        self,
        name: str,
        vhost: str,
        settings: ShovelSettings,
        own_place: OwnPlace | None = None,
        shovelled_by: str = "",
        keep_trying: bool = True,
    ) -> None:
        self.name = name
        self.vhost = vhost
        self.settings = settings
        self.status = Status()
        self._own_place = own_place
        self._shovelled_by = shovelled_by
        self._keep_trying = keep_trying
        self._remaining: int | None = None
        self._move: _Move | None = None
        #: It is to rest as soon as nothing of it is on its way.
        self.is_pausing = False

    def pause(self) -> bool:
        """Take nothing more; `run` returns when the destination has answered. False: at once."""
        self.is_pausing = True
        if self._move is None:
            return False
        self._move.pause()
        return True

    def go_on_from(self, before: Worker) -> None:
        """It has rested: what was moved before counts."""
        self.status.forwarded = before.status.forwarded
        self.status.last_error = before.status.last_error
        self.status.last_error_s = before.status.last_error_s
        if before.remaining is not None:
            self.remaining = before.remaining

    async def run(self) -> None:
        """Until all is moved, if it ever is. Raises ClientError when it is not to try again."""
        while True:
            try:
                await self._once()
            except ClientError as error:
                self.status.failed(str(error))
                if not self._keep_trying:
                    raise
                if self.is_pausing:
                    return
                await asyncio.sleep(max(self.settings.reconnect_s, RECONNECT_S_MIN))
                self.status.change("starting")
            else:
                if not self.is_pausing:
                    self.status.change("terminated", "all is moved")
                return

    async def _connect(self, addresses: tuple[BrokerAddress, ...], side: str) -> ClientConnection:
        """The first of them that lets us in. Raises ClientError."""
        last = ClientError(f"{side} has no address")
        for address in addresses:
            host, port = None, None
            if not address.host and self._own_place is not None:
                host, port = self._own_place(address.tls)
            try:
                return await connect(
                    address, f"Shovel {self.name} in vhost {self.vhost}: {side}", host, port
                )
            except ClientError as error:
                last = error
        raise last

    async def _once(self) -> None:
        src = await self._connect(self.settings.src, "source")
        try:
            dest = await self._connect(self.settings.dest, "destination")
        except BaseException:
            src.abort("the destination cannot be reached")
            raise
        self.status.src_uri, self.status.dest_uri = src.address.shown, dest.address.shown
        try:
            self._move = _Move(self, src, dest)
            await self._move.run()
        finally:
            self._move = None
            await asyncio.gather(src.close(), dest.close(), return_exceptions=True)

    @property
    def remaining(self) -> int | None:
        return self._remaining

    @remaining.setter
    def remaining(self, count: int | None) -> None:
        self._remaining = self.status.remaining = count

    def header_of(self, delivery: Delivery, src: BrokerAddress, dest: BrokerAddress) -> bytes:
        """The header of a message as it goes on."""
        settings = self.settings
        changes: dict[str, Any] = dict(settings.publish_properties)
        added: dict[str, Any] = {}
        if settings.timestamp_header:
            added["x-shovelled-timestamp"] = int(time.time())
        if settings.forward_headers:
            added["x-shovelled"] = [self._forwarded(src, dest)]
        if added:
            headers = dict(decode_properties(delivery.header).get("headers") or {})
            headers |= changes.get("headers") or {}
            if isinstance(headers.get("x-shovelled"), list) and "x-shovelled" in added:
                added["x-shovelled"] += headers["x-shovelled"]
            changes["headers"] = encode_table({**headers, **added})
        elif "headers" in changes:
            changes["headers"] = encode_table(changes["headers"])
        return replace_properties(delivery.header, changes) if changes else delivery.header

    def _forwarded(self, src: BrokerAddress, dest: BrokerAddress) -> dict[str, Any]:
        settings = self.settings
        told = {
            "shovelled-by": self._shovelled_by,
            "shovel-type": "dynamic",
            "shovel-name": self.name,
            "shovel-vhost": self.vhost,
            "src-uri": src.shown,
            "dest-uri": dest.shown,
            "src-queue": settings.src_queue,
            "src-exchange": settings.src_exchange,
            "src-exchange-key": settings.src_exchange_key or None,
            "dest-queue": settings.dest_queue,
            "dest-exchange": settings.dest_exchange or None,
            "dest-exchange-key": None if settings.dest_queue else settings.dest_key,
        }
        return {name: value for name, value in told.items() if value is not None}


class _Move:
    """From connecting to the end of either connection."""

    def __init__(self, worker: Worker, src: ClientConnection, dest: ClientConnection) -> None:
        self.worker = worker
        self.src = src
        self.dest = dest
        self.settings = worker.settings
        self._taken: deque[Delivery] = deque()
        self._news = asyncio.Event()
        #: Tags of the source that wait for the destination, by the number of their publish.
        self._sent: dict[int, int] = {}
        self._numbered = 0
        #: Messages that were refused and have not gone back yet.
        self._refused = 0
        self._rests = False
        self._resting: asyncio.Task[None] | None = None
        self._tag = ""
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def pause(self) -> None:
        """What is on its way is waited for; all else goes back to the source at the end."""
        self._resting = asyncio.get_running_loop().create_task(self._rest())

    async def _rest(self) -> None:
        if self._tag:
            with contextlib.suppress(ClientError):
                await self.src.call("basic.cancel", self._tag, False)
        self._rests = True
        self._news.set()
        self._rest_if_done()

    def _rest_if_done(self) -> None:
        if not self._rests or self._sent or self._refused or self._over.done():
            return
        # What the source has given without wanting to hear of it again is nowhere else.
        if self.settings.ack_mode != "no-ack" or not self._taken:
            self._over.set_result(None)

    async def run(self) -> None:
        """Returns when all is moved, or when it is to rest.

        Raises ClientError when a connection ends before.
        """
        self.src.on_delivery = self._on_delivery
        self.src.on_cancel = lambda: self._fail("the source has cancelled the consumer")
        self.dest.on_verdict = self._on_verdict
        self.dest.on_return = lambda text: self._fail(f"no queue takes the messages: {text}")
        await self._ready_destination()
        if self.settings.ack_mode == "on-confirm":
            # Only now: the channel may have been opened anew.
            await self.dest.call("confirm.select", False)
        queue = await self._ready_source()
        if self.worker.remaining == 0:
            return
        await self.src.call("basic.qos", 0, self.settings.prefetch, False)
        no_ack = self.settings.ack_mode == "no-ack"
        answer = await self.src.call(
            "basic.consume",
            0,
            queue,
            "",
            False,
            no_ack,
            False,
            False,
            self.settings.src_consumer_args,
        )
        self._tag = answer[0]
        self.worker.status.change("running")
        pump = asyncio.get_running_loop().create_task(self._pump())
        try:
            waited: set[asyncio.Future[Any]] = {pump, self.src.ended, self.dest.ended, self._over}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if self._over.done():
                self._over.result()
                return
            if pump.done():
                pump.result()
            for side, connection in (("source", self.src), ("destination", self.dest)):
                if connection.ended.done():
                    raise ClientError(f"{side}: {connection.ended.result()}")
        finally:
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)

    # -- what is needed at both ends ---------------------------------------------------------------

    async def _ready_source(self) -> str:
        """The queue to take from; what it holds decides when a shovel ends that ends by itself."""
        settings = self.settings
        if settings.src_queue is None:
            answer = await self.src.call(
                "queue.declare", 0, "", False, False, True, True, False, {}
            )
            queue: str = answer[1]
            await self.src.call(
                "queue.bind", 0, queue, settings.src_exchange, settings.src_exchange_key, False, {}
            )
        else:
            queue = settings.src_queue
            answer = await _ensure_queue(self.src, queue, settings.src_queue_args)
        if settings.delete_after is not None and self.worker.remaining is None:
            limit = settings.delete_after
            self.worker.remaining = int(answer[2]) if limit < 0 else limit
        return queue

    async def _ready_destination(self) -> None:
        if self.settings.dest_queue is not None:
            await _ensure_queue(self.dest, self.settings.dest_queue, self.settings.dest_queue_args)

    # -- messages ----------------------------------------------------------------------------------

    def _on_delivery(self, delivery: Delivery) -> None:
        self._taken.append(delivery)
        if self.settings.ack_mode == "no-ack" and len(self._taken) > AHEAD_MAX:
            self.src.pause_reading()
        self._news.set()

    async def _pump(self) -> None:
        status = self.worker.status
        while True:
            while not self._taken or not self._may_take():
                self._news.clear()
                if not self._taken:
                    self.src.resume_reading()
                await self._news.wait()
            await self.dest.drain()
            while self.dest.is_blocked and not self.dest.ended.done():
                status.is_blocked = True
                await asyncio.sleep(BLOCKED_LOOK_S)
            status.is_blocked = False
            if self.dest.ended.done():
                return
            self._forward(self._taken.popleft())
            status.pending = len(self._sent) + len(self._taken)
            self._rest_if_done()

    def _may_take(self) -> bool:
        """What is beyond the number to be moved stays, and goes back at the end."""
        if self._rests and self.settings.ack_mode != "no-ack":
            return False
        left = self.worker.remaining
        return left is None or left > len(self._sent)

    def _forward(self, delivery: Delivery) -> None:
        settings = self.settings
        header = self.worker.header_of(delivery, self.src.address, self.dest.address)
        exchange = delivery.exchange if settings.dest_exchange is None else settings.dest_exchange
        key = delivery.routing_key if settings.dest_key is None else settings.dest_key
        # Where a queue is named, a message that reaches none is not to be lost.
        mandatory = settings.dest_queue is not None
        self.dest.publish(exchange, key, header, delivery.body, mandatory)
        if settings.ack_mode == "on-confirm":
            self._numbered += 1
            self._sent[self._numbered] = delivery.tag
            return
        if settings.ack_mode == "on-publish":
            self.src.ack(delivery.tag)
        self._moved(1)

    def _on_verdict(self, number: int, multiple: bool, accepted: bool) -> None:
        if self._over.done():
            # A message that came back from no queue is confirmed like any other: it must stay.
            return
        numbers = [number]
        if multiple:
            # They are in order.
            numbers = list(itertools.takewhile(lambda n: n <= number, self._sent))
        tags = [self._sent.pop(n) for n in numbers if n in self._sent]
        self._news.set()
        if not accepted:
            for tag in tags:
                self._refused += 1
                asyncio.get_running_loop().call_later(REFUSED_S, self._give_back, tag)
        elif tags:
            oldest = next(iter(self._sent.values()), None)
            # An acknowledgement of several must not take one along that was refused.
            if len(tags) > 1 and not self._refused and (oldest is None or tags[-1] < oldest):
                self.src.ack(tags[-1], True)
            else:
                for tag in tags:
                    self.src.ack(tag)
            self._moved(len(tags))
        self._rest_if_done()

    def _give_back(self, tag: int) -> None:
        self._refused -= 1
        self.src.reject(tag, True)
        self._rest_if_done()

    def _moved(self, count: int) -> None:
        worker = self.worker
        worker.status.forwarded += count
        worker.status.pending = len(self._sent) + len(self._taken)
        if worker.remaining is not None:
            worker.remaining = max(0, worker.remaining - count)
            if worker.remaining == 0 and not self._over.done():
                self._over.set_result(None)

    def _fail(self, reason: str) -> None:
        if not self._over.done():
            self._over.set_exception(ClientError(reason))


async def _ensure_queue(connection: ClientConnection, name: str, arguments: dict[str, Any]) -> Any:
    """A queue that is there is taken as it is; one that is not is made durable."""
    try:
        async with asyncio.timeout(60):
            return await connection.call(
                "queue.declare", 0, name, True, False, False, False, False, {}
            )
    except ClientError as error:
        if not str(error).startswith("404"):
            raise
    await connection.reopen()
    return await connection.call(
        "queue.declare", 0, name, False, True, False, False, False, arguments
    )
