"""Carries out the loads of operating; they need a fresh broker with a management API.

Metrics, beside those of bench/procedures.py: `idle_*` and `listing_*` (publish to confirm with
nobody who looks, and with a lister), `listing_of_idle` (the p99 of both), `lists` and `list_s`.
"""

from statistics import fmean

from bench.brokers import READY_TIMEOUT_S, Broker, BrokerError, free_port
from bench.generator import Run, run
from bench.lister import Lister, await_api
from bench.loads import Load
from bench.measure import await_rest
from bench.metrics import Metrics, Pace

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
