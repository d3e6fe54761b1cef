"""Carries a load out against one broker and returns its numbers.

Metrics, by name: `rate` (messages, declares or connections a second), `cpu_us` (broker CPU µs for
each of them), `memory_bytes` (for each queued message, queue or connection), `generator_us`
(the load generator's own CPU µs), and the latencies in ms.
"""

import itertools
import time
from collections.abc import Callable

from bench.brokers import Broker
from bench.cluster_procedures import catch_up, declares, failover, places
from bench.generator import run
from bench.loads import Kind, Load
from bench.measure import usage
from bench.metrics import Metrics, Pace, flow_metrics
from bench.mirror_flows import mirror_flow, mirror_paced, mirror_replicas
from bench.mirror_procedures import (
    mirror_kills,
    mirror_many,
    mirror_rejoin,
    mirror_stop,
    mirror_sync,
)
from bench.mirrors_at_large import mirror_async, mirror_rebalance
from bench.operating_procedures import listing
from bench.store_procedures import durable_flow, fan_out, paging, restart, steady, sync_flow

#: Brokers free and collect a little after the last answer; memory is looked at after this.
MEMORY_REST_S = 1.0
#: Long enough for the memory of idle connections to be looked at while they are open.
HOLD_S = 1.0

_serial = itertools.count(1)


def carry_out(load: Load, broker: Broker, pace: Pace) -> Metrics:
    """Runs the load once.

    Raises:
        GeneratorError: the broker or the generator failed.
        BrokerError: a fresh broker was needed and did not start.
    """
    # A name of its own each time: the prototype cannot delete a queue.
    prefix = ["--prefix", f"{load.name}.{next(_serial)}"]
    if load.kind in PROCEDURES:
        return PROCEDURES[load.kind](load, broker, prefix)
    if load.kind in PACED:
        return PACED[load.kind](load, broker, prefix, pace)
    if load.on_disk:
        return durable_flow(load, broker, prefix, pace)
    metrics: Metrics = {}
    if load.kind is Kind.CONNECTIONS:
        metrics = _idle_connections(load, broker)
    keep = [] if broker.full else ["--keep"]
    measured = run(broker, [*load.arguments, *prefix, *keep, *pace.arguments()])
    return {**flow_metrics(measured, load), **metrics}


def _fill(load: Load, broker: Broker, prefix: list[str]) -> Metrics:
    broker.restart()
    # A first small round trip, so that what is allocated once is not counted on the messages.
    warm = ["--messages", "5000", "--size", "200"]
    run(broker, ["--mode", "fill", *warm, "--prefix", "warm", "--keep"])
    run(broker, ["--mode", "drain", *warm, "--prefix", "warm", "--auto-ack"])
    time.sleep(MEMORY_REST_S)
    before = usage(broker.pid).rss_bytes
    common = [*load.arguments, *prefix, "--messages", str(load.amount)]
    filled = run(broker, ["--mode", "fill", *common, "--keep"])
    time.sleep(MEMORY_REST_S)
    after = usage(broker.pid).rss_bytes
    # Kept to the end, so that deleting the queue is not counted on its messages.
    drained = run(broker, ["--mode", "drain", *common, "--prefetch", "1000", "--keep"])
    seconds = filled.number("seconds") + drained.number("seconds")
    return {
        "rate": load.amount / seconds if seconds else 0.0,
        "fill_rate": filled.number("confirmed_per_s"),
        "drain_rate": drained.number("consumed_per_s"),
        "cpu_us": (filled.whole_cpu_s + drained.whole_cpu_s) / load.amount * 1e6,
        "memory_bytes": (after - before) / load.amount,
    }


def _queues(load: Load, broker: Broker, prefix: list[str]) -> Metrics:
    broker.restart()
    run(broker, ["--mode", "declare", "--queues", "100", "--prefix", "warm"])
    time.sleep(MEMORY_REST_S)
    before = usage(broker.pid).rss_bytes
    common = [*load.arguments, *prefix, "--queues", str(load.amount)]
    declared = run(broker, ["--mode", "declare", *common, "--keep"])
    time.sleep(MEMORY_REST_S)
    after = usage(broker.pid).rss_bytes
    deleted = run(broker, ["--mode", "delete", *common])
    return {
        "rate": declared.number("declared_per_s"),
        "delete_rate": deleted.number("declared_per_s"),
        "cpu_us": declared.cpu_us_per("declared"),
        "memory_bytes": (after - before) / load.amount,
    }


def _idle_connections(load: Load, broker: Broker) -> Metrics:
    broker.restart()
    before = usage(broker.pid).rss_bytes
    count = ["--producers", str(load.amount)]
    held = run(broker, ["--mode", "connect", *count, "--seconds", str(HOLD_S)])
    seconds = held.number("connect_s")
    return {
        "connect_rate": load.amount / seconds if seconds else 0.0,
        "memory_bytes": (held.broker_rss_bytes - before) / load.amount,
    }


#: The procedures that know themselves how long to run.
PROCEDURES: dict[Kind, Callable[[Load, Broker, list[str]], Metrics]] = {
    Kind.FILL: _fill,
    Kind.QUEUES: _queues,
    Kind.FAN_OUT: fan_out,
    Kind.RESTART: restart,
    Kind.PAGING: paging,
    Kind.STEADY: steady,
    Kind.DECLARES: declares,
    Kind.FAILOVER: failover,
    Kind.CATCH_UP: catch_up,
    Kind.MIRROR_KILLS: mirror_kills,
    Kind.MIRROR_STOP: mirror_stop,
    Kind.MIRROR_SYNC: mirror_sync,
    Kind.MIRROR_REJOIN: mirror_rejoin,
    Kind.MIRROR_MANY: mirror_many,
    Kind.MIRROR_REBALANCE: mirror_rebalance,
}
#: Those that are told.
PACED: dict[Kind, Callable[[Load, Broker, list[str], Pace], Metrics]] = {
    Kind.SYNC: sync_flow,
    Kind.PLACES: places,
    Kind.MIRROR_FLOW: mirror_flow,
    Kind.MIRROR_PACED: mirror_paced,
    Kind.MIRROR_REPLICAS: mirror_replicas,
    Kind.MIRROR_ASYNC: mirror_async,
    Kind.LISTING: listing,
}
