"""The loads of the cluster: three nodes of each broker, all with their data on disk.

Carried out by bench/cluster_procedures.py.
"""

from bench.loads import AUTO_ACK, MANUAL_ACK, Kind, Load
from bench.store_loads import CONFIRMED

#: Connections that declare at the same time, over all nodes; each waits for its answers.
DECLARERS = 120


def catch_up(bindings: int, quick: int, warren_only: bool = False) -> Load:
    """A node without data meets so many bindings."""
    return Load(
        f"cluster-bindings-{bindings}",
        f"an empty node joins two with {bindings:,} bindings",
        Kind.CATCH_UP,
        amount=bindings,
        quick_amount=quick,
        clustered=True,
        once=True,
        warren_only=warren_only,
    )


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
    catch_up(10_000, quick=2_000),
    # RabbitMQ takes a quarter of an hour to import so many.
    catch_up(100_000, quick=20_000, warren_only=True),
)
