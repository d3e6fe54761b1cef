"""Proxies on the links between nodes: a network that tests can break in every direction.

For every link, which is one TCP connection from the node that dialled, there is a port of its own.
What goes from one node to another goes through two of them: forward through the link that it
dialled, backward through the one that dialled it.

A direction that is cut is a cable without a signal, not a closed connection: what was sent waits,
as TCP would send it again, and so do new calls and goodbyes. Nothing is lost or changed on the way:
a lossy one is one where some of it comes later, as TCP has to send it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, TypeVar

from warren.node.local_nodes import LOOPBACK
from warren.testing.ports import reserve_ports

CHUNK_BYTES = 1 << 16
#: Chunks that are under way in one direction of a connection; more wait at the sender.
CHUNKS_MAX = 16
#: How long a command may take to get to the proxies' thread.
ANSWER_S = 30.0
#: What a lost segment costs at least: Linux sends nothing again before this.
AGAIN_S = 0.2
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)

Result = TypeVar("Result")


@dataclass(eq=False)
class _Way:
    """What goes from one node to another, on all links of the two."""

    delay_s: float = 0.0
    #: The share of what is sent that has to be sent again.
    lost: float = 0.0
    _open: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._open.set()

    def cut(self) -> None:
        self._open.clear()

    def mend(self) -> None:
        self._open.set()
        self.delay_s = self.lost = 0.0

    def takes_s(self) -> float:
        """What the next piece is delayed by; what is lost again waits twice as long each time."""
        took_s, again_s = self.delay_s, AGAIN_S
        while self.lost and random.random() < self.lost:
            took_s += again_s
            again_s *= 2
        return took_s

    async def passed(self) -> None:
        """Until something may go through."""
        await self._open.wait()


class LinkProxies:
    """See the module's text. Nodes are numbers; all methods may be called from any thread."""

    def __init__(self, link_ports: dict[int, int], ends: ExitStack) -> None:
        """`link_ports` are where the nodes really listen. Ends with `ends`."""
        pairs = [(a, b) for a in link_ports for b in link_ports if a != b]
        ports = reserve_ports(len(pairs), ends)
        self._ports = dict(zip(pairs, ports, strict=True))
        self._targets = link_ports
        self._ways = {pair: _Way() for pair in pairs}
        self._connections: dict[tuple[int, int], set[_Connection]] = {pair: set() for pair in pairs}
        self._servers: dict[tuple[int, int], asyncio.Server] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        ends.callback(self._end)
        for node in link_ports:
            self.listen_for(node)

    def port(self, dialling: int, dialled: int) -> int:
        """Where a node finds another."""
        return self._ports[dialling, dialled]

    def listen_for(self, node: int) -> None:
        """The node runs: calls to it are taken."""
        self._ask(self._listen(node))

    def refuse_for(self, node: int) -> None:
        """The node does not run: calls to it are refused, as the system does by itself."""

        def close() -> None:
            for dialling, dialled in list(self._servers):
                if dialled == node:
                    self._servers.pop((dialling, dialled)).close()

        self._do(close)

    # -- what can be done --------------------------------------------------------------------------

    def cut_one_way(self, sender: int, receiver: int) -> None:
        """Nothing that one node says gets to the other."""
        self._do(self._way(sender, receiver).cut)

    def cut(self, a: int, b: int) -> None:
        """Nothing gets through between two nodes."""
        self.cut_one_way(a, b)
        self.cut_one_way(b, a)

    def isolate(self, n: int) -> None:
        """Nothing gets through between a node and all others."""
        for other in self._targets:
            if other != n:
                self.cut(n, other)

    def delay(self, sender: int, receiver: int, seconds: float) -> None:
        """Everything that one node says takes so much longer to get to the other."""

        def slow_down() -> None:
            self._way(sender, receiver).delay_s = seconds

        self._do(slow_down)

    def lose(self, sender: int, receiver: int, share: float) -> None:
        """Of what one node says to the other a share has to be sent again, as TCP does."""
        if not 0 <= share < 1:
            raise ValueError("a share is from 0 to below 1")

        def lose() -> None:
            self._way(sender, receiver).lost = share

        self._do(lose)

    def reset(self, a: int, b: int) -> None:
        """End all connections between two nodes by a reset; they may call again at once."""

        def end() -> None:
            for pair in ((a, b), (b, a)):
                for connection in list(self._connections[pair]):
                    connection.reset()

        self._way(a, b)
        self._do(end)

    def heal(self) -> None:
        """All ways are open and fast again; what waited goes on."""

        def mend() -> None:
            for way in self._ways.values():
                way.mend()

        self._do(mend)

    def connections(self, dialling: int, dialled: int) -> int:
        """How many connections of this direction go through the proxy now."""
        return self._do(lambda: len(self._connections[dialling, dialled]))

    def _way(self, sender: int, receiver: int) -> _Way:
        way = self._ways.get((sender, receiver))
        if way is None:
            raise ValueError(f"there is no way from node {sender} to node {receiver}")
        return way

    # -- its thread --------------------------------------------------------------------------------

    def _do(self, act: Callable[[], Result]) -> Result:
        async def doing() -> Result:
            return act()

        return self._ask(doing())

    def _ask(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(ANSWER_S)

    async def _listen(self, node: int) -> None:
        for (dialling, dialled), port in self._ports.items():
            if dialled == node and (dialling, dialled) not in self._servers:
                taker = self._taker(dialling, dialled)
                server = await asyncio.start_server(taker, LOOPBACK, port, reuse_address=True)
                self._servers[dialling, dialled] = server

    def _taker(
        self, dialling: int, dialled: int
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]:
        there, back = self._ways[dialling, dialled], self._ways[dialled, dialling]
        connections = self._connections[dialling, dialled]

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = _Connection(writer)
            connections.add(connection)
            try:
                # The call itself and its answer go over the same ways.
                await there.passed()
                await back.passed()
                await connection.go_on(reader, self._targets[dialled], there, back)
            finally:
                connections.discard(connection)
                connection.close()

        return take

    def _end(self) -> None:
        with contextlib.suppress(TimeoutError):
            self._ask(_cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(ANSWER_S)
        if not self._loop.is_running():
            self._loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _Connection:
    """The two ends of one connection, and what is under way between them."""

    def __init__(self, near: asyncio.StreamWriter) -> None:
        self._writers = [near]
        self._pumps: list[asyncio.Task[None]] = []
        self._is_reset = False

    async def go_on(
        self, reader: asyncio.StreamReader, target_port: int, there: _Way, back: _Way
    ) -> None:
        """Call the other node and carry bytes both ways until either end is over."""
        try:
            far_reader, far = await asyncio.open_connection(LOOPBACK, target_port)
        except OSError:
            self.reset()
            return
        self._writers.append(far)
        near = self._writers[0]
        self._pumps = [
            asyncio.create_task(work)
            for work in (*_pump(reader, far, there), *_pump(far_reader, near, back))
        ]
        if self._is_reset:
            self.reset()
        try:
            await asyncio.wait(self._pumps, return_when=asyncio.FIRST_COMPLETED)
            # The end has come through one way; a reset ends the other at once.
        finally:
            self._stop_pumps()

    def reset(self) -> None:
        """Both nodes see that the connection was reset."""
        self._is_reset = True
        for writer in self._writers:
            _reset_when_closed(writer)
            writer.transport.abort()
        self._stop_pumps()

    def close(self) -> None:
        for writer in self._writers:
            writer.close()

    def _stop_pumps(self) -> None:
        for task in self._pumps:
            task.cancel()


def _reset_when_closed(writer: asyncio.StreamWriter) -> None:
    inner = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        inner.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)


def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: _Way
) -> Iterable[Coroutine[Any, Any, None]]:
    """The two halves of one direction: what takes bytes in, and what gives them out when due."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue(CHUNKS_MAX)

    async def take_in() -> None:
        data: bytes | None = b"-"
        while data:
            try:
                data = await reader.read(CHUNK_BYTES)
            except ConnectionError:
                data = None
            await chunks.put((loop.time() + way.takes_s(), data))
        # The other half ends the connection when all before it has gone out.
        await asyncio.Event().wait()

    async def give_out() -> None:
        while True:
            due, data = await chunks.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            await way.passed()
            if not data:
                if data is None:
                    _reset_when_closed(writer)
                return
            try:
                writer.write(data)
                await writer.drain()
            except ConnectionError:
                return

    return take_in(), give_out()
