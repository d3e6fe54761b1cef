"""The proxies on links: what they cut, delay and reset, and that they change nothing else."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from warren.testing.link_proxies import LinkProxies

WAIT_S = 30.0
SILENCE_S = 0.2


class Line:
    """One connection from node 1 to node 2, both ends in hand."""

    def __init__(self, links: LinkProxies, listener: socket.socket) -> None:
        self.near = socket.create_connection(("127.0.0.1", links.port(1, 2)), WAIT_S)
        self._listener = listener
        self._far: socket.socket | None = None

    @property
    def far(self) -> socket.socket:
        """The call has to come through first."""
        if self._far is None:
            self._listener.settimeout(WAIT_S)
            self._far, _ = self._listener.accept()
            self._far.settimeout(WAIT_S)
        return self._far

    def close(self) -> None:
        self.near.close()
        if self._far is not None:
            self._far.close()


@pytest.fixture
def line() -> Iterator[tuple[LinkProxies, Line]]:
    with ExitStack() as ends:
        one, two = (ends.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2))
        links = LinkProxies({1: one.getsockname()[1], 2: two.getsockname()[1]}, ends)
        made = Line(links, two)
        ends.callback(made.close)
        yield links, made


def take(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (piece := connection.recv(1 << 20)):
        data += piece
    return data


def is_silent(connection: socket.socket) -> bool:
    connection.settimeout(SILENCE_S)
    try:
        found = connection.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(WAIT_S)
    raise AssertionError(f"{found!r} came")


def test_everything_gets_through_whole(line: tuple[LinkProxies, Line]) -> None:
    links, ends = line
    data = bytes(range(256)) * 2000
    ends.near.sendall(data)
    assert take(ends.far, len(data)) == data
    ends.far.sendall(data)
    assert take(ends.near, len(data)) == data
    assert links.connections(1, 2) == 1
    ends.far.close()
    assert ends.near.recv(1) == b""


def test_one_way_is_cut_and_what_was_said_comes_later(line: tuple[LinkProxies, Line]) -> None:
    links, ends = line
    ends.near.sendall(b"before")
    assert take(ends.far, 6) == b"before"
    links.cut_one_way(1, 2)
    ends.near.sendall(b"held")
    ends.far.sendall(b"heard")
    assert take(ends.near, 5) == b"heard"
    assert is_silent(ends.far)
    links.heal()
    assert take(ends.far, 4) == b"held"


def test_a_cut_hides_calls_and_goodbyes_too(line: tuple[LinkProxies, Line]) -> None:
    links, ends = line
    ends.near.sendall(b"x")
    assert take(ends.far, 1) == b"x"
    links.cut(2, 1)
    ends.near.close()
    assert is_silent(ends.far)
    with socket.create_connection(("127.0.0.1", links.port(1, 2)), WAIT_S) as late:
        late.sendall(b"late")
        ends._listener.settimeout(SILENCE_S)
        with pytest.raises(TimeoutError):
            ends._listener.accept()
        links.heal()
        assert ends.far.recv(1) == b""
        ends._listener.settimeout(WAIT_S)
        with ends._listener.accept()[0] as taken:
            assert take(taken, 4) == b"late"


def test_a_delay_keeps_the_order(line: tuple[LinkProxies, Line]) -> None:
    links, ends = line
    links.delay(1, 2, 0.3)
    began_s = time.monotonic()
    for octet in b"abc":
        ends.near.sendall(bytes((octet,)))
    assert take(ends.far, 3) == b"abc"
    assert time.monotonic() - began_s >= 0.3


def test_what_is_lost_comes_later_and_in_order(line: tuple[LinkProxies, Line]) -> None:
    links, ends = line
    links.lose(1, 2, 0.5)
    sent = bytes(range(20))
    began_s = time.monotonic()
    for octet in sent:
        ends.near.sendall(bytes((octet,)))
        time.sleep(0.01)  # that each is a piece of its own
    assert take(ends.far, len(sent)) == sent
    assert time.monotonic() - began_s >= 0.2
    with pytest.raises(ValueError, match="share"):
        links.lose(1, 2, 1.0)


def test_a_reset_is_seen_at_both_ends(line: tuple[LinkProxies, Line]) -> None:
    links, ends = line
    ends.near.sendall(b"x")
    assert take(ends.far, 1) == b"x"
    links.reset(2, 1)
    for end in (ends.near, ends.far):
        with pytest.raises(ConnectionResetError):
            end.recv(1)
    with socket.create_connection(("127.0.0.1", links.port(1, 2)), WAIT_S):
        ends._listener.settimeout(WAIT_S)
        ends._listener.accept()[0].close()


def test_a_node_that_is_down_resets(line: tuple[LinkProxies, Line]) -> None:
    links, ends = line
    ends._listener.close()
    with (
        socket.create_connection(("127.0.0.1", links.port(1, 2)), WAIT_S) as call,
        pytest.raises(ConnectionResetError),
    ):
        call.recv(1)


def test_a_node_that_is_known_to_be_down_refuses(line: tuple[LinkProxies, Line]) -> None:
    links, ends = line
    ends.near.sendall(b"x")
    assert take(ends.far, 1) == b"x"
    links.refuse_for(2)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", links.port(1, 2)), WAIT_S)
    # What is connected already is up to the node.
    ends.near.sendall(b"y")
    assert take(ends.far, 1) == b"y"
    links.listen_for(2)
    socket.create_connection(("127.0.0.1", links.port(1, 2)), WAIT_S).close()


def test_asked_wrongly(line: tuple[LinkProxies, Line]) -> None:
    links, _ = line
    with pytest.raises(ValueError, match="no way from node 1 to node 3"):
        links.cut(1, 3)
