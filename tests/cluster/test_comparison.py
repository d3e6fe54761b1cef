"""What the comparison with RabbitMQ stands on: a name daemon that sends nodes through proxies."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from compare import COLUMNS, compared, table
from fault_run import unfinished
from name_daemon import LOOPBACK, NameDaemon, Names

from warren.testing.ports import reserve_ports

OWN_PORT, PROXY_PORT = 40_001, 40_002


@pytest.fixture
def daemons() -> Iterator[tuple[NameDaemon, NameDaemon]]:
    """Of two nodes; the second finds the first through a proxy."""
    with ExitStack() as ends:
        one, two = reserve_ports(2, ends)
        names = Names()
        yield (
            NameDaemon(names, lambda _name: None, one, ends),
            NameDaemon(names, {"rabbit1": PROXY_PORT}.get, two, ends),
        )


def call(daemon: NameDaemon, request: bytes) -> socket.socket:
    connection = socket.create_connection((LOOPBACK, daemon.port), 5)
    connection.sendall(struct.pack("!H", len(request)) + request)
    return connection


def where(daemon: NameDaemon, name: str) -> int | None:
    """The port that a daemon tells of a node."""
    with call(daemon, bytes([122]) + name.encode()) as connection:
        answer = connection.recv(1024)
    assert answer[0] == 119
    return struct.unpack_from("!H", answer, 2)[0] if answer[1] == 0 else None


def register(daemon: NameDaemon, name: str) -> tuple[socket.socket, int]:
    encoded = name.encode()
    request = struct.pack("!BHBBHHH", 120, OWN_PORT, 77, 0, 6, 5, len(encoded))
    connection = call(daemon, request + encoded + struct.pack("!H", 0))
    kind, outcome, incarnation = struct.unpack("!BBI", connection.recv(6))
    assert (kind, outcome) == (118, 0)
    return connection, incarnation


def test_each_node_is_told_of_its_own_way(daemons: tuple[NameDaemon, NameDaemon]) -> None:
    one, two = daemons
    assert where(two, "rabbit1") is None
    alive, first_life = register(one, "rabbit1")
    assert where(one, "rabbit1") == OWN_PORT
    assert where(two, "rabbit1") == PROXY_PORT
    with call(two, bytes([110])) as connection:
        answer = connection.recv(1024)
    assert answer[4:] == f"name rabbit1 at port {OWN_PORT}\n".encode()
    alive.close()
    until_s = time.monotonic() + 5
    while where(two, "rabbit1") is not None:
        assert time.monotonic() < until_s, "one that is gone is still known"
        time.sleep(0.01)
    again, second_life = register(one, "rabbit1")
    assert second_life > first_life
    again.close()


@pytest.mark.parametrize("request_", [b"", b"\x00\x00", b"\xff\xff", b"\x00\x02\x78\x00"])
def test_nonsense_ends_nothing(daemons: tuple[NameDaemon, NameDaemon], request_: bytes) -> None:
    one, _ = daemons
    with socket.create_connection((LOOPBACK, one.port), 5) as connection:
        connection.sendall(request_)
    assert where(one, "nobody") is None


def test_a_row_has_all_columns() -> None:
    row = compared("rabbitmq:autoheal", "ends", unfinished(), 1)
    assert len(row.cells) == len(COLUMNS)
    assert table([row]).splitlines()[-1].startswith("| RabbitMQ | `autoheal` |")
