"""The limits that a node's configuration sets, as clients meet them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from conftest import Clients, Server
from live_broker import LiveNode
from raw_client import TIMEOUT_S, Closed, RawConnection

from warren.auth.directory import DirectoryError

CONNECTIONS = 3
CHANNELS = 4
CONSUMERS = 2
VHOSTS = 2


@pytest.fixture(scope="module")
def limited() -> Iterator[LiveNode]:
    live = LiveNode(
        {
            "connection_max": CONNECTIONS,
            "channel_max_per_node": CHANNELS,
            "consumer_max_per_channel": CONSUMERS,
            "vhost_max": VHOSTS,
        }
    )
    yield live
    live.stop()


@pytest.fixture
def own(limited: LiveNode) -> Iterator[Clients]:
    """Connections to the limited node; what one test opened is gone before the next begins."""
    made = Clients(Server(limited.host, limited.port, limited.operator, limited), "/")
    yield made
    for connection in made.made:
        connection.drop()
    engine = limited.node.engine
    deadline = time.monotonic() + TIMEOUT_S
    while limited.call(lambda: len(engine.connections)):
        assert time.monotonic() < deadline, "connections are left over"
        time.sleep(0.005)


def refused_open(clients: Clients) -> Closed:
    """What a connection that is one too many is told."""
    connection = clients.socket()
    connection.greet()
    connection.start_ok()
    connection.expect(0, "connection.tune")
    connection.send(0, "connection.tune-ok", channel_max=10, frame_max=131072, heartbeat=0)
    connection.send(0, "connection.open", virtual_host="/")
    return connection.closed()


def test_connection_max(own: Clients) -> None:
    opened = [own.connect() for _ in range(CONNECTIONS)]
    assert refused_open(own) == Closed(
        "connection",
        530,
        f"NOT_ALLOWED - connection refused: node connection limit ({CONNECTIONS}) is reached",
    )
    opened[0].close()
    own.connect().channel().declare("q")


def test_channel_max_per_node(own: Clients) -> None:
    first, second = own.connect(), own.connect()
    for number in range(1, CHANNELS):
        first.channel(number)
    last = second.channel(1)
    refusal = refused_channel(first, CHANNELS)
    assert refusal == Closed(
        "connection",
        530,
        f"NOT_ALLOWED - number of channels opened on node has reached the limit of ({CHANNELS})",
    )
    # The refused connection is closed, and its channels count no more.
    last.declare("q")
    second.channel(2)


def refused_channel(connection: RawConnection, number: int) -> Closed:
    connection.send(number, "channel.open")
    return connection.closed()


def test_consumer_max_per_channel(own: Clients) -> None:
    connection = own.connect()
    channel = connection.channel()
    channel.declare("q")
    for number in range(CONSUMERS):
        channel.consume("q", f"{number}")
    channel.call("basic.cancel", consumer_tag="0")
    channel.consume("q", "again")
    connection.channel(2).consume("q")
    assert channel.refused("basic.consume", queue="q") == Closed(
        "connection", 530, f"NOT_ALLOWED - reached maximum ({CONSUMERS}) of consumers per channel"
    )


def test_vhost_max(own: Clients, limited: LiveNode) -> None:
    limited.operator.add_vhost("second")
    with pytest.raises(DirectoryError, match=f"vhost limit of {VHOSTS} is reached"):
        limited.operator.add_vhost("third")
    limited.operator.delete_vhost("second")
    limited.operator.add_vhost("third")
    own.connect(vhost="third")
    limited.operator.delete_vhost("third")
