"""Carries out the loads of operating; they need a fresh broker with a management API.

Metrics, beside those of bench/procedures.py: `idle_*` and `listing_*` (publish to confirm with
nobody who looks, and with a lister), `listing_of_idle` (the p99 of both), `lists` and `list_s`;
`call_*` (a call of warrenctl, from its start to its end).
"""

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import fmean, quantiles

from bench.brokers import READY_TIMEOUT_S, Broker, BrokerError, free_port
from bench.generator import Run, run
from bench.lister import Lister, await_api
from bench.loads import Load
from bench.measure import await_rest
from bench.metrics import Metrics, Pace

#: What operators and their scripts call most.
COMMANDS = (
    ("list_queues", "name", "messages", "consumers"),
    ("status",),
    ("cluster_status",),
    ("list_connections",),
    ("check_running",),
    ("set_policy", "bench", "^bench", '{"max-length": 10}'),
)
CALL_S = 30.0
#: A p99 of a thousand confirms a second needs some seconds to be one.
SECONDS_LEAST = 1.5


def listing(load: Load, broker: Broker, prefix: list[str], pace: Pace) -> Metrics:
    """A paced flow twice: alone, then while all queues are listed again and again."""
    broker.http_port = free_port()
    broker.restart()
    try:
        await_api(broker.http_port, READY_TIMEOUT_S)
        declare = ["--mode", "declare", "--window", "50", "--queues", str(load.amount)]
        run(broker, [*declare, "--prefix", "listed", "--keep"])
        await_rest(broker.pids)
        flow = [*load.arguments, *prefix, *pace.arguments()]
        # Once over the same way first: what is made once must not count as idle.
        run(broker, [*flow, "--seconds", str(SECONDS_LEAST)])
        idle = run(broker, flow)
        with Lister(broker.http_port) as lister:
            listed = run(broker, flow)
        if not lister.took_s:
            raise BrokerError(f"{broker.name} has not ended one list of {load.amount:,} queues")
        return {**listing_metrics(idle, listed), **list_metrics(lister.took_s)}
    finally:
        # The other loads go on with what they began with.
        broker.http_port = 0
        broker.restart()


def listing_metrics(idle: Run, listed: Run) -> Metrics:
    """Both flows side by side."""
    found: Metrics = {}
    for name, flow in (("idle", idle), ("listing", listed)):
        found[f"{name}_rate"] = flow.number("confirmed_per_s")
        for quantile in ("p50", "p99"):
            found[f"{name}_{quantile}_ms"] = float(flow.result["confirm_ms"][quantile])
    if found["idle_p99_ms"]:
        found["listing_of_idle"] = found["listing_p99_ms"] / found["idle_p99_ms"]
    return found


def list_metrics(took_s: list[float]) -> Metrics:
    """How many lists were made beside the flow, and how long each took."""
    return {"lists": float(len(took_s)), "list_s": fmean(took_s)}


def calls(load: Load, broker: Broker, _prefix: list[str]) -> Metrics:
    """Commands one after the other, each in a process of its own, by the clock on the wall."""
    run(broker, ["--mode", "declare", "--queues", "100", "--prefix", "called", "--keep"])
    environment = {**os.environ, **broker.environment()}
    program = str(Path(sys.executable).parent / "warrenctl")
    took_ms = []
    for number, words in zip(range(load.amount + len(COMMANDS)), itertools.cycle(COMMANDS)):
        began = time.perf_counter()
        done = subprocess.run(
            [program, *words],
            check=False,
            env=environment,
            capture_output=True,
            text=True,
            timeout=CALL_S,
        )
        # Those at first wait for the disk.
        if number >= len(COMMANDS):
            took_ms.append((time.perf_counter() - began) * 1000)
        if done.returncode:
            raise BrokerError(f"warrenctl {words[0]}: {done.stderr}")
    return call_metrics(took_ms)


def call_metrics(took_ms: list[float]) -> Metrics:
    """Of the times of all calls."""
    parts = quantiles(took_ms, n=100, method="inclusive")
    return {"call_p50_ms": parts[49], "call_p95_ms": parts[94], "call_most_ms": max(took_ms)}
