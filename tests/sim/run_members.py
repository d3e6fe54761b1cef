"""One schedule from one seed for whole members: trouble, then peace, then the reckoning."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from sim.member_cluster import MemberCluster, MemberNemesis
from sim.run import RECOVERY_MS, counts_of, settings_for
from sim.world import World
from warren.cluster.member import Member
from warren.cluster.metadata import Node


@dataclass(frozen=True, slots=True)
class MemberResult:
    """What a schedule saw."""

    seed: int
    fingerprint: str
    events: int
    virtual_ms: int
    commits: int
    answered: int
    strikes: int
    counts: Counter[object]


class Proposer:
    """Proposes on any node that is up, whether it can do anything or not."""

    def __init__(self, cluster: MemberCluster, name: str, every_us: int) -> None:
        self.cluster, self.world, self.name = cluster, cluster.world, name
        self.every_us = every_us
        self.count = 0
        self.stopped = False

    def start(self) -> None:
        self.world.after(self.world.random.randint(0, self.every_us), self._step)

    def _step(self) -> None:
        if self.stopped:
            return
        dice = self.world.random
        self.world.after(dice.randint(self.every_us // 2, self.every_us * 3 // 2), self._step)
        awake = self.cluster.up
        if awake:
            node = dice.choice(awake)
            for _ in range(dice.choice((1, 1, 3))):
                self.count += 1
                node.propose(f"{self.name}/{self.count}".encode())
            node._when_awake(node._in_this_life(node.pump))


def run_members(
    seed: int,
    member_class: type[Member] = Member,
    trouble_ms: int = 7_000,
    seen: Callable[[World], None] | None = None,
) -> MemberResult:
    """Run one schedule; Violation if anything is wrong."""
    dice = random.Random(seed)
    settings = settings_for(dice)
    cluster = MemberCluster(
        seed,
        dice.choice((1, 3, 3, 3, 5)),
        spares=dice.choice((0, 0, 1, 2)),
        # An image of all definitions in the smallest chunks takes as long as the recovery may.
        settings=replace(settings, chunk_bytes=max(settings.chunk_bytes, 300)),
        member_class=member_class,
        in_flight=dice.choice((1, 4, 512)),
    )
    if seen is not None:
        seen(cluster.world)
    for node in cluster.nodes.values():
        node.disk.health.sync_max_us = dice.choice((1_000, 3_000, 25_000))
        node.clock_rate = dice.choice((1.0, 1.0, 0.8, 1.25))
    proposers = [
        Proposer(cluster, f"p{number}", dice.choice((15_000, 50_000, 200_000)))
        for number in range(dice.randint(1, 3))
    ]
    nemesis = MemberNemesis(cluster, dice.choice((100_000, 250_000, 600_000)), False)
    cluster.start()
    for starter in (*proposers, nemesis):
        starter.start()
    cluster.run_ms(trouble_ms)
    nemesis.stop()
    cluster.heal()
    for proposer in proposers:
        proposer.stopped = True
    recover(cluster)
    return MemberResult(
        seed,
        cluster.world.fingerprint,
        cluster.world.events,
        cluster.world.now_us // 1000,
        cluster.oracles.commit_max,
        len(cluster.promises.answered),
        nemesis.strikes,
        Counter[object](counts_of(cluster)) + cluster.promises.counts,
    )


def recover(cluster: MemberCluster) -> None:
    """With all faults gone, every node is a member, up and ready, and has all it asked for."""
    markers: dict[str, bytes] = {}
    lives: dict[str, int] = {}

    def mark() -> None:
        """A marker whose outcome cannot be known any more is followed by another one.

        A disk that was to fail may do so now: whoever asked is gone with its node then.
        """
        for node in cluster.nodes.values():
            last = markers.get(node.name, b"")
            is_lost = lives.get(node.name) != node.boot and last not in node.ledger.commands
            if not last or is_lost or last in cluster.promises.unknown:
                markers[node.name] = last + f"marker/{node.name}".encode()
                lives[node.name] = node.boot
                node.propose(markers[node.name])
                node.pump()

    def is_whole() -> bool:
        mark()
        return all(
            node.member.ready
            and node.name in node.raft.membership.voters
            and not node.asked
            and all(
                node.member.nodes.get(other.name) == Node(other.boot, True)
                for other in cluster.nodes.values()
            )
            and all(marker in node.ledger.commands for marker in markers.values())
            for node in cluster.nodes.values()
        )

    if not cluster.run_until(is_whole, RECOVERY_MS):
        state = [
            f"{n.name}:{n.raft.role.value} term={n.raft.term} commit={n.raft.commit_index} "
            f"applied={n.applied_index} ready={n.member.ready} asked={n.asked} boot={n.boot} "
            f"table={n.member.nodes} {n.raft.membership} session={n.member._proposals.session}"
            for n in cluster.up
        ]
        cluster.oracles.fail("the members do not recover\n" + "\n".join(state))
    cluster.run_ms(500)
    for node in cluster.nodes.values():
        if not cluster.promises.answered <= set(node.ledger.commands):
            cluster.oracles.fail(f"{node.name} has lost what was answered")
    if len({node.ledger.digest for node in cluster.nodes.values()}) != 1:
        cluster.oracles.fail("the definitions differ")
