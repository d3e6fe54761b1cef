"""Carries a load out against one broker and returns its numbers.

Metrics, by name: `rate` (messages, declares or connections a second), `cpu_us` (broker CPU µs for
each of them), `memory_bytes` (for each queued message, queue or connection), `generator_us`
(the load generator's own CPU µs), and the latencies in ms.
"""

import itertools
import time
from dataclasses import dataclass

from bench.brokers import Broker
from bench.generator import Run, run
from bench.loads import Kind, Load
from bench.measure import usage

Metrics = dict[str, float]

#: Brokers free and collect a little after the last answer; memory is looked at after this.
MEMORY_REST_S = 1.0
#: Long enough for the memory of idle connections to be looked at while they are open.
HOLD_S = 1.0

_serial = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a flow warms up and is measured."""

    warm_s: float
    measure_s: float

    def arguments(self) -> list[str]:
        """For the generator."""
        return ["--warm", str(self.warm_s), "--seconds", str(self.measure_s)]


def carry_out(load: Load, broker: Broker, pace: Pace) -> Metrics:
    """Runs the load once.

    Raises:
        GeneratorError: the broker or the generator failed.
        BrokerError: a fresh broker was needed and did not start.
    """
    # A name of its own each time: the prototype cannot delete a queue.
    prefix = ["--prefix", f"{load.name}.{next(_serial)}"]
    if load.kind is Kind.FILL:
        return _fill(load, broker, prefix)
    if load.kind is Kind.QUEUES:
        return _queues(load, broker, prefix)
    metrics: Metrics = {}
    if load.kind is Kind.CONNECTIONS:
        metrics = _idle_connections(load, broker)
    keep = [] if broker.full else ["--keep"]
    measured = run(broker, [*load.arguments, *prefix, *keep, *pace.arguments()])
    return {**_flow_metrics(measured, load), **metrics}


def _flow_metrics(measured: Run, load: Load) -> Metrics:
    consumed = measured.number("consumed")
    metrics = {
        "rate": measured.number("consumed_per_s"),
        "published": measured.number("published_per_s"),
        "cpu_us": measured.cpu_us_per("consumed"),
        "generator_us": measured.number("generator_cpu_s") / consumed * 1e6 if consumed else 0.0,
    }
    if load.latencies:
        for kind in ("deliver", "confirm"):
            for quantile, value in measured.result.get(f"{kind}_ms", {}).items():
                if quantile != "count":
                    metrics[f"{kind}_{quantile}_ms"] = float(value)
    return metrics


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
