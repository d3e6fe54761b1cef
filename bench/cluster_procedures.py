"""Carries out the loads of the cluster.

Metrics, beside those of bench/procedures.py: `direct_rate`, `via_rate` and `both_rate` (where the
clients are connected, see Place), `*_of_direct` (over the direct rate of the same turn), `*_cpu_us`
(of all nodes, a message), `failover_s` and `failover_most_s` (from the kill of a node until a
declare on another, sent after it, is answered), `failed_declares`, `import_s` and `catch_up_s`
(from the start of a node without data until it serves clients and has everything).
"""

import time
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.brokers import Broker, BrokerError
from bench.clusters import NODES, Cluster
from bench.declare_beat import DeclareBeat
from bench.generator import Run, run
from bench.loads import Load
from bench.measure import await_rest
from bench.metrics import Metrics, Pace
from bench.store_procedures import durable_run

#: Declares that must have gone well before a kill.
BEATS_BEFORE = 20
FAILOVER_LIMIT_S = 60.0
#: Between the return of a node and the next kill: what returned has been told to all.
SETTLE_S = 1.0
BINDING_QUEUES, BINDING_EXCHANGE = 10, "bench-bindings"


@dataclass(frozen=True, slots=True)
class Place:
    """Which nodes the clients are connected to, by number from 0; the queue is on the first."""

    name: str
    producer: int
    consumer: int


PLACES = (Place("direct", 0, 0), Place("via", 1, 0), Place("both", 1, 2))


def as_cluster(broker: Broker) -> Cluster:
    """The broker, which must be one.

    Raises:
        BrokerError: it is not.
    """
    if not isinstance(broker, Cluster):
        raise BrokerError(f"{broker.name} is no cluster")
    return broker


def places(load: Load, broker: Broker, prefix: list[str], pace: Pace) -> Metrics:
    """The same flow with the clients on the queue's node and on others."""
    cluster = as_cluster(broker)
    metrics: Metrics = {}
    for place in PLACES:
        await_rest(cluster.pids)
        done = _flow_at(place, load, cluster, prefix, pace)
        metrics[f"{place.name}_rate"] = done.number(f"{load.counted}_per_s")
        metrics[f"{place.name}_cpu_us"] = done.cpu_us_per(load.counted)
    for place in PLACES[1:]:
        if metrics["direct_rate"]:
            ratio = metrics[f"{place.name}_rate"] / metrics["direct_rate"]
            metrics[f"{place.name}_of_direct"] = ratio
    return metrics


def place_arguments(place: Place, cluster: Cluster) -> list[str]:
    """The node that declares a queue is the one that it lives on."""
    ends = [node.endpoint for node in cluster.nodes]
    of_producer = ["--producer-endpoints", ends[place.producer]]
    of_consumer = ["--consumer-endpoints", ends[place.consumer]]
    return ["--endpoints", ends[0], *of_producer, *of_consumer]


def _flow_at(place: Place, load: Load, cluster: Cluster, prefix: list[str], pace: Pace) -> Run:
    nodes = place_arguments(place, cluster)
    arguments = [*nodes, *load.arguments, *prefix, *pace.arguments()]
    if "--persistent" in load.arguments:
        return durable_run(cluster, arguments).run
    return run(cluster, arguments)


def declares(load: Load, broker: Broker, prefix: list[str]) -> Metrics:
    """Durable queues over all nodes."""
    broker.restart()
    run(broker, ["--mode", "declare", *load.arguments, "--queues", "120", "--prefix", "warm"])
    await_rest(broker.pids)
    queues = ["--queues", str(load.amount), "--keep"]
    declared = run(broker, ["--mode", "declare", *load.arguments, *prefix, *queues])
    broker.restart()
    return {
        "rate": declared.number("declared_per_s"),
        "cpu_us": declared.cpu_us_per("declared"),
        "generator_us": declared.number("generator_cpu_s") / load.amount * 1e6,
    }


def failover(load: Load, broker: Broker, prefix: list[str]) -> Metrics:
    """Kills the leader again and again, or one node after the other where none leads."""
    cluster = as_cluster(broker)
    cluster.restart()
    taken, failed = [], 0
    for kill in range(load.amount):
        victim = cluster.leader() or cluster.nodes[kill % NODES]
        others = [node for node in cluster.nodes if node is not victim]
        with DeclareBeat(others[kill % len(others)].port, f"{prefix[-1]}-{kill}") as beat:
            beat.await_count(BEATS_BEFORE, FAILOVER_LIMIT_S)
            before, moment = beat.failed, time.monotonic()
            victim.halt(kill=True)
            taken.append(beat.await_one_since(moment, FAILOVER_LIMIT_S))
            failed += beat.failed - before
        victim.resume()
        victim.await_port()
        cluster.await_together()
        time.sleep(SETTLE_S)
    cluster.restart()
    return {
        "failover_s": median(taken),
        "failover_most_s": max(taken),
        "failed_declares": float(failed),
    }


def bindings_document(count: int) -> dict[str, Any]:
    """A definitions file with a direct exchange, some queues, and bindings with a key each."""
    names = [f"{BINDING_EXCHANGE}-{number}" for number in range(BINDING_QUEUES)]
    at = {"vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    exchange = {"name": BINDING_EXCHANGE, "type": "direct", "internal": False, **at}
    return {
        "exchanges": [exchange],
        "queues": [{"name": name, **at} for name in names],
        "bindings": [
            {
                "source": BINDING_EXCHANGE,
                "vhost": "/",
                "destination": names[number % BINDING_QUEUES],
                "destination_type": "queue",
                "routing_key": f"key-{number:06}",
                "arguments": {},
            }
            for number in range(count)
        ],
    }


def catch_up(load: Load, broker: Broker, _prefix: list[str]) -> Metrics:
    """The last node starts with nothing, when the others have everything.

    Raises:
        BrokerError: it serves clients and has not all bindings.
    """
    cluster = as_cluster(broker)
    cluster.stop()
    cluster.start_some(NODES - 1)
    start = time.monotonic()
    cluster.import_definitions(bindings_document(load.amount))
    import_s = time.monotonic() - start
    await_rest(cluster.pids)
    last = cluster.nodes[-1]
    start = time.monotonic()
    last.resume()
    last.await_port()
    catch_up_s = time.monotonic() - start
    found = cluster.count_bindings(last, BINDING_EXCHANGE)
    if found != load.amount:
        raise BrokerError(f"the new node has {found:,} of {load.amount:,} bindings")
    cluster.restart()
    return {"import_s": import_s, "catch_up_s": catch_up_s}
