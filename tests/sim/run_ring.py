"""One schedule from one seed for mirrored queues: trouble, then peace, then the reckoning."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from sim.ring_cluster import Plan, RingCluster, RingNemesis, Rules
from sim.ring_gateway import Gateway
from sim.run import counts_of
from sim.world import World
from warren.cluster.raft.settings import Settings
from warren.replication.settings import ReplicaSettings

#: How long the queues have to be served, whole and empty after the last fault, and a second more.
RECOVERY_MS = 9_000
#: Of one producer, so that all can be consumed in that time.
MESSAGES_MAX = 200


@dataclass(frozen=True, slots=True)
class RingResult:
    """What a schedule saw."""

    seed: int
    fingerprint: str
    events: int
    virtual_ms: int
    commits: int
    strikes: int
    counts: Counter[str]


class Client:
    """Publishes to a queue, or consumes from it, through whatever node is up."""

    window = 8

    def __init__(self, cluster: RingCluster, name: str, queue: str, every_us: int) -> None:
        self.cluster, self.world = cluster, cluster.world
        self.name, self.queue, self.every_us = name, queue, every_us
        self._gateway: Gateway | None = None
        self._lives = 0

    def start(self, after_ms: int = 300) -> None:
        delay = after_ms + self.world.random.randint(0, 400)
        self.world.after(delay * 1000, self._step)

    def _connect(self) -> Gateway | None:
        """Stay with a node as long as it lives; then go to another, as another client."""
        gateway = self._gateway
        if gateway is not None and gateway.node.gateway is gateway:
            return gateway
        there = [node.gateway for node in self.cluster.nodes.values() if node.gateway is not None]
        self._gateway = self.world.random.choice(there) if there else None
        if self._gateway is not None:
            self._lives += 1
            self._connected(self._gateway)
        return self._gateway

    def _connected(self, gateway: Gateway) -> None:
        raise NotImplementedError

    def _step(self) -> None:
        raise NotImplementedError


class Producer(Client):
    _published = 0

    def _connected(self, gateway: Gateway) -> None:
        self._channel = gateway.open_channel(self.queue, f"{self.name}.{self._lives}")

    def _step(self) -> None:
        if self.cluster.is_draining or self._published >= MESSAGES_MAX:
            return
        dice = self.world.random
        self.world.after(dice.randint(self.every_us // 2, self.every_us * 3 // 2), self._step)
        gateway = self._connect()
        if gateway is None:
            return
        channel = self._channel
        count = min(dice.choice((1, 1, 2, 4)), self.window - (channel.last - channel.confirmed))
        if count > 0:
            self._published += count
            gateway.node.awake(lambda: gateway.publish(channel, count))


class Reader(Client):
    def _connected(self, gateway: Gateway) -> None:
        prefetch = self.world.random.choice((1, 5, 20))
        name = f"{self.name}.{self._lives}"
        gateway.node.awake(lambda: gateway.consume(self.queue, name, prefetch))

    def _step(self) -> None:
        self.world.after(self.every_us, self._step)
        self._connect()


def plan_for(dice: random.Random) -> Plan:
    nodes = dice.choice((3, 3, 3, 3, 4, 5))
    settings = ReplicaSettings(
        max_lag_ms=dice.choice((400, 1_000, 2_000)),
        down_lag_ms=dice.choice((200, 600)),
        propose_ms=dice.choice((300, 2_000)),
        report_ms=dice.choice((50, 200)),
        hello_max_ms=dice.choice((100, 400)),
        batch_bytes=dice.choice((20, 200, 4_000)),
        learner_window_bytes=dice.choice((1, 300, 10_000)),
        chunk_bytes=dice.choice((20, 100, 400)),
        chunks_in_flight=dice.choice((1, 2, 4)),
        window_bytes=dice.choice((300, 5_000, 1 << 20)),
        sync_automatically=dice.random() < 0.75,
        min_in_sync=dice.choice((1, 1, 1, 2)),
    )
    return Plan(
        nodes=nodes,
        spares=dice.choice((0, 0, 0, 1)) if nodes == 3 else 0,
        queues=dice.choice((1, 2, 2, 3)),
        replicas=dice.choice((2, 3, 3)),
        keep=dice.choice((5, 10, 40, 200)),
        aim=dice.choice((0.0, 0.1, 0.4)),
        settings=settings,
    )


def run_ring(
    seed: int,
    rules: Rules | None = None,
    trouble_ms: int = 5_000,
    seen: Callable[[World], None] | None = None,
    plan: Plan | None = None,
) -> RingResult:
    """Run one schedule; Violation if anything is wrong."""
    dice = random.Random(seed)
    made = replace(plan_for(dice), has_slow_learners=random.Random(~seed).random() < 0.25)
    cluster = RingCluster(seed, plan or made, rules or Rules(), Settings())
    if seen is not None:
        seen(cluster.world)
    for node in cluster.nodes.values():
        node.disk.health.sync_max_us = dice.choice((1_000, 3_000, 25_000))
        node.clock_rate = dice.choice((1.0, 1.0, 0.8, 1.25))
    rate = dice.choice((20_000, 60_000, 150_000))
    clients: list[Client] = []
    for name in cluster.queue_names:
        clients += [Producer(cluster, f"p{n}{name}", name, rate) for n in range(dice.randint(1, 2))]
        clients += [
            Reader(cluster, f"c{n}{name}", name, 150_000) for n in range(dice.randint(1, 2))
        ]
    nemesis = RingNemesis(cluster, dice.choice((150_000, 300_000, 700_000)), False)
    cluster.start()
    nemesis.start()
    for client in clients:
        # Some come late, and find a backlog.
        client.start(dice.choice((300, 300, 2_000)) if isinstance(client, Reader) else 300)
    cluster.run_ms(trouble_ms)
    nemesis.stop()
    cluster.is_draining = True
    cluster.heal()
    recover(cluster)
    cluster.ring_oracles.reckon()
    counts: Counter[str] = Counter(counts_of(cluster)) + cluster.ring_oracles.counts
    counts["links broken"] = cluster.links.broken
    return RingResult(
        seed,
        cluster.world.fingerprint,
        cluster.world.events,
        cluster.world.now_us // 1000,
        sum(queue.commit_max for queue in cluster.ring_oracles.queues.values()),
        nemesis.strikes,
        counts,
    )


def recover(cluster: RingCluster) -> None:
    """With all faults gone every queue is served, empties, and gets its replicas back."""

    def is_whole() -> bool:
        for name in cluster.queue_names:
            for node in cluster.up:
                queue = node.queues[name]
                if queue.replica.is_master:
                    queue.run(queue.replica.start_sync)
        return cluster.is_whole()

    cluster.run_ms(1_000)
    if not cluster.run_until(is_whole, RECOVERY_MS):
        state = []
        for name in cluster.queue_names:
            state.append(f"{name}: {cluster.latest(name)}")
            for node in cluster.up:
                queue = node.queues[name]
                replica = queue.replica
                state.append(
                    f"  {node.name} boot={node.boot} {replica.role.value} epoch={replica.epoch} "
                    f"commit={replica.commit_index} last={replica.last_index} "
                    f"persisted={replica._persisted} matched={replica._is_matched} "
                    f"serving={replica.is_serving} accepting={queue.is_accepting} "
                    f"messages={len(queue.log.state.messages)} gap={queue.log.gap} "
                    f"base={queue.log.copy.base} consumers={list(queue.consumers)} "
                    f"outstanding={queue.outstanding} token={replica._token} "
                    f"pending={replica._pending} feeds={list(replica._feeds)}"
                )
        cluster.oracles.fail("the queues do not recover\n" + "\n".join(state))
