"""What operators connect to: the management API, the metrics and the control socket of a node.

The sockets are opened when the node starts, so that a taken port is told at once. The HTTP library
takes longer to import than all the rest of the node; it comes in when the node is ready, and who
connects before that waits a moment.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warren.config.settings import TlsSettings
from warren.management.bringing_back import SalvageReturns
from warren.management.context import Context, ListenerFacts
from warren.management.control_socket import listen_at
from warren.management.events import EventLog
from warren.management.rebalancer import Rebalancer
from warren.management.sampler import Sampler
from warren.management.sessions import derive_key
from warren.net.listener import SocketOptions, listening_socket
from warren.net.tls import make_context
from warren.node.errors import StartError
from warren.node.runtime_settings import RuntimeSettings
from warren.node.shovels import make_shovels
from warren.telemetry.log import logger

if TYPE_CHECKING:
    from warren.management.server import ManagementServer
    from warren.node.node import Node


@dataclass(frozen=True, slots=True)
class _Door:
    """A socket that is open, and what will answer there."""

    listening: socket.socket
    tls: ssl.SSLContext | None
    is_metrics: bool


class Operating:
    """Started after the node, stopped with it."""

    def __init__(self, node: Node) -> None:
        settings = node.settings
        sampler = Sampler(
            node.engine,
            settings.management.statistics_interval_ms,
            settings.management.sample_retention,
        )
        self.context = Context(
            node.engine,
            settings,
            sampler,
            EventLog(node.engine, node.data_dir),
            node.in_turn,
            lambda: [
                ListenerFacts(
                    "amqp/ssl" if listener.is_tls else "amqp",
                    listener.host,
                    listener.port,
                    listener.is_tls,
                )
                for listener in node.open_listeners
            ],
            cluster_control=lambda: node.cluster_control,
            peers=None if node.cluster is None else node.cluster.questions,
            data_dir=node.data_dir,
        )
        self._returns: SalvageReturns | None = None
        if node.store is not None:
            self.context.salvage = node.store.salvage
            self._returns = SalvageReturns(self.context, node.store.salvage)
            if node.engine.mirrors is not None:
                node.engine.mirrors.on_returning = self._returns.put
        if node.secret:
            self.context.session_key = derive_key(node.secret)
        self.context.runtime = RuntimeSettings(node)
        self.context.rebalancer = Rebalancer(self.context)
        self.context.shovels = make_shovels(self.context, lambda: node.is_open)
        #: What could not be opened, where that was to be no reason not to start.
        self.notes: list[str] = []
        self._doors: list[_Door] = []
        self._control: tuple[Path, socket.socket] | None = None
        self._server: ManagementServer | None = None
        self._serving: asyncio.Task[None] | None = None
        self._questions = None if node.cluster is None else node.cluster.questions

    def start(self, control_socket: Path | None, forgiving: bool) -> None:
        """Open what the configuration asks for.

        Raises StartError when something cannot be had that was asked for; where it is a default
        only, or the start is to be forgiving, it is noted.
        """
        settings = self.context.settings
        web, metrics = settings.management, settings.prometheus
        try:
            self._open("management.tcp", web.ip, web.port, None, forgiving)
            if web.tls.port is not None:
                ip = web.tls_ip or web.ip
                self._open("management.ssl", ip, web.tls.port, web.tls, forgiving)
            self._open("prometheus.tcp", metrics.ip, metrics.port, None, forgiving)
            if metrics.tls.port is not None:
                ip = metrics.tls_ip or metrics.ip
                self._open("prometheus.ssl", ip, metrics.tls.port, metrics.tls, forgiving)
        except StartError:
            self._close_doors()
            raise
        if settings.management.rates_mode != "none":
            self.context.sampler.start()
        self.context.events.start()
        self.context.log_tail.start()
        if self._returns is not None:
            self._returns.start()
        if self.context.shovels is not None:
            self.context.shovels.start()
        if self.context.rebalancer is not None:
            self.context.rebalancer.start()
        if control_socket is not None:
            self._open_control(control_socket)
        loop = asyncio.get_running_loop()
        self._serving = loop.create_task(self._serve())

    def _open_control(self, path: Path) -> None:
        """Before anybody hears that the node is ready: who connects at once is answered soon."""
        try:
            self._control = path, listen_at(path)
        except OSError as error:
            logger("management").warning(
                "no control socket at %s: %s; warrenctl cannot reach this node there",
                path,
                error.strerror,
            )

    def _open(
        self, key: str, ip: str | None, port: int, tls: TlsSettings | None, forgiving: bool
    ) -> None:
        try:
            context = make_context(tls) if tls is not None else None
            listening = _listen(ip, port)
        except (OSError, ValueError) as error:
            text = _reason(key, port, error)
            if not forgiving and f"{key}.port" in self.context.settings.given:
                raise StartError(text) from error
            self.notes.append(text)
            return
        is_metrics = key.startswith("prometheus")
        self._doors.append(_Door(listening, context, is_metrics))
        protocol = ("http" if context is None else "https") + ("/prometheus" if is_metrics else "")
        host, bound = listening.getsockname()[:2]
        facts = ListenerFacts(protocol, str(host), int(bound), context is not None)
        self.context.http_listeners.append(facts)

    async def _serve(self) -> None:
        try:
            await self._answer()
        except Exception:
            logger("management").exception("the management API cannot be started")
            raise

    async def _answer(self) -> None:
        loop = asyncio.get_running_loop()
        make_server, make_metrics_app = await loop.run_in_executor(None, _import_servers)
        server = self._server = make_server(self.context)
        if self._questions is not None:
            self._questions.answerer = server.answer_peer
        for door in self._doors:
            app = make_metrics_app(self.context) if door.is_metrics else server.make_app()
            await server.serve(app, door.listening, door.tls)
        if self._control is not None:
            await server.listen_unix(*self._control)
            # From now on it is the server's, to be closed and taken away once.
            self._control = None

    async def ready(self) -> None:
        """Returns when requests are answered; raises what kept them from being."""
        if self._serving is not None:
            await asyncio.shield(self._serving)

    async def stop(self) -> None:
        """Close everything."""
        if self.context.shovels is not None:
            await self.context.shovels.stop()
        if self.context.rebalancer is not None:
            await self.context.rebalancer.stop()
        if self._returns is not None:
            await self._returns.stop()
        await self.context.sampler.stop()
        self.context.events.stop()
        self.context.log_tail.stop()
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)
        if self._server is not None:
            await self._server.stop()
        self._close_doors()

    def _close_doors(self) -> None:
        for door in self._doors:
            door.listening.close()
        self._doors.clear()
        if self._control is not None:
            path, listening = self._control
            self._control = None
            listening.close()
            path.unlink(missing_ok=True)
        self.context.http_listeners.clear()

    def url(self, protocol: str = "http") -> str | None:
        """The address of the first listener of a protocol for a client on this machine."""
        for listener in self.context.http_listeners:
            if listener.protocol == protocol:
                host = "127.0.0.1" if listener.host in {"::", "0.0.0.0"} else listener.host
                host = f"[{host}]" if ":" in host else host
                return f"{protocol.partition('/')[0]}://{host}:{listener.port}"
        return None


def _import_servers() -> tuple[type[ManagementServer], Any]:
    from warren.management.metrics_server import make_metrics_app
    from warren.management.server import ManagementServer

    return ManagementServer, make_metrics_app


def _listen(ip: str | None, port: int) -> socket.socket:
    """No address in the configuration means all of them, as in RabbitMQ."""
    try:
        return listening_socket(ip if ip is not None else "::", port, SocketOptions())
    except OSError as error:
        if ip is not None or error.errno not in {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}:
            raise
        return listening_socket("0.0.0.0", port, SocketOptions())


def _reason(key: str, port: int, error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return (
            f"port {port} is taken by another program, perhaps another broker; "
            f"choose another with {key}.port"
        )
    if isinstance(error, OSError) and error.errno == errno.EACCES:
        return f"port {port} ({key}.port) needs rights this user does not have"
    return f"cannot listen on port {port} ({key}.port): {error}"
