"""Fixtures of the live tests: one broker a process, one virtual host a test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
from live_broker import LiveNode, ManagementOperator, Operator
from raw_client import RawChannel, RawConnection

from warren.engine import timeouts

#: The broker looks for late acknowledgements this often in tests.
TIMEOUT_CHECK_MS = 50
_numbers = itertools.count(1)


@dataclass
class Server:
    """The broker under test, seen from outside."""

    host: str
    port: int
    operator: Operator
    live: LiveNode | None


@dataclass
class Clients:
    """Makes connections to the test's virtual host and ends them all with the test."""

    server: Server
    vhost: str
    made: list[RawConnection] = field(default_factory=list)

    def socket(self) -> RawConnection:
        """A connection before its handshake."""
        connection = RawConnection(self.server.host, self.server.port)
        self.made.append(connection)
        return connection

    def connect(self, **options: Any) -> RawConnection:
        """An open connection."""
        return self.socket().handshake(options.pop("vhost", self.vhost), **options)

    def channel(self, **options: Any) -> RawChannel:
        """A channel on a connection of its own."""
        return self.connect(**options).channel()

    def drop(self) -> None:
        for connection in self.made:
            connection.drop()


@pytest.fixture(scope="session")
def live_node() -> Iterator[LiveNode]:
    """Warren itself, for what only its own process can show."""
    timeouts.CHECK_INTERVAL_MS = TIMEOUT_CHECK_MS
    live = LiveNode({})
    yield live
    live.stop()


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Server:
    url = os.environ.get("WARREN_TEST_URL")
    if url is None:
        live: LiveNode = request.getfixturevalue("live_node")
        return Server(live.host, live.port, live.operator, live)
    parts = urlsplit(url)
    management = os.environ["WARREN_TEST_MANAGEMENT"]
    operator = ManagementOperator(management, parts.username or "guest", parts.password or "guest")
    return Server(parts.hostname or "127.0.0.1", parts.port or 5672, operator, None)


@pytest.fixture
def operator(server: Server) -> Operator:
    return server.operator


@pytest.fixture
def node(server: Server) -> LiveNode:
    """The node in this process; tests that need it cannot be run on another broker."""
    if server.live is None:
        pytest.skip("needs Warren in this process")
    return server.live


@pytest.fixture
def warren_only(server: Server) -> None:
    """Where RabbitMQ hangs up without a word, or misbehaves, and Warren does as documented."""
    if server.live is None:
        pytest.skip("RabbitMQ 3.10 does otherwise")


@pytest.fixture
def vhost(server: Server) -> Iterator[str]:
    """A fresh virtual host."""
    name = f"v{os.getpid()}-{next(_numbers)}"
    server.operator.add_vhost(name)
    yield name
    server.operator.delete_vhost(name)


@pytest.fixture
def clients(server: Server, vhost: str) -> Iterator[Clients]:
    made = Clients(server, vhost)
    yield made
    made.drop()


@pytest.fixture
def connection(clients: Clients) -> RawConnection:
    return clients.connect()


@pytest.fixture
def channel(connection: RawConnection) -> RawChannel:
    return connection.channel()


@pytest.fixture
def confirming(connection: RawConnection) -> RawChannel:
    """A channel in confirm mode, number 2 of `connection`."""
    made = connection.channel(2)
    made.call("confirm.select")
    return made


@pytest.fixture
def make_user(server: Server, vhost: str) -> Iterator[Callable[..., str]]:
    """Makes users with permissions in the test's virtual host; their password is their name."""
    made: list[str] = []

    def make(configure: str = ".*", write: str = ".*", read: str = ".*", tags: Any = ()) -> str:
        name = f"u{os.getpid()}-{next(_numbers)}"
        server.operator.add_user(name, name, list(tags))
        made.append(name)
        server.operator.permit(name, vhost, configure, write, read)
        return name

    yield make
    for name in made:
        server.operator.delete_user(name)
