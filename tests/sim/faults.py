"""Trouble by dice: what goes wrong next, and for how long."""

from __future__ import annotations

from collections.abc import Callable

from sim.cluster import Cluster
from sim.network import Weather
from sim.node import SimNode
from warren.cluster.raft.effects import Role
from warren.cluster.raft.messages import VoteReply


class Nemesis:
    """Strikes every now and then. Half of the time it aims at whoever leads or is being fed."""

    def __init__(self, cluster: Cluster, every_us: int, members_change: bool) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.every_us = every_us
        self.stopped = False
        self.strikes = 0
        blows: list[tuple[int, Callable[[], None]]] = [
            (6, self._kill),
            (1, self._power_cut),
            (3, self._halves),
            (6, self._single),
            (2, self._one_way),
            (1, self._bridge),
            (1, self._ring),
            (4, self._heal_network),
            (3, self._pause),
            (2, self._weather),
            (2, self._slow_disk),
            (1, self._disk_error),
            (2, self._transfer),
            (1, self._snapshot),
            (3, self._kill_after_election),
            (3, self._kill_after_vote),
        ]
        if members_change:
            blows += [(7, self._add_learner), (3, self._promote), (5, self._remove)]
            blows += [(2, self._split_and_shrink)]
        blows += self._more_blows()
        self._blows = [blow for weight, blow in blows for _ in range(weight)]

    def _more_blows(self) -> list[tuple[int, Callable[[], None]]]:
        """What else can happen to whatever runs on top of Raft."""
        return []

    def start(self) -> None:
        self.world.after(self.world.random.randint(300_000, 900_000), self._strike)

    def stop(self) -> None:
        self.stopped = True
        self.cluster.network.intercept = None

    def _strike(self) -> None:
        if self.stopped:
            return
        self.strikes += 1
        dice = self.world.random
        blow = dice.choice(self._blows)
        self.world.note(f"nemesis {blow.__name__}")
        blow()
        self.world.after(dice.randint(self.every_us // 10, self.every_us * 2), self._strike)

    def _victim(self) -> SimNode:
        leader = self.cluster.leader
        if leader is not None and self.world.chance(0.5):
            return leader
        return self.world.random.choice(list(self.cluster.nodes.values()))

    # -- processes

    def _kill(self) -> None:
        node = self._victim()
        node.crash()
        self.cluster.restart_later(node)

    def _power_cut(self) -> None:
        for node in self.cluster.nodes.values():
            node.crash()
            self.cluster.restart_later(node, 10, 600)

    def _kill_after_election(self) -> None:
        """The next leader dies as soon as it has said a few words, some of them unheard."""
        loss = self.world.random.choice((0.0, 0.5, 0.8))

        def watch(tries: int) -> None:
            leader = self.cluster.leader
            if leader is not None and leader.raft.commit_index < leader.raft.log.last_index:
                delay = self.world.random.randint(0, 4_000)
                self.world.after(delay, lambda: self._kill_one(leader))
                self.network_loss(0.0)
            elif tries and not self.stopped:
                self.world.after(2_000, lambda: watch(tries - 1))

        self.network_loss(loss)
        watch(300)

    def _kill_after_vote(self) -> None:
        """A node goes down as soon as it has voted, and is back before the votes are counted."""

        def voted(source: str, target: str, data: bytes) -> bool:
            message = self.cluster.message_in(data)
            if isinstance(message, VoteReply) and message.granted and not message.preliminary:
                self.cluster.network.intercept = None
                voter = self.cluster.nodes[source]
                delay = self.world.random.randint(0, 3_000)
                self.world.after(delay, voter.crash)
                self.cluster.restart_later(voter, 4, 20)
            return False

        self.cluster.network.intercept = voted
        leader = self.cluster.leader
        if leader is not None:
            self._kill_one(leader)

    def _split_and_shrink(self) -> None:
        """A leader that is parted from most others tries to have them removed one by one."""
        leader = self.cluster.leader
        if leader is None:
            return
        others = [name for name in leader.raft.membership.voters if name != leader.name]
        self.world.random.shuffle(others)
        keep = self.world.random.randint(0, len(others) // 2)
        self.cluster.network.heal()
        self.cluster.network.part(others[keep:], [leader.name, *others[:keep]])

        def shrink() -> None:
            if leader.is_leader and others[keep:]:
                leader.raft.remove(others.pop())
                leader.pump()
                self.world.after(20_000, shrink)

        shrink()

    def network_loss(self, loss: float) -> None:
        self.cluster.network.weather.loss = loss

    def _kill_one(self, node: SimNode) -> None:
        node.crash()
        self.cluster.restart_later(node)

    def _pause(self) -> None:
        node = self._victim()
        node.pause()
        self.world.after(self.world.random.randint(100, 2_000) * 1000, node.resume)

    # -- network

    def _halves(self) -> None:
        names = list(self.cluster.nodes)
        self.world.random.shuffle(names)
        half = self.world.random.randint(0, len(names) - 1)
        self.cluster.network.heal()
        self.cluster.network.part(names[:half], names[half:])

    def _single(self) -> None:
        self.cluster.network.part([self._victim().name], list(self.cluster.nodes))

    def _one_way(self) -> None:
        victim = self._victim().name
        deaf = self.world.chance(0.5)
        for name in self.cluster.nodes:
            if name != victim and self.world.chance(0.7):
                self.cluster.network.cut(*((name, victim) if deaf else (victim, name)))

    def _bridge(self) -> None:
        self.cluster.network.heal()
        self.cluster.bridge(self._victim().name)

    def _ring(self) -> None:
        self.cluster.network.heal()
        self.cluster.ring()

    def _heal_network(self) -> None:
        self.cluster.network.heal()

    def _weather(self) -> None:
        dice = self.world.random
        self.cluster.network.weather = Weather(
            delay_max_us=dice.choice((1_000, 5_000, 50_000)),
            loss=dice.choice((0.0, 0.0, 0.02, 0.1, 0.3)),
            duplication=dice.choice((0.0, 0.05, 0.3)),
            straggling=dice.choice((0.0, 0.02, 0.1)),
        )

    # -- disks

    def _slow_disk(self) -> None:
        health = self._victim().disk.health
        health.stalls = self.world.random.choice((0.0, 0.05, 0.3))
        health.sync_max_us = self.world.random.choice((1_000, 10_000, 100_000))

    def _disk_error(self) -> None:
        health = self._victim().disk.health
        health.errors = 1.0

        def mend() -> None:
            health.errors = 0.0

        self.world.after(50_000, mend)

    # -- orders of an operator

    def _snapshot(self) -> None:
        node = self._victim()
        if node.is_up:
            node.take_snapshot()

    def _transfer(self) -> None:
        leader = self.cluster.leader
        if leader is not None:
            leader.raft.transfer_leader(self.world.random.choice(list(self.cluster.nodes)))
            leader.pump()

    def _leaders(self) -> list[SimNode]:
        """All who believe to lead: a wrong one must not be able to change anything."""
        return [node for node in self.cluster.up if node.raft.role is Role.LEADER]

    def _add_learner(self) -> None:
        for leader in self._leaders():
            outside = [n for n in self.cluster.nodes if n not in leader.raft.membership.nodes]
            if outside:
                leader.raft.add_learner(self.world.random.choice(outside))
                leader.pump()
                self.world.after(60_000, self._promote_soon)

    def _promote_soon(self, tries: int = 20) -> None:
        """As an operator's tool does: again and again, until the learner has caught up."""
        if any(leader.raft.membership.learners for leader in self._leaders()):
            self._promote()
            if tries and not self.stopped:
                self.world.after(60_000, lambda: self._promote_soon(tries - 1))

    def _promote(self) -> None:
        for leader in self._leaders():
            if leader.raft.membership.learners:
                leader.raft.promote(self.world.random.choice(leader.raft.membership.learners))
                leader.pump()

    def _remove(self) -> None:
        for leader in self._leaders():
            members = leader.raft.membership.nodes
            if len(members) > 2:
                leader.raft.remove(self.world.random.choice(members))
                leader.pump()
