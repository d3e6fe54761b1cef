"""Networks of nodes in one process, for the tests of links: a hub and an owner that notes all."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import uvloop

from warren.base.system import SystemClock
from warren.model.ports import FrameSink, QueueEffects, TurnClock
from warren.net.hub import Hub
from warren.net.peers.handshake import Hello, Refusal
from warren.net.peers.network import PeerNetwork
from warren.net.peers.owner import PeerOwner
from warren.net.peers.peer_link import PeerLink
from warren.net.peers.python_sink import PythonSink
from warren.net.peers.settings import Identity, PeerOptions, PeerTls

SECRET = b"rabbits like carrots"
DATA = 40
RING = 70
CONTROL = 20
HOST = "127.0.0.1"


def make_hub(log: logging.Logger) -> Hub:
    engine = SimpleNamespace(
        turn=TurnClock(),
        journal=None,
        effects=QueueEffects(),
        resuming=[],
        log=log,
        clock=SystemClock(),
    )
    return Hub(asyncio.get_running_loop(), engine)


class Notes(PeerOwner):
    """An owner that remembers what it was told, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.control: list[tuple[str, int, bytes]] = []
        self.frames: list[tuple[str, int, bytes]] = []
        self.links: dict[str, PeerLink] = {}
        self.home_links: list[PeerLink] = []
        self.home_sinks: list[PythonSink] = []
        self.keep_frames = True
        self.refuse: dict[str, Refusal] = {}
        self.fault: Exception | None = None

    def accept(self, hello: Hello) -> Refusal | None:
        return self.refuse.get(hello.name)

    def make_gateway_sink(self, link: PeerLink) -> FrameSink:
        self.links[link.peer] = link
        return self._sink(link, "gateway")

    def make_home_sink(self, link: PeerLink) -> FrameSink:
        sink = self._sink(link, "home")
        self.home_links.append(link)
        self.home_sinks.append(sink)
        return sink

    def _sink(self, link: PeerLink, side: str) -> PythonSink:
        peer = link.peer

        def take(kind: int, payload: bytes) -> None:
            if self.fault is not None:
                raise self.fault
            self.frames.append((peer, kind, payload))

        def lost() -> None:
            self.events.append(("lost", side, peer))

        self.events.append(("sink", side, peer))
        return PythonSink(take if self.keep_frames else None, lost)

    def on_control(self, peer: str, kind: int, payload: bytes) -> None:
        if self.fault is not None:
            raise self.fault
        self.control.append((peer, kind, payload))

    def on_up(self, peer: str, incarnation: int) -> None:
        self.events.append(("up", peer, incarnation))

    def on_down(self, peer: str) -> None:
        self.events.append(("down", peer))

    def on_refused(self, peer: str) -> None:
        self.events.append(("refused", peer))

    def count(self, *event: Any) -> int:
        return self.events.count(event)


FAST = PeerOptions(ping_ms=50, silence_ms=250, greeting_timeout_ms=300, redial_max_ms=100)


class Node:
    """A network that listens, with its owner."""

    def __init__(
        self,
        name: str,
        *,
        incarnation: int = 1,
        cluster_id: str = "warren-1",
        secret: bytes = SECRET,
        options: PeerOptions = FAST,
        tls: PeerTls | None = None,
        listen: bool = True,
        port: int = 0,
    ) -> None:
        self.name = name
        self.notes = Notes()
        log = logging.getLogger(f"peers.{name}")
        log.setLevel(logging.DEBUG)
        self.network = PeerNetwork(
            make_hub(log),
            Identity(name, incarnation, cluster_id),
            secret,
            log,
            self.notes,
            options=options,
            tls=tls,
        )
        self.port = self.network.listen(HOST, port) if listen else 0

    @property
    def address(self) -> tuple[str, int]:
        return HOST, self.port

    def link(self, peer: str) -> PeerLink:
        link = self.network.link_to(peer)
        assert link is not None
        return link

    def came(self, peer: str) -> PeerLink:
        link = self.network.link_from(peer)
        assert link is not None
        return link

    def is_up(self, peer: str) -> bool:
        return self.network.link_to(peer) is not None


async def until(condition: Callable[[], object], what: str = "", timeout_s: float = 30.0) -> None:
    """Waits for something that has to happen."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, what or "it did not happen"
        await asyncio.sleep(0.005)


async def join(*nodes: Node) -> None:
    """Everybody dials everybody."""
    for node in nodes:
        node.network.set_peers({other.name: other.address for other in nodes if other is not node})
    for node in nodes:
        for other in nodes:
            if other is not node:
                await until(lambda n=node, o=other: n.is_up(o.name), f"{node.name} {other.name}")
                await until(lambda n=node, o=other: n.network.link_from(o.name))


def run(scenario: Callable[[], Coroutine[Any, Any, None]], factory: Any = None) -> None:
    """Runs a scenario on uvloop; an exception that nobody caught fails it."""
    faults: list[dict[str, Any]] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        try:
            await scenario()
        finally:
            for node in NODES:
                node.network.close()
            NODES.clear()
            # Whatever was cancelled or closed gets the time to end.
            await asyncio.sleep(0.02)

    with asyncio.Runner(loop_factory=factory or uvloop.new_event_loop) as runner:
        runner.run(watched())
    assert not faults, faults


NODES: list[Node] = []


def node(name: str, **options: Any) -> Node:
    """A node that is closed when the scenario is over."""
    made = Node(name, **options)
    NODES.append(made)
    return made


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
