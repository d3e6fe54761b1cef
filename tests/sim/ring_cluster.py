"""A cluster of members with mirrored queues, its clients, and trouble that aims at the protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from sim.member_cluster import MemberCluster, MemberNemesis
from sim.member_node import MemberNode
from sim.ring_links import Links
from sim.ring_model import ModelLog, State
from sim.ring_node import RingNode
from sim.ring_oracles import RingOracles
from sim.ring_queue import SimQueue
from warren.cluster import metadata_commands as commands
from warren.cluster.metadata import View
from warren.cluster.raft.settings import Settings
from warren.replication.replica import Replica
from warren.replication.settings import ReplicaSettings


@dataclass(frozen=True)
class Rules:
    """The product's classes and the model's, or those of a mutant."""

    replica: type[Replica] = Replica
    log: type[ModelLog] = ModelLog
    state: type[State] = State
    queue: type[SimQueue] = SimQueue


@dataclass(frozen=True)
class Plan:
    """What a schedule is like."""

    nodes: int = 3
    spares: int = 0
    queues: int = 2
    replicas: int = 3
    keep: int = 40
    #: How probable a blow is whenever the protocol passes a place where it hurts.
    aim: float = 0.1
    #: The disks of learners are slow: what is said of them is late.
    has_slow_learners: bool = False
    settings: ReplicaSettings = field(default_factory=ReplicaSettings)


class RingCluster(MemberCluster):
    """As `MemberCluster`, with queues."""

    nodes: dict[str, RingNode]  # type: ignore[assignment]
    node_type = RingNode

    def __init__(self, seed: int, plan: Plan, rules: Rules, raft: Settings | None = None) -> None:
        self.plan = plan
        self.replica_class = rules.replica
        self.log_class = rules.log
        self.state_class = rules.state
        self.queue_class = rules.queue
        self.keep = plan.keep
        self.queue_names = [f"q{number}" for number in range(1, plan.queues + 1)]
        self.ring_oracles = RingOracles(self)
        self.is_draining = False
        self.links: Links
        self.aimed: Callable[[str, SimQueue, str], None] | None = None
        super().__init__(seed, plan.nodes, plan.spares, raft)
        self.links = Links(
            self.world,
            self.network,
            list(self.nodes),
            lambda name: self.nodes[name].is_up,
            self._deliver_link,
            self._tell_link,
        )

    def start(self) -> None:
        super().start()
        self.links.start()
        for name in self.queue_names:
            self._create(name)

    def replica_settings(self, name: str) -> ReplicaSettings:
        return replace(self.plan.settings)

    def _deliver_link(self, source: str, target: str, what: Any) -> None:
        node = self.nodes[target]
        node.awake(lambda: node.take(source, what))

    def _tell_link(self, name: str, other: str, is_up: bool) -> None:
        node = self.nodes[name]
        node.awake(lambda: node.link_changed(other, is_up))

    def _create(self, name: str) -> None:
        """Ask for the queue until it is there."""
        if self.latest(name) is not None:
            return
        dice = self.world.random
        ready = [node for node in self.nodes.values() if node.is_up and node.member.ready]
        known = [node.name for node in ready]
        if len(known) >= min(self.plan.replicas, self.plan.nodes):
            dice.shuffle(known)
            replicas = tuple(known[: self.plan.replicas])
            dice.choice(ready).order(commands.CreateView(name, replicas))
        self.world.after(300_000, lambda: self._create(name))

    # -- looking

    def latest(self, name: str) -> View | None:
        return self.ring_oracles.queues[name].latest

    def master(self, name: str) -> SimQueue | None:
        """Who serves the queue, as of the latest view."""
        view = self.latest(name)
        if view is None or view.master is None or not self.nodes[view.master].is_up:
            return None
        queue = self.nodes[view.master].queues[name]
        is_it = queue.replica.is_serving and queue.replica.epoch == view.epoch
        return queue if is_it else None

    def is_whole(self) -> bool:
        """Every queue is served, empty, and has all the replicas it is to have."""
        return all(self._is_whole(name) for name in self.queue_names)

    def _is_whole(self, name: str) -> bool:
        view, queue = self.latest(name), self.master(name)
        if view is None or queue is None or set(view.in_sync) != set(view.wanted):
            return False
        replica = queue.replica
        if queue.log.state.messages or replica.commit_index < replica.last_index:
            return False
        copies = [self.nodes[node].queues[name] for node in view.in_sync]
        return all(
            copy.replica.epoch == view.epoch and copy.log.applied_index == replica.last_index
            for copy in copies
        )

    # -- places where it hurts

    def aim(self, place: str, queue: SimQueue, node: str) -> None:
        if self.aimed is not None:
            self.aimed(place, queue, node)

    def view_seen(self, node: MemberNode, queue: SimQueue, before: View | None, view: View) -> None:
        """A node has applied a view; the master's word on what has changed."""
        if self.aimed is None:
            return
        if self.plan.has_slow_learners and isinstance(node, RingNode):
            if node.name in view.learners:
                node.ring_disk.slow[queue.name] = 400_000
            else:
                node.ring_disk.slow.pop(queue.name, None)
        if before is None:
            return
        if set(view.in_sync) - set(before.in_sync):
            newcomer = next(one for one in view.in_sync if one not in before.in_sync)
            self.aim("expanded", queue, newcomer)
        elif set(before.in_sync) - set(view.in_sync):
            self.aim("shrunk", queue, node.name)
        elif before.master != view.master and view.master is not None:
            self.aim("moved", queue, view.master)


class RingNemesis(MemberNemesis):
    """The members' trouble, an operator's whims, and blows at steps of the protocol."""

    cluster: RingCluster

    def start(self) -> None:
        super().start()
        self.cluster.aimed = self._aimed

    def stop(self) -> None:
        super().stop()
        self.cluster.aimed = None
        for node in self.cluster.nodes.values():
            node.ring_disk.slow.clear()

    def _more_blows(self) -> list[tuple[int, Callable[[], None]]]:
        return [
            (3, self._sleep),
            (4, self._place),
            (4, self._hand_over),
            (2, self._sync),
            (1, self._cancel_sync),
            (4, self._slow_queue),
            (4, self._kill_master),
            (2, self._part_master),
        ]

    def _queue_name(self) -> str:
        return self.world.random.choice(self.cluster.queue_names)

    def _place(self) -> None:
        name = self._queue_name()
        view = self.cluster.latest(name)
        names = [node.name for node in self.cluster.nodes.values() if node.is_up]
        if view is None or not names:
            return
        dice = self.world.random
        dice.shuffle(names)
        count = max(dice.choice((1, 2, 2, 3, 3)), self.cluster.plan.settings.min_in_sync)
        if len(names) < count:
            return
        orderer = self.cluster.nodes[dice.choice(names)]
        orderer.order(commands.Place(name, view.epoch, tuple(names[:count])))

    def _hand_over(self) -> None:
        queue = self.cluster.master(self._queue_name())
        if queue is not None:
            others = queue.replica.ring[1:]
            if others:
                to = self.world.random.choice(others)
                queue.node.awake(lambda: queue.hand_over(to))

    def _sync(self) -> None:
        queue = self.cluster.master(self._queue_name())
        if queue is not None:
            queue.node.awake(lambda: queue.run(queue.replica.start_sync))

    def _cancel_sync(self) -> None:
        queue = self.cluster.master(self._queue_name())
        if queue is not None:
            queue.node.awake(lambda: queue.run(queue.replica.cancel_sync))

    def _slow_queue(self) -> None:
        dice = self.world.random
        node = dice.choice(list(self.cluster.nodes.values()))
        slow = node.ring_disk.slow
        name = self._queue_name()
        slow[name] = dice.choice((20_000, 100_000, 500_000))
        self.world.after(dice.randint(200_000, 2_000_000), lambda: slow.pop(name, None))

    def _kill_master(self) -> None:
        view = self.cluster.latest(self._queue_name())
        if view is not None and view.master is not None:
            self._kill_one(self.cluster.nodes[view.master])

    def _part_master(self) -> None:
        """The master and one other are alone, or it sees nobody at all."""
        view = self.cluster.latest(self._queue_name())
        if view is None or view.master is None:
            return
        others = [name for name in self.cluster.nodes if name != view.master]
        self.world.random.shuffle(others)
        keep = self.world.random.randint(0, 1)
        self.cluster.network.heal()
        self.cluster.network.part([view.master, *others[:keep]], others[keep:])

    # -- aimed blows

    def _aimed(self, place: str, queue: SimQueue, node: str) -> None:
        dice = self.world.random
        likely = self.cluster.plan.aim * _LIKELY[place]
        if self.stopped or dice.random() >= likely:
            return
        self.world.note(f"aimed {place} {queue.name} {node}")
        self.cluster.ring_oracles.counts[f"aimed {place}"] += 1
        if place == "synced":
            victim = queue.node
            victim.crash()
            self.cluster.restart_later(victim, 20, 400)
        elif place == "expanded":
            self._kill_newcomer(node)
        elif place == "propose expand":
            self._kill_soon(node if dice.random() < 0.5 else queue.node.name, 20_000)
        else:
            self._kill_soon(node, 4_000)

    def _kill_soon(self, name: str, within_us: int) -> None:
        node = self.cluster.nodes[name]

        def kill() -> None:
            if node.is_up and not self.stopped:
                node.crash()
                self.cluster.restart_later(node, 20, 600)

        self.world.after(self.world.random.randint(0, within_us), kill)

    def _kill_newcomer(self, name: str) -> None:
        """Who has just joined dies, and then all the others, so that it is the one to be asked."""
        self._kill_soon(name, 0)
        if self.world.chance(0.6):
            for other in self.cluster.nodes:
                if other != name:
                    self._kill_soon(other, 1_200_000)


_LIKELY = {
    "synced": 0.01,
    "adopted": 0.3,
    "serves": 0.3,
    "propose expand": 1.0,
    "expanded": 2.5,
    "shrunk": 0.5,
    "moved": 0.5,
}
