"""The loads of operating: what clients notice of those who look.

Carried out by bench/operating_procedures.py.
"""

from bench.loads import MANUAL_ACK, Kind, Load

#: An easy pace, which every broker sustains with a list being made beside it.
LISTING_RATE = "1000"

OPERATING_LOADS = (
    Load(
        "listing-10000",
        "10,000 queues listed again and again, at 1,000 msg/s",
        Kind.LISTING,
        # A window that never closes at this rate: the schedule is the only thing that holds back.
        ("--size", "200", *MANUAL_ACK, "--window", LISTING_RATE, "--rate", LISTING_RATE),
        amount=10_000,
        quick_amount=2_000,
    ),
    Load(
        "warrenctl-calls",
        "calls of warrenctl over the unix socket",
        Kind.CALLS,
        amount=100,
        quick_amount=20,
        warren_only=True,
    ),
)
