"""A broker for short stories: started, killed, stopped, and asked with pika."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
from broker_process import BrokerProcess, Kind
from pika.adapters.blocking_connection import BlockingChannel

PERSISTENT = pika.BasicProperties(delivery_mode=2)


class OneBroker:
    """See the module's text."""

    def __init__(
        self, base: Path, kind: Kind = Kind.AS_SERVED, settings: Sequence[str] = ()
    ) -> None:
        self.process = BrokerProcess(base, settings, kind)
        self._connections: list[pika.BlockingConnection] = []

    def start(self) -> None:
        asyncio.run(self.process.start())

    def stop(self) -> int:
        """Ask it to end; its exit code."""
        return asyncio.run(self.process.stop())

    def kill(self) -> None:
        self.process.kill()

    def live_again(self) -> None:
        """Killed and started."""
        self.kill()
        self.start()

    def channel(self, confirms: bool = True, url_path: str = "") -> BlockingChannel:
        """On a connection of its own, which is never closed in order."""
        url = f"amqp://guest:guest@{self.process.host}:{self.process.port}{url_path}"
        parameters = pika.URLParameters(url)
        parameters.heartbeat = 0
        connection = pika.BlockingConnection(parameters)
        self._connections.append(connection)
        channel = connection.channel()
        if confirms:
            channel.confirm_delivery()
        return channel

    def take_all(self, queue: str) -> list[tuple[bytes, bool]]:
        """(body, redelivered) of all that it has, acknowledged."""
        channel = self.channel(confirms=False)
        found = []
        while True:
            method, _, body = channel.basic_get(queue, auto_ack=True)
            if method is None:
                return found
            assert body is not None
            found.append((body, bool(method.redelivered)))

    def bodies(self, queue: str) -> list[bytes]:
        return [body for body, _ in self.take_all(queue)]


@contextmanager
def one_broker(base: Path, **options: Any) -> Iterator[OneBroker]:
    """Started, and gone at the end."""
    broker = OneBroker(base, **options)
    try:
        broker.start()
        yield broker
    finally:
        broker.process.end()
