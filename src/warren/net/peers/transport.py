"""Making links out of sockets: connecting, accepting, plain or TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any

from warren.net.hub import Hub
from warren.net.listener import Listener, SocketOptions
from warren.net.peers.peer_link import UNSENT_BYTES_MAX
from warren.net.peers.stream_peer_link import StreamPeerLink


class PeerListener(Listener):
    """One address that other nodes connect to."""

    def __init__(
        self, hub: Hub, host: str, port: int, welcome: Callable[[socket.socket, str], None]
    ) -> None:
        self._take = welcome
        super().__init__(hub, host, port, SocketOptions())

    def _welcome(self, client: socket.socket, address: Any) -> None:
        client.setblocking(False)
        tune(client)
        self._take(client, f"{address[0]}:{address[1]}")


def tune(connection: socket.socket) -> None:
    """Frames leave at once, and few bytes wait in the kernel where nothing can overtake them."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    lowat = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    if lowat is not None:
        connection.setsockopt(socket.IPPROTO_TCP, lowat, UNSENT_BYTES_MAX)


async def connect(
    loop: asyncio.AbstractEventLoop, host: str, port: int, timeout_ms: int
) -> socket.socket:
    """A connected socket. Raises OSError, TimeoutError among them."""
    async with asyncio.timeout(timeout_ms / 1000):
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        error: OSError = OSError(f"{host} has no address")
        for family, kind, protocol, _, address in found:
            connection = socket.socket(family, kind, protocol)
            try:
                connection.setblocking(False)
                await loop.sock_connect(connection, address)
                tune(connection)
            except OSError as failed:
                connection.close()
                error = failed
            except BaseException:
                connection.close()
                raise
            else:
                return connection
        raise error


async def encrypt(
    loop: asyncio.AbstractEventLoop,
    link: StreamPeerLink,
    connection: socket.socket,
    context: ssl.SSLContext,
    host: str | None,
    timeout_ms: int,
) -> None:
    """Puts TLS between a link and a socket; `host` is whom we called. Raises OSError."""
    timeout_s = timeout_ms / 1000
    try:
        if host is None:
            await loop.connect_accepted_socket(
                lambda: link, connection, ssl=context, ssl_handshake_timeout=timeout_s
            )
        else:
            await loop.create_connection(
                lambda: link,
                sock=connection,
                ssl=context,
                server_hostname=host,
                ssl_handshake_timeout=timeout_s,
            )
    except BaseException:
        connection.close()
        raise
