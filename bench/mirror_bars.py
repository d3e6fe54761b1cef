"""The bars of mirrored queues."""

from bench.bar import Bar, ratio, value

_FLOWS = {
    "direct_fill_rate": "no consumer",
    "via_fill_rate": "no consumer, through another node",
    "direct_drained_rate": "consumed meanwhile",
    "via_drained_rate": "consumed meanwhile, through another node",
}
_LATENCIES = {
    f"{kind}_{quantile}_ms": f"{quantile} to {kind}"
    for kind in ("confirm", "deliver")
    for quantile in ("p50", "p99")
}

MIRROR_BARS = (
    *(
        Bar(
            f"mirrored, persistent with confirms, {words}, of RabbitMQ",
            ratio("mirrors-flow", metric, "rabbitmq"),
            at_least=20,
        )
        for metric, words in _FLOWS.items()
    ),
    *(
        Bar(
            f"mirrored, {words} at 1,000 msg/s, of RabbitMQ's",
            ratio("mirrors-1k", metric, "rabbitmq"),
            at_most=1,
        )
        for metric, words in _LATENCIES.items()
    ),
    Bar(
        "gap in the confirms after a kill of the master, median",
        value("mirrors-failover", "gap_p50_s"),
        at_most=0.2,
        unit="s",
    ),
    Bar(
        "gap in the confirms after a kill of the master, p99",
        value("mirrors-failover", "gap_p99_s"),
        at_most=0.6,
        unit="s",
    ),
    Bar(
        "gap in the confirms after the master is stopped",
        value("mirrors-stop", "stop_gap_s"),
        at_most=3.5,
        unit="s",
    ),
    Bar(
        "p99 to confirm while a mirror gets a backlog, of that before",
        value("mirrors-sync", "sync_of_baseline"),
        at_most=1.5,
    ),
    Bar(
        "moved when a mirror comes back after 10 s, of the backlog",
        value("mirrors-rejoin", "moved_percent"),
        at_most=5,
        unit="%",
    ),
    Bar(
        "1,000 masters spread over three nodes under load",
        value("mirrors-rebalance", "rebalance_s"),
        at_most=10,
        unit="s",
    ),
    Bar(
        "p99 to confirm while they are, of that before",
        value("mirrors-rebalance", "rebalance_of_baseline"),
        at_most=2,
    ),
    Bar(
        "kill of the node of 1,000 masters until all serve",
        value("mirrors-many", "all_serve_s"),
        at_most=2,
        unit="s",
    ),
)
