"""A node: everything built in one place, started, and stopped in reverse."""

from __future__ import annotations

import asyncio
import socket as sockets

from warren.auth.directory import Directory
from warren.base.system import SystemClock, SystemDice
from warren.config.settings import Endpoint, Settings
from warren.engine.engine import Engine
from warren.net.hub import Hub
from warren.net.listener import Listener, SocketOptions
from warren.net.tls import make_context
from warren.net.warden import Warden
from warren.node.memory import MemoryWatch
from warren.node.settings import engine_settings, vhost_limits
from warren.telemetry.log import logger

#: How long a stopping node waits for clients to take their goodbye.
GOODBYE_S = 1.0


class Node:
    """`start` inside a running event loop; `stop` gives everything back."""

    def __init__(self, settings: Settings, name: str | None = None) -> None:
        self.settings = settings
        self.name = name or settings.node.name or f"warren@{sockets.gethostname().split('.')[0]}"
        self.directory = Directory(
            loopback_users=settings.auth.loopback_users,
            hashing_algorithm=settings.auth.password_hashing,
        )
        self.engine = Engine(
            engine_settings(settings, self.name),
            self.directory,
            SystemClock(),
            SystemDice(),
            logger("connection"),
        )
        self.listeners: list[Listener] = []
        self._hub: Hub | None = None
        self._warden: Warden | None = None
        self._memory: MemoryWatch | None = None
        self._wake: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._make_defaults()

    def _make_defaults(self) -> None:
        """The default virtual host, and the users that the configuration names."""
        auth = self.settings.auth
        self.engine.add_vhost(auth.default_vhost)
        self.directory.add_user(auth.default_user, auth.default_pass, auth.default_user_tags)
        self.directory.set_permissions(
            auth.default_user,
            auth.default_vhost,
            auth.default_configure,
            auth.default_write,
            auth.default_read,
        )
        limits = vhost_limits(self.settings, auth.default_vhost)
        if limits:
            self.directory.set_vhost_limits(auth.default_vhost, limits)

    def start(self) -> None:
        """Open the listeners. Raises OSError when a port cannot be had, ValueError for bad TLS."""
        self._loop = asyncio.get_running_loop()
        self._hub = Hub(self._loop, self.engine)
        self.engine.effects.on_relieved = self._hub.relieved
        self.engine.timers.on_earlier = self._schedule
        try:
            self._open_listeners(self._hub)
        except BaseException:
            self._close_listeners()
            raise
        self._warden = Warden(self._hub, self.settings.listeners.handshake_timeout_ms)
        self._warden.start()
        self._memory = MemoryWatch(self.engine, self.settings.memory, self._loop)
        self._memory.start()
        self.engine.watch_timeouts()

    def _open_listeners(self, hub: Hub) -> None:
        settings = self.settings.listeners
        options = SocketOptions(
            backlog=settings.backlog,
            nodelay=settings.nodelay,
            keepalive=settings.keepalive,
            send_buffer_bytes=settings.sndbuf_bytes,
            receive_buffer_bytes=settings.recbuf_bytes,
        )
        for endpoint in settings.tcp:
            self.listeners.append(Listener(hub, _host(endpoint), endpoint.port, options))
        if settings.ssl:
            context = make_context(self.settings.tls)
            for endpoint in settings.ssl:
                listener = Listener(hub, _host(endpoint), endpoint.port, options, context)
                self.listeners.append(listener)

    def _close_listeners(self) -> None:
        for listener in self.listeners:
            listener.close()

    def _schedule(self, at_ms: int) -> None:
        """The engine's next deadline has moved forward."""
        assert self._loop is not None
        if self._wake is not None:
            self._wake.cancel()
        delay_s = max(0, at_ms - self.engine.clock.now_ms()) / 1000
        self._wake = self._loop.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        assert self._hub is not None
        self._wake = None
        self._hub.begin_turn()
        try:
            self.engine.tick()
        finally:
            self._hub.end_turn()
        next_ms = self.engine.timers.next_ms()
        if next_ms is not None and self._wake is None:
            self._schedule(next_ms)

    @property
    def port(self) -> int:
        """The port of the first plain listener."""
        return int(self.listeners[0].port)

    async def stop(self) -> None:
        """Say goodbye to the clients, then close everything."""
        self._close_listeners()
        if self._hub is None:
            return
        self.engine.close_all("broker forced connection closure with reason 'shutdown'")
        deadline = asyncio.get_running_loop().time() + GOODBYE_S
        while self._hub.links and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.005)
        for link in list(self._hub.links):
            link.lost()
        if self._warden is not None:
            self._warden.stop()
        if self._memory is not None:
            self._memory.stop()
        if self._wake is not None:
            self._wake.cancel()
        self.engine.timers.on_earlier = None


def _host(endpoint: Endpoint) -> str:
    """No address in the configuration means all of them, as in RabbitMQ."""
    return endpoint.host if endpoint.host is not None else "::"
