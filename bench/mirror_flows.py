"""Carries out the flows through mirrored queues.

Metrics, beside those of bench/cluster_procedures.py: `{direct,via}_{fill,drained}_rate` (where the
producer is; whether there is a consumer), `replicas_N_rate`, and `*_cpu_us` of each.
"""

from bench.brokers import Broker
from bench.cluster_procedures import PLACES, Place, as_cluster, place_arguments
from bench.clusters import NODES, Cluster
from bench.generator import Run
from bench.loads import Load
from bench.measure import await_rest
from bench.metrics import Metrics, Pace, flow_metrics
from bench.mirror_loads import REPLICAS
from bench.mirrored import EVERYWHERE, mirrored_queue
from bench.store_procedures import durable_run

#: At 1,000 msg/s a quantile of 99 % needs some time.
PACED_LENGTH = 2.0
NO_CONSUMER = ("--consumers", "0")


def _part(prefix: list[str], name: str) -> list[str]:
    """A name for the queue of one part of a load."""
    return [prefix[0], f"{prefix[1]}.{name}"]


def _flow(cluster: Cluster, place: Place, words: list[str], pace: Pace) -> Run:
    await_rest(cluster.pids)
    arguments = [*place_arguments(place, cluster), *words, *pace.arguments(), "--keep"]
    return durable_run(cluster, arguments).run


def mirror_flow(load: Load, broker: Broker, prefix: list[str], pace: Pace) -> Metrics:
    """As fast as it goes: without a consumer and with one, the producer in two places."""
    cluster = as_cluster(broker)
    cluster.mirror(EVERYWHERE)
    metrics: Metrics = {}
    for kind, counted, more in (("fill", "confirmed", NO_CONSUMER), ("drained", "consumed", ())):
        for place in PLACES[:2]:
            name = f"{place.name}_{kind}"
            part = _part(prefix, name)
            with mirrored_queue(cluster, part, NODES):
                done = _flow(cluster, place, [*load.arguments, *more, *part], pace)
            metrics[f"{name}_rate"] = done.number(f"{counted}_per_s")
            metrics[f"{name}_cpu_us"] = done.cpu_us_per(counted)
    return metrics


def mirror_paced(load: Load, broker: Broker, prefix: list[str], pace: Pace) -> Metrics:
    """At a fixed rate; both clients on the master's node."""
    cluster = as_cluster(broker)
    cluster.mirror(EVERYWHERE)
    longer = Pace(pace.warm_s, pace.measure_s * PACED_LENGTH)
    with mirrored_queue(cluster, prefix, NODES):
        done = _flow(cluster, PLACES[0], [*load.arguments, *prefix], longer)
    return flow_metrics(done, load)


def mirror_replicas(load: Load, broker: Broker, prefix: list[str], pace: Pace) -> Metrics:
    """The producer on the master's node, no consumer; all numbers of replicas on the same nodes."""
    cluster = as_cluster(broker)
    cluster.stop()
    cluster.size = REPLICAS[-1]
    metrics: Metrics = {}
    try:
        cluster.start()
        for replicas in REPLICAS:
            part = _part(prefix, str(replicas))
            cluster.mirror({**EVERYWHERE, "ha-mode": "exactly", "ha-params": replicas})
            with mirrored_queue(cluster, part, replicas):
                done = _flow(cluster, PLACES[0], [*load.arguments, *NO_CONSUMER, *part], pace)
            metrics[f"replicas_{replicas}_rate"] = done.number("confirmed_per_s")
            metrics[f"replicas_{replicas}_cpu_us"] = done.cpu_us_per("confirmed")
    finally:
        cluster.size = NODES
        cluster.restart()
    return metrics
