"""The bars of operating."""

from bench.bar import Bar, value

OPERATING_BARS = (
    Bar(
        "p99 to confirm while 10,000 queues are listed, of the idle one",
        value("listing-10000", "listing_of_idle"),
        at_most=2,
    ),
)
