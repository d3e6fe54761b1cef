"""Carries out what happens to mirrored queues: kills, stops, new mirrors, mirrors that come back.

Metrics: `gap_*_s` and `stop_gap_s` (the longest time between two confirms of a publisher on
another node, from the kill on), `sync_*` and `baseline_*` (latencies while a mirror is made, and
before), `*_mb` (received by the node from the others), `moved_percent` (of the backlog),
`all_serve_s` (from the kill until every queue has confirmed a message through another node).
"""

import math
import os
import signal
import time
from statistics import median

from bench.brokers import Broker, BrokerError
from bench.cluster_procedures import as_cluster
from bench.clusters import NODES, Cluster
from bench.confirm_beat import ConfirmBeat
from bench.generator import open_flow, run
from bench.loads import Load
from bench.measure import await_rest
from bench.metrics import Metrics
from bench.mirror_loads import BACKLOG, BACKLOG_MESSAGE_BYTES
from bench.mirrored import (
    EVERYWHERE,
    IN_SYNC_LIMIT_S,
    await_in_sync,
    check_in_sync,
    declare,
    delete,
    queue_of,
)
from bench.sweep import Sweep
from bench.traffic import received_bytes

MB = 1_000_000
#: Confirms that must have come before a kill.
BEATS_BEFORE = 20
#: RabbitMQ takes a minute to find out that a node stands still.
GAP_LIMIT_S = 120.0
#: After the first confirm that follows a kill: a second gap would be seen.
AFTER_S = 1.0
#: Between the return of a node and the next kill.
SETTLE_S = 1.0
#: Before and while a mirror is made, and while one is away.
STEADY = ("--size", "200", "--persistent", "--consumers", "0", "--rate", "1000")
STEADY_WINDOW = ("--window", "100000")
#: What a full run waits; a smaller backlog waits less.
BASELINE_S, AWAY_S = 60.0, 10.0
SHORTEST_S = 2.0


def amount_for(load: Load, cluster: Cluster) -> int:
    """How much of it this broker is asked for."""
    if cluster.name == "warren" or not load.others_amount:
        return load.amount
    return min(load.amount, load.others_amount)


def p99(values: list[float]) -> float:
    """The nearest rank: of less than a hundred values it is the largest."""
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


# -- the master is lost ----------------------------------------------------------------------------


def _gap(beat: ConfirmBeat, since: float) -> float:
    """The longest gap in the confirms from a moment on, when all goes on again."""
    beat.await_one_since(since, GAP_LIMIT_S)
    time.sleep(AFTER_S)
    beat.await_one_since(time.monotonic(), GAP_LIMIT_S)
    return beat.longest_gap(since)


def _publisher(cluster: Cluster, master: Broker, turn: int, queue: str) -> ConfirmBeat:
    """On the other nodes in turn."""
    others = [node for node in cluster.nodes if node is not master]
    return ConfirmBeat(others[turn % len(others)].port, queue)


def mirror_kills(load: Load, broker: Broker, prefix: list[str]) -> Metrics:
    """Kills the master again and again; the killed node comes back and is synchronised."""
    cluster = as_cluster(broker)
    cluster.mirror(EVERYWHERE)
    declare(cluster, prefix)
    queue = queue_of(prefix)
    gaps, failed = [], 0
    for turn in range(amount_for(load, cluster)):
        master = cluster.named(await_in_sync(cluster, queue, NODES).master)
        with _publisher(cluster, master, turn, queue) as beat:
            beat.await_count(BEATS_BEFORE, GAP_LIMIT_S)
            moment = time.monotonic()
            master.halt(kill=True)
            gaps.append(_gap(beat, moment))
            failed += beat.failed
        master.resume()
        master.await_port()
        cluster.await_together()
        time.sleep(SETTLE_S)
    delete(cluster, prefix)
    return {
        "kills": float(len(gaps)),
        "gap_p50_s": median(gaps),
        "gap_p99_s": p99(gaps),
        "failed_publishes": float(failed),
    }


def mirror_stop(_load: Load, broker: Broker, prefix: list[str]) -> Metrics:
    """The master's node answers nothing, and its connections stay open."""
    cluster = as_cluster(broker)
    cluster.mirror(EVERYWHERE)
    declare(cluster, prefix)
    queue = queue_of(prefix)
    master = cluster.named(await_in_sync(cluster, queue, NODES).master)
    try:
        with _publisher(cluster, master, 0, queue) as beat:
            beat.await_count(BEATS_BEFORE, GAP_LIMIT_S)
            moment = time.monotonic()
            # Each node was started as the leader of a group of its own.
            os.killpg(master.pid, signal.SIGSTOP)
            gap = _gap(beat, moment)
            failed = beat.failed
    finally:
        cluster.restart()
    return {"stop_gap_s": gap, "failed_publishes": float(failed)}


def mirror_many(load: Load, broker: Broker, prefix: list[str]) -> Metrics:
    """All masters are on the first node."""
    cluster = as_cluster(broker)
    cluster.mirror(EVERYWHERE)
    start = time.monotonic()
    declare(cluster, prefix, load.amount)
    await_all_in_sync(cluster, prefix[-1], load.amount)
    mirror_s = time.monotonic() - start
    await_rest(cluster.pids)
    names = [f"{prefix[-1]}-q{number:06}" for number in range(load.amount)]
    with Sweep(cluster.nodes[1].port, names) as sweep:
        sweep.publish()
        sweep.await_all(GAP_LIMIT_S)
        moment = time.monotonic()
        cluster.nodes[0].halt(kill=True)
        sweep.publish()
        all_serve_s = sweep.await_all(GAP_LIMIT_S) - moment
        refused = sweep.refused
    cluster.restart()
    return {
        "mirrored_queues": float(load.amount),
        "mirror_s": mirror_s,
        "all_serve_s": all_serve_s,
        "refused_publishes": float(refused),
    }


def await_all_in_sync(cluster: Cluster, prefix: str, queues: int) -> None:
    """Until all queues with names that begin so have all their replicas. Raises BrokerError."""
    deadline = time.monotonic() + IN_SYNC_LIMIT_S
    while (found := cluster.count_in_sync(prefix, NODES)) < queues:
        if time.monotonic() > deadline:
            raise BrokerError(f"{found} of {queues} queues in sync within {IN_SYNC_LIMIT_S:g} s")
        time.sleep(max(cluster.look_again_s, 0.2))


# -- a mirror gets a backlog -----------------------------------------------------------------------


def _fill(cluster: Cluster, prefix: list[str], messages: int) -> None:
    words = ["--size", str(BACKLOG_MESSAGE_BYTES), "--messages", str(messages)]
    more = ["--persistent", "--window", "1000", "--keep", *prefix]
    run(cluster, ["--endpoints", cluster.endpoint, "--mode", "fill", *words, *more])
    await_rest(cluster.pids)


def _length_s(full_s: float, messages: int) -> float:
    """Of a part that waits: as much shorter as the backlog is smaller, within reason."""
    return max(SHORTEST_S, full_s * min(1.0, messages / BACKLOG))


def _steady(cluster: Cluster, prefix: list[str]) -> list[str]:
    """A producer on the master's node."""
    return ["--endpoints", cluster.endpoint, *STEADY, *STEADY_WINDOW, *prefix, "--keep"]


def mirror_sync(load: Load, broker: Broker, prefix: list[str]) -> Metrics:
    """Two replicas take the backlog; then the policy asks for a third, under a steady load."""
    cluster = as_cluster(broker)
    cluster.mirror({**EVERYWHERE, "ha-mode": "nodes", "ha-params": cluster.node_names[:-1]})
    declare(cluster, prefix)
    queue, messages = queue_of(prefix), amount_for(load, cluster)
    await_in_sync(cluster, queue, NODES - 1)
    _fill(cluster, prefix, messages)
    steady, newcomer = _steady(cluster, prefix), cluster.nodes[-1]
    length = ["--warm", "1", "--seconds", str(_length_s(BASELINE_S, messages))]
    baseline = run(cluster, [*steady, *length]).result["confirm_ms"]
    before = received_bytes(newcomer.pid, newcomer.port)
    with open_flow([*steady, "--warm", "1"]) as flow:
        start = time.monotonic()
        cluster.mirror(EVERYWHERE)
        await_in_sync(cluster, queue, NODES)
        sync_s = time.monotonic() - start
        # What waited for the end is confirmed now, and belongs to it.
        time.sleep(AFTER_S)
        flow.end()
    received = received_bytes(newcomer.pid, newcomer.port) - before
    check_in_sync(cluster, queue, NODES)
    delete(cluster, prefix)
    during = flow.result["confirm_ms"]
    return {
        "backlog_mb": messages * BACKLOG_MESSAGE_BYTES / MB,
        "baseline_p99_ms": baseline["p99"],
        "sync_p99_ms": during["p99"],
        "sync_most_ms": during["max"],
        "sync_of_baseline": during["p99"] / baseline["p99"],
        "sync_s": sync_s,
        "sync_mb": received / MB,
    }


def mirror_rejoin(load: Load, broker: Broker, prefix: list[str]) -> Metrics:
    """A mirror is killed, misses some seconds of a steady load, and comes back."""
    cluster = as_cluster(broker)
    cluster.mirror(EVERYWHERE)
    declare(cluster, prefix)
    queue, messages = queue_of(prefix), amount_for(load, cluster)
    await_in_sync(cluster, queue, NODES)
    _fill(cluster, prefix, messages)
    check_in_sync(cluster, queue, NODES)
    mirror = cluster.nodes[-1]
    mirror.halt(kill=True)
    away = ["--warm", "0", "--seconds", str(AWAY_S if messages > load.quick_amount else SHORTEST_S)]
    run(cluster, [*_steady(cluster, prefix), *away])
    start = time.monotonic()
    mirror.resume()
    mirror.await_port()
    await_in_sync(cluster, queue, NODES)
    rejoin_s = time.monotonic() - start
    # All of its connections are younger than its start.
    moved = received_bytes(mirror.pid, mirror.port)
    delete(cluster, prefix)
    backlog = messages * BACKLOG_MESSAGE_BYTES
    return {
        "backlog_mb": backlog / MB,
        "rejoin_s": rejoin_s,
        "moved_mb": moved / MB,
        "moved_percent": moved / backlog * 100,
    }
