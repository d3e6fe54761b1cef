"""One schedule from one seed: some seconds of trouble, then peace, then the reckoning."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from sim.clients import Client
from sim.cluster import Cluster
from sim.faults import Nemesis
from sim.ledger import Ledger
from sim.world import Violation, World
from warren.cluster.raft.effects import Position
from warren.cluster.raft.raft import Raft
from warren.cluster.raft.settings import Settings
from warren.cluster.sessions import Sessions

#: How long the cluster has to be whole again after the last fault.
RECOVERY_MS = 10_000


@dataclass(frozen=True, slots=True)
class Result:
    """What a schedule saw."""

    seed: int
    fingerprint: str
    events: int
    virtual_ms: int
    commits: int
    answered: int
    reads: int
    strikes: int
    leaders: int
    #: Messages by kind, and whatever else the oracles and the disks have counted.
    counts: Counter[str]


def settings_for(dice: random.Random) -> Settings:
    """Small bounds, so that every bound is met."""
    return Settings(
        # A narrow window makes rivals in elections.
        election_max_ms=dice.choice((310, 330, 600, 600)),
        append_entries=dice.choice((1, 2, 8, 64)),
        append_bytes=dice.choice((64, 1024, 65536)),
        appends_in_flight=dice.choice((1, 2, 8)),
        apply_entries=dice.choice((1, 7, 64)),
        chunk_bytes=dice.choice((40, 300, 4096)),
        snapshot_entries=dice.choice((4, 8, 25)),
        entries_kept=dice.choice((0, 0, 3, 20)),
        promotion_lag=dice.choice((0, 3, 20)),
        uncommitted_entries=dice.choice((8, 64, 1000)),
    )


def run_seed(
    seed: int,
    raft_class: type[Raft] = Raft,
    sessions_class: type[Sessions] = Sessions,
    trouble_ms: int = 6_000,
    seen: Callable[[World], None] | None = None,
) -> Result:
    """Run one schedule; Violation if anything is wrong. `seen` gets the world at its beginning."""
    dice = random.Random(seed)
    founders = dice.choice((1, 3, 3, 3, 4, 5, 5))
    changes = dice.random() < 0.6
    cluster = Cluster(
        seed,
        founders,
        spares=dice.randint(1, 2) if changes else 0,
        settings=settings_for(dice),
        raft_class=raft_class,
        sessions_class=sessions_class,
    )
    if seen is not None:
        seen(cluster.world)
    sync_max_us = dice.choice((1_000, 3_000, 25_000))
    for node in cluster.nodes.values():
        node.disk.health.sync_max_us = sync_max_us
        node.clock_rate = dice.choice((1.0, 1.0, 0.8, 1.25))
    clients = [
        Client(cluster, f"c{number}", dice.choice((8_000, 20_000, 80_000)), dice.randint(1, 4))
        for number in range(dice.randint(1, 3))
    ]
    nemesis = Nemesis(cluster, dice.choice((60_000, 150_000, 400_000)), changes)
    cluster.start()
    for client in clients:
        client.start()
    nemesis.start()
    cluster.run_ms(trouble_ms)
    nemesis.stop()
    cluster.heal()
    cluster.run_ms(1_000)
    for client in clients:
        client.stop()
    recover(cluster)
    reckon(cluster, clients)
    return Result(
        seed,
        cluster.world.fingerprint,
        cluster.world.events,
        cluster.world.now_us // 1000,
        cluster.oracles.commit_max,
        sum(len(client.answered) for client in clients),
        sum(client.reads_done for client in clients),
        nemesis.strikes,
        len(cluster.oracles.leaders),
        counts_of(cluster),
    )


def counts_of(cluster: Cluster) -> Counter[str]:
    counts = Counter(cluster.oracles.counts)
    for node in cluster.nodes.values():
        counts["boots"] += node.boot
        counts["truncations"] += node.disk.truncations
        counts["writes lost"] += node.disk.writes_lost
    return counts


def recover(cluster: Cluster) -> None:
    """Liveness: with all faults gone there is one leader, and all members get all entries."""

    def is_whole() -> bool:
        leader = cluster.leader
        if leader is None or leader.raft.commit_index < leader.raft.log.last_index:
            return False
        return all(
            member.raft.leader == leader.name and member.applied_index == leader.raft.commit_index
            for member in cluster.members()
        )

    whole = cluster.run_until(is_whole, RECOVERY_MS)
    leader = cluster.leader
    if whole and leader is not None:
        # Nobody holds anything back any more: a new command must get through.
        marker = leader.raft.propose(b"marker")
        leader.pump()
        whole = isinstance(marker, Position) and cluster.run_until(is_whole, RECOVERY_MS)
    if not whole:
        state = [
            f"{n.name}:{n.raft.role.value} term={n.raft.term} last={n.raft.log.last_index} "
            f"commit={n.raft.commit_index} applied={n.applied_index} {n.raft.membership}"
            for n in cluster.up
        ]
        cluster.oracles.fail("the cluster does not recover\n" + "\n".join(state))


def reckon(cluster: Cluster, clients: list[Client]) -> None:
    """What was answered is there, and all members have the same state."""
    members = cluster.members()
    images = {member.machine.image() for member in members}
    if len(images) != 1:
        cluster.oracles.fail("the members' states differ")
    ledger = members[0].machine.machine
    if not isinstance(ledger, Ledger):
        raise Violation("not a ledger")
    for client in clients:
        for command in client.answered:
            if command not in ledger.commands:
                cluster.oracles.fail(f"{command!r} was answered and is lost")
