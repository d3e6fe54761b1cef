"""The loads of the cluster: three nodes of each broker, all with their data on disk.

Carried out by bench/cluster_procedures.py.
"""

from bench.loads import AUTO_ACK, MANUAL_ACK, Kind, Load
from bench.store_loads import CONFIRMED

#: Connections that declare at the same time, over all nodes; each waits for its answers.
DECLARERS = 60

CLUSTER_LOADS = (
    Load(
        "cluster-persist",
        "200 B persistent, manual ack, confirms, window 1000",
        Kind.PLACES,
        ("--size", "200", *MANUAL_ACK, *CONFIRMED),
        clustered=True,
    ),
    Load(
        "cluster-200B",
        "200 B transient, auto-ack",
        Kind.PLACES,
        ("--size", "200", *AUTO_ACK),
        clustered=True,
    ),
    Load(
        "cluster-declare",
        f"queues declared over 3 nodes, {DECLARERS} connections",
        Kind.DECLARES,
        ("--producers", str(DECLARERS), "--window", "1"),
        amount=10_000,
        quick_amount=2_000,
        clustered=True,
        once=True,
    ),
    Load(
        "cluster-failover",
        "declares while nodes are killed",
        Kind.FAILOVER,
        amount=6,
        quick_amount=2,
        clustered=True,
        once=True,
    ),
    Load(
        "cluster-bindings",
        "an empty node joins 100,000 bindings",
        Kind.CATCH_UP,
        amount=100_000,
        quick_amount=20_000,
        clustered=True,
        once=True,
    ),
)
