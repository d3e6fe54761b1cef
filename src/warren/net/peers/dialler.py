"""Calling one peer again and again, for as long as it is a peer."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from warren.net.peers.peer_link import PeerLink
from warren.net.peers.transport import connect

if TYPE_CHECKING:
    import socket

    from warren.net.peers.network import PeerNetwork

#: A link that held for less than this was no success: the next pause is longer all the same.
HELD_MS = 1000


class Dialler:
    """The link that we dial to one peer."""

    def __init__(
        self,
        network: PeerNetwork,
        peer: str,
        address: tuple[str, int],
        greet: Callable[[Dialler, socket.socket], Awaitable[None]],
    ) -> None:
        self._network = network
        self.peer = peer
        self.host, self.port = address
        self._greet = greet
        self._wake = asyncio.Event()
        #: The connection there is, ready or not; `greet` sets it.
        self.link: PeerLink | None = None
        self._ready_ms: int | None = None
        self._task = network.hub.loop.create_task(self._run())

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def hurry(self) -> None:
        """There is reason to think that it can be reached now."""
        self._wake.set()

    def close(self) -> None:
        """Call no more."""
        self._task.cancel()
        if self.link is not None:
            self.link.lost("it is no peer any more")

    def lost(self, link: PeerLink) -> None:
        """The link is over."""
        if self.link is link:
            self.link = None
            self._wake.set()

    async def _run(self) -> None:
        options = self._network.options
        pause_ms = options.redial_first_ms
        while True:
            await self._until_unblocked()
            self._ready_ms = None
            try:
                await self._call()
            except Exception:
                self._network.log.exception("a fault of ours while calling node %s", self.peer)
            while self.link is not None:
                self._wake.clear()
                await self._wake.wait()
            if self._has_held():
                pause_ms = options.redial_first_ms
            await self._rest(pause_ms)
            pause_ms = min(2 * pause_ms, options.redial_max_ms)

    def ready(self) -> None:
        """The greeting went well."""
        self._ready_ms = self._network.now_ms()

    def _has_held(self) -> bool:
        return self._ready_ms is not None and self._network.now_ms() - self._ready_ms >= HELD_MS

    async def _until_unblocked(self) -> None:
        while self._network.is_blocked(self.peer):
            self._wake.clear()
            await self._wake.wait()

    async def _rest(self, pause_ms: int) -> None:
        self._wake.clear()
        try:
            async with asyncio.timeout(pause_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _call(self) -> None:
        network = self._network
        try:
            connection = await connect(
                network.hub.loop, self.host, self.port, network.options.greeting_timeout_ms
            )
            await self._greet(self, connection)
        except ConnectionRefusedError:
            network.dial_failed(self, "the connection is refused", refused=True)
        except (OSError, ssl.SSLError, UnicodeError) as error:
            network.dial_failed(self, str(error) or type(error).__name__, refused=False)
