"""The bars of operating."""

from bench.bar import Bar, value

OPERATING_BARS = (
    Bar(
        "p99 to confirm while 10,000 queues are listed, of the idle one",
        value("listing-10000", "listing_of_idle"),
        at_most=2,
    ),
    Bar(
        "a call of warrenctl over the unix socket, p95 by the clock on the wall",
        value("warrenctl-calls", "call_p95_ms"),
        at_most=150,
        unit="ms",
    ),
)
