"""The loads of the store: durable queues, persistent messages, every broker with its data on disk.

Carried out by bench/store_procedures.py, but for the plain flows.
"""

from bench.loads import MANUAL_ACK, Kind, Load

PERSISTENT = ("--persistent",)
CONFIRMED = (*PERSISTENT, "--window", "1000")
#: The memory budget of the paging load, as rabbitmq.conf and as a number.
PAGING_BUDGET, PAGING_BUDGET_BYTES = "256MB", 256_000_000
PAGING_MESSAGE_BYTES = 4096
#: The same with fifty times a gigabyte, which takes a quarter of an hour.
DEEP_BUDGET, DEEP_BUDGET_BYTES = "1GB", 1_000_000_000
FAN_OUT_QUEUES, FAN_OUT_MESSAGE_BYTES = 10, 10_000

STORE_LOADS = (
    Load(
        "persist",
        "200 B persistent, manual ack, confirms, window 1000",
        arguments=("--size", "200", *MANUAL_ACK, *CONFIRMED),
        on_disk=True,
    ),
    Load(
        "persist-fill",
        "200 B persistent, no consumer, confirms, window 1000",
        arguments=("--size", "200", *CONFIRMED, "--consumers", "0"),
        on_disk=True,
        counted="confirmed",
    ),
    Load(
        "persist-5k",
        "200 B persistent, manual ack, confirms, at 5,000 msg/s",
        Kind.SYNC,
        # A window that never closes at this rate: the schedule is the only thing that holds back.
        ("--size", "200", *MANUAL_ACK, *PERSISTENT, "--window", "5000", "--rate", "5000"),
        on_disk=True,
        latencies=True,
    ),
    Load(
        "persist-fanout",
        f"10 kB persistent to {FAN_OUT_QUEUES} durable queues",
        Kind.FAN_OUT,
        (
            *("--size", str(FAN_OUT_MESSAGE_BYTES), *PERSISTENT, "--window", "200"),
            *("--exchange", "fanout", "--queues", str(FAN_OUT_QUEUES)),
        ),
        amount=2_000,
        on_disk=True,
        once=True,
    ),
    Load(
        "persist-restart",
        "restart with 1,000,000 persistent messages of 200 B",
        Kind.RESTART,
        ("--size", "200", *PERSISTENT, "--window", "2000"),
        amount=1_000_000,
        on_disk=True,
        once=True,
    ),
    Load(
        "persist-paging",
        f"a backlog of 4 KiB messages with a budget of {PAGING_BUDGET}",
        Kind.PAGING,
        ("--size", str(PAGING_MESSAGE_BYTES), *PERSISTENT, "--window", "2000"),
        amount=10_000_000_000 // PAGING_MESSAGE_BYTES,
        quick_amount=1_000_000_000 // PAGING_MESSAGE_BYTES,
        on_disk=True,
        once=True,
        warren_only=True,
        memory_budget=PAGING_BUDGET,
    ),
    Load(
        "persist-steady",
        "200 B persistent, consumed as fast as it comes, at 100,000 msg/s",
        Kind.STEADY,
        ("--size", "200", *MANUAL_ACK, *PERSISTENT, "--window", "50000", "--rate", "100000"),
        # Seconds: long enough for the room of consumed segments to be needed again many times.
        amount=15,
        quick_amount=5,
        on_disk=True,
        once=True,
        warren_only=True,
    ),
)

#: By name only: nobody has that much room by chance.
DEEP_LOADS = (
    Load(
        "deep-paging",
        f"a backlog of 50 GB with a budget of {DEEP_BUDGET}",
        Kind.PAGING,
        ("--size", str(PAGING_MESSAGE_BYTES), *PERSISTENT, "--window", "2000"),
        amount=50_000_000_000 // PAGING_MESSAGE_BYTES,
        quick_amount=2_000_000_000 // PAGING_MESSAGE_BYTES,
        on_disk=True,
        once=True,
        warren_only=True,
        memory_budget=DEEP_BUDGET,
    ),
)
