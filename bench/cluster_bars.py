"""The bars of the cluster."""

from bench.bar import Bar, value

CLUSTER_BARS = (
    Bar(
        "persistent, published through another node than the queue's, of direct",
        value("cluster-persist", "via_of_direct"),
        at_least=0.5,
    ),
    Bar(
        "transient, published through another node than the queue's, of direct",
        value("cluster-200B", "via_of_direct"),
        at_least=0.5,
    ),
    Bar(
        "10,000 queues declared over three nodes",
        value("cluster-declare", "rate"),
        at_least=2_000,
        unit="/s",
    ),
    Bar(
        "kill of the leader to the next declare, median",
        value("cluster-failover", "failover_s"),
        at_most=1,
        unit="s",
    ),
    Bar(
        "kill of the leader to the next declare, most",
        value("cluster-failover", "failover_most_s"),
        at_most=1,
        unit="s",
    ),
    Bar(
        "start of an empty node, until it has 100,000 bindings and serves",
        value("cluster-bindings-100000", "catch_up_s"),
        at_most=10,
        unit="s",
    ),
)
