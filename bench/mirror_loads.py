"""The loads of mirrored queues: three nodes of each broker, a replica on every one of them.

Carried out by bench/mirror_flows.py and bench/mirror_procedures.py.
"""

from bench.loads import MANUAL_ACK, Kind, Load
from bench.store_loads import CONFIRMED, PERSISTENT

#: Of the curve; as many nodes as the last.
REPLICAS = (2, 3, 5)
#: The messages of a backlog; `amount` counts them.
BACKLOG_MESSAGE_BYTES = 4_000
#: A gigabyte, and what other brokers get of it: they stand still for as long as it takes.
BACKLOG, OTHERS_BACKLOG, QUICK_BACKLOG = 250_000, 62_500, 2_500


def backlog(name: str, title: str, kind: Kind) -> Load:
    """Something that happens to a queue with a gigabyte in it."""
    return Load(
        name,
        title,
        kind,
        amount=BACKLOG,
        quick_amount=QUICK_BACKLOG,
        others_amount=OTHERS_BACKLOG,
        clustered=True,
        once=True,
    )


MIRROR_LOADS = (
    Load(
        "mirrors-flow",
        "mirrored, 200 B persistent, confirms, window 1000",
        Kind.MIRROR_FLOW,
        ("--size", "200", *MANUAL_ACK, *CONFIRMED),
        clustered=True,
    ),
    Load(
        "mirrors-1k",
        "mirrored, 200 B persistent, manual ack, confirms, at 1,000 msg/s",
        Kind.MIRROR_PACED,
        # A window that never closes at this rate: the schedule is the only thing that holds back.
        ("--size", "200", *MANUAL_ACK, *PERSISTENT, "--window", "20000", "--rate", "1000"),
        clustered=True,
        latencies=True,
    ),
    Load(
        "mirrors-failover",
        "mirrored, the master's node is killed",
        Kind.MIRROR_KILLS,
        amount=12,
        quick_amount=1,
        others_amount=4,
        clustered=True,
        once=True,
    ),
    Load(
        "mirrors-stop",
        "mirrored, the master's node stands still (SIGSTOP)",
        Kind.MIRROR_STOP,
        clustered=True,
        once=True,
    ),
    backlog("mirrors-sync", "a new mirror of a backlog, at 1,000 msg/s", Kind.MIRROR_SYNC),
    backlog("mirrors-rejoin", "a mirror was away for 10 s at 1,000 msg/s", Kind.MIRROR_REJOIN),
    Load(
        "mirrors-many",
        "the node of all masters is killed",
        Kind.MIRROR_MANY,
        amount=1_000,
        quick_amount=20,
        clustered=True,
        once=True,
    ),
    Load(
        "mirrors-async",
        "mirrored, ha-replication sync and async, 200 B persistent, no consumer",
        Kind.MIRROR_ASYNC,
        ("--size", "200", *CONFIRMED),
        clustered=True,
        warren_only=True,
    ),
    Load(
        "mirrors-rebalance",
        "the masters of all queues are spread, at 1,000 msg/s",
        Kind.MIRROR_REBALANCE,
        amount=1_000,
        quick_amount=20,
        clustered=True,
        once=True,
        warren_only=True,
    ),
    Load(
        "mirrors-replicas",
        f"mirrored, 200 B persistent, confirms, window 1000, on {REPLICAS[-1]} nodes",
        Kind.MIRROR_REPLICAS,
        ("--size", "200", *CONFIRMED),
        clustered=True,
        # Five of RabbitMQ on the machine of a developer would measure the machine.
        warren_only=True,
    ),
)
