"""Links between simulated brokers: each dials each, frames keep their order, both ends break alone.

The ends are the product's own for links in memory; who takes the frames are its gateways, homes and
rings. A way that is cut holds frames up, as TCP does; whoever hears nothing for a while hangs up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.world import Violation
from warren.engine.ring_sink import RING_PIECE, RING_WHOLE
from warren.gateway.memory_link import MemoryLink, MemoryPeer, end_turn, feed
from warren.node.forking import FORKS
from warren.node.peer_questions import ANSWER, ASK

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.broker_node import BrokerNode
    from warren.model.ports import FrameSink

TICK_US = 100_000
SILENCE_US = 1_500_000
REDIAL_US = 200_000

#: What the product's join takes, and what its rings take.
CONTROLS = frozenset((ASK, ANSWER, FORKS))
OF_RINGS = frozenset((RING_WHOLE, RING_PIECE))

Frames = list[tuple[int, bytes]]


class End:
    """One end of a link: what its node writes arrives at `other`."""

    other: End

    def __init__(self, node: BrokerNode, port: MemoryPeer, is_dialled: bool) -> None:
        self.node = node
        self.life = node.boot
        self.port = port
        self.peer = port.peer
        self.incarnation = port.incarnation
        self.is_dialled = is_dialled
        self.is_lost = False
        self.ring: FrameSink | None = None
        self.heard_us = node.world.now_us
        #: No frame arrives before the one ahead of it.
        self.last_us = 0
        self.held: list[Frames] = []

    @property
    def is_alive(self) -> bool:
        """Whether the process that has this end is there."""
        return self.node.is_up and self.node.boot == self.life

    def send(self, kind: int, payload: bytes) -> None:
        """A frame of a ring."""
        if not self.is_lost:
            self.port.send(kind, payload)

    def carry(self, frames: Frames) -> None:
        """The turn is over: what was written goes on its way."""
        if not self.is_lost:
            world = self.node.world
            delay = self.node.cluster.network.link_delay()
            self.last_us = max(self.last_us, world.now_us + delay)
            world.at(self.last_us, lambda: self._arrive(frames))

    def _arrive(self, frames: Frames) -> None:
        network = self.node.cluster.network
        if self.held or network.is_one_way_cut(self.node.name, self.peer):
            self.held.append(frames)
        else:
            self._give(frames)

    def release(self) -> None:
        """The way is free again."""
        held, self.held = self.held, []
        for frames in held:
            self._give(frames)

    def _give(self, frames: Frames) -> None:
        other = self.other
        if other.is_lost or not other.is_alive:
            # Nobody has that connection any more, which its machine says if there is one.
            if other.node.is_up and self.is_alive:
                self.node.soon(lambda: self.lose("nobody is there"))()
            return
        other.node.soon(lambda: other.take(frames))()

    def take(self, frames: Frames) -> None:
        """Frames have come."""
        if self.is_lost:
            return
        self.heard_us = self.node.world.now_us

        def act() -> None:
            note_bytes = self.node.world.note_bytes
            for kind, payload in frames:
                if self.is_lost:
                    return
                note_bytes(payload)
                if kind in CONTROLS:
                    self.node.product.on_control(self.peer, kind, payload)
                    continue
                sink = self.ring if kind in OF_RINGS else self.port.sink
                if sink is not None:
                    feed(sink, kind, payload)
            end_turn(self.port.sink)

        try:
            self.node.in_turn(act)
        except ValueError as error:
            raise Violation(f"{self.node.name} cannot believe {self.peer}: {error}") from error

    def lose(self, why: str) -> None:
        """The connection is over for this end."""
        if self.is_lost or not self.is_alive:
            return
        self.node.world.note(f"link {self.node.name}-{self.peer} {self.is_dialled} {why}")
        self.is_lost = True
        self.port.take()
        self.node.in_turn(self._tell_lost)
        self.hang_up()

    def _tell_lost(self) -> None:
        self.port.sink.link_lost()
        self.node.links.over(self)

    def hang_up(self) -> None:
        """The other end is told, if anything goes there."""
        other, network = self.other, self.node.cluster.network
        if not network.is_one_way_cut(self.node.name, self.peer):
            gone: Callable[[], None] = other.node.soon(lambda: other.lose("the other end is gone"))
            self.node.world.after(network.link_delay(), gone)


class NodeLinks:
    """All links of one life of a node; `NodeCluster` takes it for its `PeerNetwork`."""

    def __init__(self, node: BrokerNode) -> None:
        self._node = node
        self.dialled: dict[str, End] = {}
        self.accepted: dict[str, End] = {}
        self._dial_us: dict[str, int] = {}
        self._ticked_us = node.world.now_us

    @property
    def ends(self) -> list[End]:
        return [*self.dialled.values(), *self.accepted.values()]

    def start(self) -> None:
        self._node.world.after(
            self._node.world.random.randint(0, TICK_US), self._node.in_life(self._tick)
        )

    # -- what the product asks

    def link_to(self, peer: str) -> End | None:
        return self.dialled.get(peer)

    def link_from(self, peer: str) -> End | None:
        return self.accepted.get(peer)

    def send(self, peer: str, kind: int, payload: bytes) -> bool:
        """A question to another node, or its answer; all else of control goes by the network."""
        end = self.dialled.get(peer)
        if end is not None:
            end.send(kind, payload)
        return end is not None

    def drop(self, peer: str) -> None:
        for end in [self.dialled.get(peer), self.accepted.get(peer)]:
            if end is not None:
                self._node.later(lambda end=end: end.lose("dropped by this node"))

    def forget(self, peer: str) -> None:
        self._dial_us.pop(peer, None)

    def keep_alive(self) -> None:
        """Nothing takes so long here."""

    # -- life

    def over(self, end: End) -> None:
        """An end is lost; those who are to know are told."""
        table = self.dialled if end.is_dialled else self.accepted
        if table.get(end.peer) is end:
            del table[end.peer]
        if end.is_dialled:
            self._node.product.on_down(end.peer)

    def crashed(self) -> None:
        """The process is gone: its kernel hangs up for it, unless the power is gone too."""
        has_power = self._node.world.chance(0.7)
        for end in self.ends:
            end.is_lost = True
            if has_power:
                end.hang_up()

    def flush(self) -> None:
        for ends in (self.dialled, self.accepted):
            for end in ends.values():
                frames = end.port.take()
                if frames:
                    end.carry(frames)

    def _tick(self) -> None:
        node, world = self._node, self._node.world
        world.after(TICK_US, node.in_life(self._tick))
        if node.is_paused:
            return
        late = world.now_us - self._ticked_us > 3 * TICK_US
        self._ticked_us = world.now_us
        network = node.cluster.network
        for end in self.ends:
            if not network.is_one_way_cut(node.name, end.peer):
                end.other.heard_us = world.now_us
                end.release()
        for end in self.ends:
            if not late and world.now_us - end.heard_us > SILENCE_US:
                end.lose("nothing was heard")
        for name, other in node.cluster.nodes.items():
            if name != node.name and name not in self.dialled:
                self._dial(other)

    def _dial(self, other: BrokerNode) -> None:
        node, world = self._node, self._node.world
        if self._dial_us.get(other.name, 0) > world.now_us:
            return
        self._dial_us[other.name] = world.now_us + REDIAL_US
        if (
            other.is_up
            and not other.is_paused
            and not node.cluster.network.is_cut(node.name, other.name)
        ):
            connect(node, other)


def connect(dialler: BrokerNode, acceptor: BrokerNode) -> None:
    """A call was answered, and both have said who they are."""
    older = acceptor.links.accepted.get(dialler.name)
    if older is not None:
        older.lose("there is a newer one")
    memory = MemoryLink(dialler.name, dialler.boot, acceptor.name, acceptor.boot)
    here, there = End(dialler, memory.dialled, True), End(acceptor, memory.accepted, False)
    here.other, there.other = there, here

    def accepted() -> None:
        acceptor.links.accepted[dialler.name] = there
        acceptor.product.make_home_sink(memory.accepted)  # type: ignore[arg-type]
        there.ring = acceptor.product.make_ring_sink(memory.accepted)  # type: ignore[arg-type]

    def ready() -> None:
        dialler.links.dialled[acceptor.name] = here
        dialler.product.make_gateway_sink(memory.dialled)  # type: ignore[arg-type]
        dialler.product.on_up(acceptor.name, acceptor.boot)

    acceptor.in_turn(accepted)
    if dialler.is_up:
        dialler.in_turn(ready)
