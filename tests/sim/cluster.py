"""A simulated cluster: nodes, network and oracles, and the ways to make trouble for them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from sim.network import Network
from sim.node import SimNode
from sim.oracles import Oracles
from sim.world import World
from warren.cluster.raft import codec
from warren.cluster.raft.effects import Role
from warren.cluster.raft.messages import Message, ReadContext
from warren.cluster.raft.raft import Raft
from warren.cluster.raft.settings import Settings
from warren.cluster.raft.types import Membership, Stored, founding
from warren.cluster.sessions import Outcome, Sessions


class Cluster:
    """Founders vote from the beginning; spares are there to be added."""

    def __init__(
        self,
        seed: int,
        founders: int = 3,
        spares: int = 0,
        settings: Settings | None = None,
        raft_class: type[Raft] = Raft,
        sessions_class: type[Sessions] = Sessions,
        node_class: type[SimNode] = SimNode,
    ) -> None:
        self.world = World(seed)
        self.settings = settings or Settings()
        self.raft_class = raft_class
        self.sessions_class = sessions_class
        self.oracles = Oracles(self)
        self.network = Network(self.world, self._deliver)
        self.read_floors: dict[tuple[str, ReadContext], int] = {}
        self._listeners: list[Callable[[Outcome], None]] = []
        names = [f"n{number}" for number in range(1, founders + spares + 1)]
        membership = Membership(tuple(names[:founders]))
        self.nodes: dict[str, SimNode] = {}
        for number, name in enumerate(names):
            stored = founding(membership) if number < founders else Stored()
            self.nodes[name] = node_class(self, name, stored)

    def start(self) -> None:
        for node in self.nodes.values():
            node.start()

    def message_in(self, data: bytes) -> Message | None:
        """The Raft message that something on the network is, if it is one."""
        return codec.decode(data)

    def _deliver(self, source: str, target: str, data: bytes) -> None:
        node = self.nodes.get(target)
        if node is not None:
            node.deliver(source, data)

    # -- looking

    @property
    def up(self) -> list[SimNode]:
        return [node for node in self.nodes.values() if node.is_up]

    @property
    def leader(self) -> SimNode | None:
        """Who leads in the latest term."""
        leaders = [node for node in self.up if node.raft.role is Role.LEADER]
        return max(leaders, key=lambda node: node.raft.term, default=None)

    def members(self) -> list[SimNode]:
        leader = self.leader
        return [self.nodes[n] for n in leader.raft.membership.nodes] if leader else []

    # -- outcomes, which clients wait for

    def listen(self, listener: Callable[[Outcome], None]) -> None:
        self._listeners.append(listener)

    def on_outcome(self, outcome: Outcome) -> None:
        for listener in self._listeners:
            listener(outcome)

    # -- trouble, and its end

    def run_ms(self, milliseconds: int) -> None:
        self.world.run_until(self.world.now_us + milliseconds * 1000)

    def run_until(self, holds: Callable[[], bool], limit_ms: int) -> bool:
        """Run until something holds; False when it does not in time."""
        until = self.world.now_us + limit_ms * 1000
        while not holds():
            if self.world.now_us >= until:
                return False
            self.run_ms(20)
        return True

    def restart_later(self, node: SimNode, low_ms: int = 20, high_ms: int = 1_500) -> None:
        delay = self.world.random.randint(low_ms, high_ms) * 1000
        self.world.after(delay, lambda: None if node.is_up else node.start())

    def heal(self) -> None:
        """No faults any more: every node runs, every link and disk is good."""
        self.network.heal()
        self.network.weather = type(self.network.weather)()
        for node in self.nodes.values():
            node.disk.health = type(node.disk.health)()
            node.resume()
            if not node.is_up:
                node.start()

    def bridge(self, middle: str) -> None:
        """Two sides that do not see each other, and one node that sees both."""
        names = [name for name in self.nodes if name != middle]
        half = len(names) // 2
        self.network.part(names[:half], names[half:])

    def ring(self) -> None:
        """Everyone sees its two neighbours only."""
        names = list(self.nodes)
        neighbours = set(pairwise([*names, names[0]]))
        for one in names:
            for other in names:
                if one < other and not {(one, other), (other, one)} & neighbours:
                    self.network.part([one], [other])
