"""Carries out what operators do with mirrored queues: early confirms, many masters that move.

Metrics: `{waits,early}_{rate,cpu_us,p50_ms,p99_ms}` (confirms that wait for the mirrors, and that
do not), `early_of_waits`; `rebalance_s`, `moved_masters`, and `baseline_*` and `rebalance_*`
(latencies of a publisher before and while masters move).
"""

import time

from bench.brokers import Broker, BrokerError
from bench.cluster_procedures import PLACES, as_cluster, place_arguments
from bench.clusters import NODES, WarrenCluster
from bench.generator import open_flow, run
from bench.loads import Load
from bench.measure import await_rest
from bench.metrics import Metrics, Pace
from bench.mirror_flows import NO_CONSUMER
from bench.mirror_procedures import await_all_in_sync
from bench.mirrored import EVERYWHERE, declare, mirrored_queue
from bench.store_loads import PERSISTENT
from bench.store_procedures import durable_run

#: For latencies: far from what the brokers can do, in a window that never closes.
PACED = ("--size", "200", *PERSISTENT, *NO_CONSUMER, "--window", "20000", "--rate", "1000")
BASELINE_S = 20.0
#: Long after the bar: then something is wrong.
REBALANCE_LIMIT_S = 120.0
LOOK_S = 0.1


def _warren(broker: Broker) -> WarrenCluster:
    cluster = as_cluster(broker)
    if not isinstance(cluster, WarrenCluster):
        raise BrokerError("only a cluster of ours can be asked for this")
    return cluster


def mirror_async(load: Load, broker: Broker, prefix: list[str], pace: Pace) -> Metrics:
    """The same flows with `ha-replication` sync and async, one after the other."""
    cluster = _warren(broker)
    metrics: Metrics = {}
    for name, how in (("waits", "sync"), ("early", "async")):
        cluster.mirror({**EVERYWHERE, "ha-replication": how})
        part = [prefix[0], f"{prefix[1]}.{how}"]
        place = place_arguments(PLACES[0], cluster)
        with mirrored_queue(cluster, part, NODES):
            await_rest(cluster.pids)
            words = [*place, *load.arguments, *NO_CONSUMER, *part, *pace.arguments(), "--keep"]
            done = durable_run(cluster, words).run
            metrics[f"{name}_rate"] = done.number("confirmed_per_s")
            metrics[f"{name}_cpu_us"] = done.cpu_us_per("confirmed")
            await_rest(cluster.pids)
            paced = run(cluster, [*place, *PACED, *part, *pace.arguments(), "--keep"])
            for quantile in ("p50", "p99"):
                metrics[f"{name}_{quantile}_ms"] = paced.result["confirm_ms"][quantile]
    cluster.mirror(EVERYWHERE)
    metrics["early_of_waits"] = metrics["early_rate"] / metrics["waits_rate"]
    return metrics


def mirror_rebalance(load: Load, broker: Broker, prefix: list[str]) -> Metrics:
    """All masters are on the first node, and are spread while a publisher goes on on the second."""
    cluster = _warren(broker)
    cluster.mirror(EVERYWHERE)
    declare(cluster, prefix, load.amount)
    await_all_in_sync(cluster, prefix[-1], load.amount)
    await_rest(cluster.pids)
    port = cluster.nodes[1].port
    # Not the queue of the declarer: its own, whose master may move as well.
    steady = [
        "--endpoints",
        f"127.0.0.1:{port}",
        *PACED,
        prefix[0],
        f"{prefix[1]}.steady",
        "--keep",
    ]
    baseline = run(cluster, [*steady, "--warm", "2", "--seconds", str(BASELINE_S)])
    with open_flow([*steady, "--warm", "1"]) as flow:
        start = time.monotonic()
        cluster.rebalance()
        while cluster.rebalancing()["state"] != "idle":
            if time.monotonic() - start > REBALANCE_LIMIT_S:
                raise BrokerError(f"still rebalancing: {cluster.rebalancing()}")
            time.sleep(LOOK_S)
        rebalance_s = time.monotonic() - start
        moved = cluster.rebalancing()["moved"]
        time.sleep(1.0)
        flow.end()
    cluster.restart()
    before, during = baseline.result["confirm_ms"], flow.result["confirm_ms"]
    return {
        "mirrored_queues": float(load.amount),
        "rebalance_s": rebalance_s,
        "moved_masters": float(moved),
        "baseline_p99_ms": before["p99"],
        "rebalance_p99_ms": during["p99"],
        "rebalance_most_ms": during["max"],
        "rebalance_of_baseline": during["p99"] / before["p99"],
    }
