"""Clients of a cluster's nodes, and waiting for what comes in its own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from warren.testing import Cluster

NODES = (1, 2, 3)
#: Every pair of a client's node and a queue's.
PAIRS = [(client, home) for client in NODES for home in NODES]
#: How long anything that is sure to come may take on a busy machine.
SOON_S = 30.0
#: What a queue on a node that is suspended or cut off may leave its clients waiting: the silence
#: that counts, and a round of the agreement. Judged by `make timing`.
FAILOVER_S = 3.5

Result = TypeVar("Result")


class Clients:
    """Connections that are closed together."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._made: list[pika.BlockingConnection] = []

    def connection(
        self,
        node: int,
        user: str = "guest",
        vhost: str = "/",
        capabilities: dict[str, bool] | None = None,
    ) -> Any:
        """A connection to a node; `capabilities` are what the client says of itself beyond pika."""
        parameters = pika.URLParameters(self.cluster.url(node))
        parameters.credentials = pika.PlainCredentials(user, user)
        parameters.virtual_host = vhost
        parameters.heartbeat = 0
        if capabilities is not None:
            parameters.client_properties = {"capabilities": capabilities}
        parameters.socket_timeout = parameters.blocked_connection_timeout = 30
        connection = pika.BlockingConnection(parameters)
        self._made.append(connection)
        return connection

    def channel(self, node: int) -> BlockingChannel:
        """A channel of a connection of its own."""
        return self.connection(node).channel()

    def confirming(self, node: int) -> BlockingChannel:
        """A channel whose publishes return when they are confirmed."""
        channel = self.channel(node)
        channel.confirm_delivery()
        return channel

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        for connection in self._made:
            try:
                if connection.is_open:
                    connection.close()
            except Exception:  # its node may be gone
                continue


def eventually(
    look: Callable[[], Result], wanted: object = None, within_s: float = SOON_S
) -> Result:
    """Until `look()` is what is wanted, or true where nothing is said; what it is then."""
    until_s = time.monotonic() + within_s
    while True:
        found = look()
        if found == wanted if wanted is not None else found:
            return found
        assert time.monotonic() < until_s, f"still {found!r} after {within_s:g} s, not {wanted!r}"
        time.sleep(0.02)


def counts(channel: BlockingChannel, queue: str) -> tuple[int, int]:
    """Ready messages and consumers, by a passive declare."""
    method = channel.queue_declare(queue, passive=True).method
    return method.message_count, method.consumer_count


def take(channel: BlockingChannel, queue: str, within_s: float = SOON_S) -> bytes:
    """The next message, acknowledged; waits for it."""
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        _, _, body = channel.basic_get(queue, auto_ack=True)
        if body is not None:
            return body
        time.sleep(0.01)
    raise AssertionError(f"nothing came to {queue} within {within_s:g} s")


def drain(channel: BlockingChannel, queue: str) -> list[bytes]:
    """All that is in the queue now."""
    found = []
    while (body := channel.basic_get(queue, auto_ack=True)[2]) is not None:
        found.append(body)
    return found


class Inbox:
    """Consumes from a queue; `bodies` grows while its connection is waited on."""

    def __init__(self, channel: BlockingChannel, queue: str, **options: Any) -> None:
        self.channel = channel
        self.got: list[tuple[Any, Any, bytes]] = []
        self.cancelled = False
        channel.add_on_cancel_callback(self._on_cancel)
        self.tag = channel.basic_consume(queue, self._on_message, **options)

    def _on_message(self, _channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self.got.append((method, properties, body))

    def _on_cancel(self, _frame: Any) -> None:
        self.cancelled = True

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, _, body in self.got]

    def wait(self, count: int, within_s: float = SOON_S) -> list[bytes]:
        """Until so many have come."""
        self.listen(lambda: len(self.got) >= count, within_s)
        assert len(self.got) >= count, f"{len(self.got)} of {count} came: {self.bodies[:5]}"
        return self.bodies

    def wait_cancelled(self, within_s: float = SOON_S) -> None:
        """Until the broker has cancelled it."""
        self.listen(lambda: self.cancelled, within_s)
        assert self.cancelled

    def listen(self, enough: Callable[[], bool], within_s: float = 0.3) -> None:
        """Take what comes, for a while or until it is enough."""
        until_s = time.monotonic() + within_s
        while not enough() and time.monotonic() < until_s:
            self.channel.connection.process_data_events(0.02)


def counts_if_there(clients: Clients, node: int, queue: str) -> tuple[int, int] | None:
    """The same for a queue that is known but whose home may not be back yet: none then."""
    try:
        return counts(clients.channel(node), queue)
    except pika.exceptions.ChannelClosedByBroker as closed:
        if "is down or inaccessible" not in closed.reply_text:
            raise
        return None


def is_gone(channel: BlockingChannel, queue: str) -> bool:
    """Whether there is no such queue; the channel is closed then, or while it is locked."""
    try:
        counts(channel, queue)
    except pika.exceptions.ChannelClosedByBroker as error:
        return error.reply_code == 404
    return False


def refused(code: int, match: str, act: Callable[[], object]) -> None:
    """The channel is closed with a code and a text."""
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=match) as error:
        act()
    assert error.value.reply_code == code


PERSISTENT = pika.BasicProperties(delivery_mode=2)


def publish(channel: BlockingChannel, queue: str, bodies: list[bytes]) -> None:
    """Persistent messages to one queue."""
    for body in bodies:
        channel.basic_publish("", queue, body, PERSISTENT, mandatory=True)


def until_nacked(channel: BlockingChannel, queue: str) -> float:
    """How long it takes until a publish is refused; every one until then was confirmed."""
    began_s = time.monotonic()
    while time.monotonic() < began_s + SOON_S:
        try:
            channel.basic_publish("", queue, b"unsure", PERSISTENT)
        except pika.exceptions.NackError:
            return time.monotonic() - began_s
        time.sleep(0.005)
    raise AssertionError("publishes go on being confirmed")


def can_connect(clients: Clients, node: int) -> bool:
    """Whether a node lets clients in."""
    try:
        clients.connection(node).close()
    except pika.exceptions.AMQPConnectionError:
        return False
    return True
