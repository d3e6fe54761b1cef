"""A name daemon of Erlang's that sends one node's calls to the others through proxies.

An Erlang node asks its name daemon for the port at which another node takes calls. With a daemon of
its own for each node, each is told ports of proxies instead, so that what RabbitMQ's nodes say to
each other goes through the same `LinkProxies` as what Warren's do, and breaks in the same ways.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import socketserver
import struct
import threading
from collections.abc import Callable
from contextlib import ExitStack

LOOPBACK = "127.0.0.1"
#: Requests and answers of the protocol.
ALIVE, PORT_PLEASE, NAMES = 120, 122, 110
ALIVE_ANSWER, ALIVE_ANSWER_WIDE, PORT_ANSWER = 121, 118, 119
#: From this version of the distribution on, an incarnation has four octets.
WIDE_VERSION = 6
REQUEST_BYTES_MAX = 1024


class Names:
    """Who is registered, with all daemons: name without host, and the port of its own."""

    def __init__(self) -> None:
        self._ports: dict[str, int] = {}
        self._lock = threading.Lock()
        #: Two lives of a node must not be taken for one.
        self._incarnations = itertools.count(1)

    def register(self, name: str, port: int) -> int:
        """Until `forget`; its incarnation."""
        with self._lock:
            self._ports[name] = port
            return next(self._incarnations)

    def forget(self, name: str, port: int) -> None:
        """It has ended, unless another has its name by now."""
        with self._lock:
            if self._ports.get(name) == port:
                del self._ports[name]

    def port(self, name: str) -> int | None:
        with self._lock:
            return self._ports.get(name)

    def all(self) -> dict[str, int]:
        with self._lock:
            return dict(self._ports)


class NameDaemon:
    """One node's. `proxy_port(name)` is where it finds another node; None: at its own port."""

    def __init__(
        self, names: Names, proxy_port: Callable[[str], int | None], port: int, ends: ExitStack
    ) -> None:
        self._names = names
        self._proxy_port = proxy_port
        self.port = port
        daemon = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                # A node that is killed says no goodbye.
                with contextlib.suppress(OSError, struct.error, UnicodeDecodeError):
                    daemon._answer(self.request)

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

        self._server = Server((LOOPBACK, port), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        ends.callback(self._server.server_close)
        ends.callback(self._server.shutdown)

    def _answer(self, connection: socket.socket) -> None:
        size = int.from_bytes(_receive(connection, 2))
        if not 1 <= size <= REQUEST_BYTES_MAX:
            return
        request = _receive(connection, size)
        if request[0] == ALIVE:
            self._keep(connection, request)
        elif request[0] == PORT_PLEASE:
            connection.sendall(self._where(request[1:].decode()))
        elif request[0] == NAMES:
            rows = [f"name {name} at port {port}\n" for name, port in self._names.all().items()]
            connection.sendall(struct.pack("!I", self.port) + "".join(rows).encode())

    def _keep(self, connection: socket.socket, request: bytes) -> None:
        """It is registered as long as its connection stands."""
        port, _, _, highest, _, length = struct.unpack_from("!HBBHHH", request, 1)
        name = request[11 : 11 + length].decode()
        incarnation = self._names.register(name, port)
        try:
            if highest >= WIDE_VERSION:
                connection.sendall(struct.pack("!BBI", ALIVE_ANSWER_WIDE, 0, incarnation))
            else:
                connection.sendall(struct.pack("!BBH", ALIVE_ANSWER, 0, incarnation))
            while connection.recv(REQUEST_BYTES_MAX):
                pass
        finally:
            self._names.forget(name, port)

    def _where(self, name: str) -> bytes:
        port = self._names.port(name)
        if port is None:
            return struct.pack("!BB", PORT_ANSWER, 1)
        told = self._proxy_port(name) or port
        encoded = name.encode()
        row = struct.pack("!BBHBBHHH", PORT_ANSWER, 0, told, 77, 0, 6, 5, len(encoded))
        return row + encoded + struct.pack("!H", 0)


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        more = connection.recv(size - len(received))
        if not more:
            raise ConnectionError("the caller has hung up")
        received += more
    return received
