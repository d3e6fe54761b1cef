"""Clients of a run under faults: they come back, publish again what is in doubt, and note all."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Protocol

import aiormq
from aiormq.abc import DeliveredMessage
from fault_ledger import Ledger, id_of

#: Publishes of a producer in a second.
RATE = 40
#: A client that cannot reach its node tries again after this.
AGAIN_S = 0.15
#: How long an answer may take before a client gives its connection up.
ANSWER_S = 20.0
PERSISTENT = aiormq.spec.Basic.Properties(delivery_mode=2)


class Place(Protocol):
    """Where nodes are: a cluster, of whatever make."""

    def url(self, n: int) -> str: ...


class Client:
    """Something that keeps a connection to a node, whatever happens to it."""

    def __init__(self, cluster: Place, node: int, ledger: Ledger) -> None:
        self.url = cluster.url(node)
        self.node = node
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
                await end(connection)
            await asyncio.sleep(AGAIN_S)

    def is_done(self) -> bool:
        return self.stopping.is_set()

    async def work(self, channel: Any) -> None:
        raise NotImplementedError


async def end(connection: Any) -> None:
    """Close it, if that can be done."""
    if connection is None:
        return
    try:
        await asyncio.wait_for(connection.close(), 2)
    except (Exception, asyncio.CancelledError):
        return


class Producer(Client):
    """Publishes numbered messages to one queue, some of them unanswered at a time."""

    def __init__(
        self,
        cluster: Place,
        node: int,
        ledger: Ledger,
        queue: str,
        rate: float = RATE,
        window: int = 20,
        properties: Any = PERSISTENT,
    ) -> None:
        super().__init__(cluster, node, ledger)
        self.queue = queue
        self._rate = rate
        self._window = window
        self._properties = properties
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
                number = again.pop(0) if again else self.new_number()
                under_way.add(asyncio.create_task(self._publish(channel, number)))
                done = {task for task in under_way if task.done()}
                if len(under_way) - len(done) >= self._window:
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

    def new_number(self) -> int:
        self.next_number += 1
        return self.next_number

    def queue_of(self, _number: int) -> str:
        return self.queue

    def body(self, number: int) -> bytes:
        return f"{self.name} {number}".encode()

    async def _publish(self, channel: Any, number: int) -> int | None:
        message = (self.name, number)
        self.ledger.sent.add(message)
        self.unanswered.add(number)
        try:
            await channel.basic_publish(
                self.body(number),
                routing_key=self.queue_of(number),
                properties=self._properties,
                mandatory=True,
            )
        except aiormq.exceptions.DeliveryError as error:
            kind = "returned" if isinstance(error, aiormq.exceptions.PublishError) else "refused"
            self.ledger.events[kind] += 1
            self.ledger.repeated.add(message)
            await asyncio.sleep(AGAIN_S)
            return number
        self.unanswered.discard(number)
        self.ledger.confirm(message)
        return None


def _refused(done: set[asyncio.Task[int | None]]) -> list[int]:
    """The numbers to be published again; raises what a task has raised."""
    errors = [None if task.cancelled() else task.exception() for task in done]
    for error in errors:
        if error is not None:
            raise error
    results = [task.result() for task in done]
    return sorted(number for number in results if number is not None)


class TransactionProducer(Producer):
    """Publishes in transactions: what one has committed counts as confirmed."""

    def __init__(
        self, cluster: Place, node: int, ledger: Ledger, queue: str, size: int = 5
    ) -> None:
        super().__init__(cluster, node, ledger, queue)
        self._size = size
        self.name = f"tx{node}>{queue}"

    async def work(self, channel: Any) -> None:
        await channel.tx_select()
        again = sorted(self.unanswered)
        self.ledger.repeated.update((self.name, number) for number in again)
        while again or not self.stopping.is_set():
            numbers = again[: self._size] or [self.new_number() for _ in range(self._size)]
            again = again[self._size :]
            for number in numbers:
                self.ledger.sent.add((self.name, number))
                self.unanswered.add(number)
                await channel.basic_publish(
                    self.body(number),
                    routing_key=self.queue,
                    properties=self._properties,
                    wait=False,
                )
            await asyncio.wait_for(channel.tx_commit(), ANSWER_S)
            self.unanswered.difference_update(numbers)
            self.ledger.confirm(*((self.name, number) for number in numbers))
            await asyncio.sleep(self._size / self._rate)


class LostCaller(Client):
    """Publishes to a key that no queue has: every one must come back, and none may be taken."""

    async def work(self, channel: Any) -> None:
        await channel.confirm_delivery()
        while not self.stopping.is_set():
            try:
                publishing = channel.basic_publish(
                    b"to nobody", routing_key="no such queue", properties=PERSISTENT, mandatory=True
                )
                await asyncio.wait_for(publishing, ANSWER_S)
            except aiormq.exceptions.PublishError:
                self.ledger.events["unroutable came back"] += 1
            except aiormq.exceptions.DeliveryError:
                self.ledger.events["unroutable refused"] += 1
            else:
                self.ledger.other_faults.append("a message that no queue takes was only confirmed")
            await asyncio.sleep(0.1)


class Consumer(Client):
    """Takes from one queue, and acknowledges a little later."""

    def __init__(
        self,
        cluster: Place,
        node: int,
        ledger: Ledger,
        queue: str,
        dice: random.Random,
        rejects: float = 0.0,
        prefetch: int = 30,
    ) -> None:
        super().__init__(cluster, node, ledger)
        self.queue = queue
        self._dice = dice
        #: The share that is not wanted: rejected, and not noted.
        self._rejects = rejects
        self._prefetch = prefetch

    async def work(self, channel: Any) -> None:
        await channel.basic_qos(prefetch_count=self._prefetch)
        tags: asyncio.Queue[int] = asyncio.Queue()

        async def on_message(message: DeliveredMessage) -> None:
            tag = message.delivery.delivery_tag
            assert tag is not None
            if self._rejects and self._dice.random() < self._rejects:
                await channel.basic_reject(tag, requeue=False)
                return
            self.note_of(self.queue, message)
            tags.put_nowait(tag)

        begun = await asyncio.wait_for(channel.basic_consume(self.queue, on_message), ANSWER_S)
        while not self.stopping.is_set():
            if channel.is_closed:
                raise ConnectionError
            if begun.consumer_tag not in channel.consumers:
                self.ledger.events["cancelled"] += 1
                return
            await asyncio.sleep(self._dice.uniform(0, 0.05))
            await self._settle(channel, tags)

    async def _settle(self, channel: Any, tags: asyncio.Queue[int]) -> None:
        newest = 0
        while not tags.empty():
            newest = tags.get_nowait()
            if self._rejects:
                # Some in between were rejected: one by one.
                await channel.basic_ack(newest)
        if newest and not self._rejects:
            await channel.basic_ack(newest, multiple=True)

    def note_of(self, queue: str, message: Any) -> None:
        """It has come."""
        self.ledger.arrive(queue, id_of(message.body), bool(message.delivery.redelivered))


class Getter(Consumer):
    """Takes one message at a time, by basic.get."""

    async def work(self, channel: Any) -> None:
        while not self.stopping.is_set():
            got = await asyncio.wait_for(channel.basic_get(self.queue), ANSWER_S)
            if not got.body:
                await asyncio.sleep(0.05)
                continue
            self.note_of(self.queue, got)
            await channel.basic_ack(got.delivery.delivery_tag)


class Owner(Client):
    """Has a queue that is to end with it, exclusive or auto-delete, and sends itself messages.

    When its connection is lost so is the queue: it begins again with another.
    """

    def __init__(self, cluster: Place, node: int, ledger: Ledger, prefix: str, sort: str) -> None:
        super().__init__(cluster, node, ledger)
        self._prefix = f"{prefix}{sort}.{node}"
        self._options = {"exclusive": True} if sort == "exclusive" else {"auto_delete": True}
        self._lives = 0
        #: All queues it ever had; none may be there when it has ended.
        self.had: list[str] = []

    async def work(self, channel: Any) -> None:
        self._lives += 1
        queue = f"{self._prefix}.{self._lives}"
        came: asyncio.Queue[DeliveredMessage] = asyncio.Queue()

        async def on_message(message: DeliveredMessage) -> None:
            came.put_nowait(message)

        if "exclusive" in self._options:
            self.had.append(queue)
        await asyncio.wait_for(channel.queue_declare(queue, **self._options), ANSWER_S)
        await asyncio.wait_for(channel.basic_consume(queue, on_message, no_ack=True), ANSWER_S)
        if "exclusive" not in self._options:
            # Only a queue that had a consumer goes with the last one.
            self.had.append(queue)
        number = 0
        while not self.stopping.is_set():
            number += 1
            await channel.basic_publish(b"%d" % number, routing_key=queue)
            await self._expect(came, queue, number)
            self.ledger.events["to oneself"] += 1
            await asyncio.sleep(0.05)

    async def _expect(self, came: asyncio.Queue[DeliveredMessage], queue: str, number: int) -> None:
        while True:
            message = await asyncio.wait_for(came.get(), ANSWER_S)
            if message.body == b"%d" % number:
                return
            if not (message.delivery.redelivered and int(message.body) < number):
                text = f"{queue}: {message.body!r} came, not {number}"
                self.ledger.other_faults.append(text)
                raise ConnectionError(text)
