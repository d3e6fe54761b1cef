"""Listeners: accepting clients, plain or TLS."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from dataclasses import dataclass
from typing import Any

from warren.engine.connections import Peer
from warren.net.certificate import peer_certificate
from warren.net.hub import Hub
from warren.net.link import Link, SocketLink, StreamLink

#: Clients accepted per turn: a storm of them must not keep the others waiting.
ACCEPTS_PER_TURN = 64
#: A TLS client that has not finished its handshake by then is dropped.
TLS_HANDSHAKE_TIMEOUT_S = 5.0
#: How long to leave a listener alone when the process is out of file descriptors.
ACCEPT_RETRY_S = 0.5


@dataclass(frozen=True, slots=True)
class SocketOptions:
    """How sockets of a listener are set up; None leaves the system's choice."""

    backlog: int = 128
    nodelay: bool = True
    keepalive: bool = False
    send_buffer_bytes: int | None = None
    receive_buffer_bytes: int | None = None


class Listener:
    """One address that clients connect to."""

    def __init__(
        self,
        hub: Hub,
        host: str,
        port: int,
        options: SocketOptions,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._hub = hub
        self._options = options
        self._tls = tls
        self._socket = listening_socket(host, port, options)
        self._handshakes: set[asyncio.Task[None]] = set()
        self.host, self.port = self._socket.getsockname()[:2]
        hub.loop.add_reader(self._socket.fileno(), self._on_acceptable)

    @property
    def is_tls(self) -> bool:
        return self._tls is not None

    def close(self) -> None:
        """Accept no more clients."""
        if self._socket.fileno() >= 0:
            self._hub.loop.remove_reader(self._socket.fileno())
            self._socket.close()
        for task in self._handshakes:
            task.cancel()

    def _on_acceptable(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                client, address = self._socket.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                self._rest(error)
                return
            self._welcome(client, address)

    def _rest(self, error: OSError) -> None:
        """Out of file descriptors: trying again at once would only burn the processor."""
        self._hub.engine.log.error("cannot accept clients: %s; raise the open files limit", error)
        fd = self._socket.fileno()
        self._hub.loop.remove_reader(fd)
        self._hub.loop.call_later(
            ACCEPT_RETRY_S,
            lambda: (
                self._socket.fileno() >= 0 and self._hub.loop.add_reader(fd, self._on_acceptable)
            ),
        )

    def _welcome(self, client: socket.socket, address: Any) -> None:
        client.setblocking(False)
        _set_options(client, self._options)
        peer = make_peer(client, address, self._tls is not None)
        name = f"{peer.host}:{peer.port} -> {peer.local_host}:{peer.local_port}"
        if self._tls is None:
            SocketLink(self._hub, client, peer, name)
            return
        task = self._hub.loop.create_task(self._shake_hands(client, peer, name))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, client: socket.socket, peer: Peer, name: str) -> None:
        assert self._tls is not None
        made: list[Link] = []

        def protocol() -> Any:
            link = StreamLink(self._hub, peer, name)
            made.append(link)
            return link

        try:
            transport, _ = await self._hub.loop.connect_accepted_socket(
                protocol,
                client,
                ssl=self._tls,
                ssl_handshake_timeout=TLS_HANDSHAKE_TIMEOUT_S,
            )
        except (OSError, ssl.SSLError, TimeoutError) as error:
            self._hub.engine.log.warning("%s: TLS handshake failed: %s", name, error)
            for link in made:
                link.lost()
            client.close()
            return
        session = transport.get_extra_info("ssl_object")
        made[0].connection.peer = Peer(
            peer.host,
            peer.port,
            peer.local_host,
            peer.local_port,
            peer.is_loopback,
            True,
            peer_certificate(session),
        )


def make_peer(client: socket.socket, address: Any, tls: bool) -> Peer:
    """Who is at the other end; unix sockets count as loopback."""
    if client.family not in {socket.AF_INET, socket.AF_INET6}:
        return Peer("localhost", 0, "localhost", 0, True, tls)
    local = client.getsockname()
    host = str(address[0])
    parsed = ipaddress.ip_address(host.split("%", 1)[0])
    mapped = getattr(parsed, "ipv4_mapped", None)
    is_loopback = (mapped or parsed).is_loopback
    return Peer(host, int(address[1]), str(local[0]), int(local[1]), is_loopback, tls)


def listening_socket(host: str, port: int, options: SocketOptions) -> socket.socket:
    """A socket that takes clients; `::` takes those of IPv4 too. Raises OSError."""
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, host != "::")
        listening.setblocking(False)
        listening.bind(address)
        listening.listen(options.backlog)
    except OSError:
        listening.close()
        raise
    return listening


def _set_options(client: socket.socket, options: SocketOptions) -> None:
    if client.family in {socket.AF_INET, socket.AF_INET6}:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, options.nodelay)
    if options.keepalive:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if options.send_buffer_bytes is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer_bytes)
    if options.receive_buffer_bytes is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer_bytes)
