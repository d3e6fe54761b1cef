"""pika's blocking clients in a run under faults, beside those of aio-pika; each in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Iterator
from typing import Any

import pika
from fault_clients import AGAIN_S, ANSWER_S, RATE, Client, Place, Producer
from fault_ledger import Ledger, id_of

#: How long a peer may be silent. A node that is suspended answers nothing.
HEARTBEAT_S = 8
PERSISTENT = pika.BasicProperties(delivery_mode=2)


class InThread(Client):
    """A client whose work blocks; `session` is done again until there is nothing left to do."""

    is_given_up = False

    async def run(self) -> None:
        try:
            while not self.is_done():
                try:
                    await asyncio.to_thread(self.session)
                except Exception as error:  # whatever pika makes of a lost connection
                    self.ledger.events[f"{type(self).__name__}: {type(error).__name__}"] += 1
                await asyncio.sleep(AGAIN_S)
        finally:
            # A thread cannot be cancelled.
            self.is_given_up = True

    def session(self) -> None:
        """The life of one connection."""
        raise NotImplementedError

    @contextlib.contextmanager
    def channel(self) -> Iterator[Any]:
        parameters = pika.URLParameters(self.url)
        parameters.heartbeat = HEARTBEAT_S
        parameters.socket_timeout = parameters.blocked_connection_timeout = ANSWER_S
        connection = pika.BlockingConnection(parameters)
        try:
            yield connection.channel()
        finally:
            with contextlib.suppress(pika.exceptions.AMQPError, OSError):
                connection.close()


class PikaProducer(InThread, Producer):
    """Publishes one message after the other, each when the one before is confirmed."""

    def __init__(
        self, cluster: Place, node: int, ledger: Ledger, queue: str, rate: float = RATE
    ) -> None:
        super().__init__(cluster, node, ledger, queue, rate)
        self.name = f"pika{node}>{queue}"

    def session(self) -> None:
        with self.channel() as channel:
            channel.confirm_delivery()
            again = sorted(self.unanswered)
            self.ledger.repeated.update((self.name, number) for number in again)
            while not self.is_given_up and (again or not self.stopping.is_set()):
                number = again[0] if again else self.new_number()
                if self._publish_one(channel, number):
                    again = again[1:]
                elif not again:
                    again = [number]
                time.sleep(1 / self._rate)

    def _publish_one(self, channel: Any, number: int) -> bool:
        message = (self.name, number)
        self.ledger.sent.add(message)
        self.unanswered.add(number)
        try:
            channel.basic_publish("", self.queue, self.body(number), PERSISTENT, mandatory=True)
        except (pika.exceptions.NackError, pika.exceptions.UnroutableError) as error:
            is_refused = isinstance(error, pika.exceptions.NackError)
            self.ledger.events["refused" if is_refused else "returned"] += 1
            self.ledger.repeated.add(message)
            return False
        self.unanswered.discard(number)
        self.ledger.confirm(message)
        return True


class PikaConsumer(InThread):
    """Takes from one queue, and acknowledges what it has every now and then."""

    def __init__(
        self, cluster: Place, node: int, ledger: Ledger, queue: str, dice: random.Random
    ) -> None:
        super().__init__(cluster, node, ledger)
        self.queue = queue
        self._dice = dice

    def session(self) -> None:
        with self.channel() as channel:
            newest = 0
            cancelled: list[object] = []

            def on_message(_channel: Any, method: Any, _properties: Any, body: bytes) -> None:
                nonlocal newest
                self.ledger.arrive(self.queue, id_of(body), bool(method.redelivered))
                newest = method.delivery_tag

            channel.basic_qos(prefetch_count=30)
            channel.add_on_cancel_callback(cancelled.append)
            channel.basic_consume(self.queue, on_message)
            acknowledged = 0
            while not self.is_given_up and not self.stopping.is_set() and not cancelled:
                channel.connection.process_data_events(self._dice.uniform(0.01, 0.05))
                if newest > acknowledged:
                    channel.basic_ack(newest, multiple=True)
                    acknowledged = newest
            self.ledger.events["cancelled"] += len(cancelled)
