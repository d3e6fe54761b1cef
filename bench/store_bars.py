"""The bars of the store."""

from bench.bar import Bar, ratio, value
from bench.store_loads import DEEP_BUDGET_BYTES, PAGING_BUDGET_BYTES
from bench.store_procedures import GIVE_BACK_MB, MB

STORE_BARS = (
    Bar("persistent with confirms, of RabbitMQ", ratio("persist", "rate", "rabbitmq"), at_least=12),
    Bar(
        "persistent with confirms and no consumer, of RabbitMQ",
        ratio("persist-fill", "rate", "rabbitmq"),
        at_least=12,
    ),
    Bar(
        "p99 to confirm at 5,000 msg/s, of a bare fdatasync's p99",
        value("persist-5k", "confirm_p99_of_bare"),
        at_most=3,
    ),
    Bar(
        "p99 to confirm at 5,000 msg/s, of a server's that only syncs and answers",
        value("persist-5k", "confirm_p99_of_floor"),
        at_most=1.5,
    ),
    Bar(
        "written to disk for a fan-out to 10, of the body",
        value("persist-fanout", "written_of_body"),
        at_most=1.5,
    ),
    Bar(
        "in the log for a fan-out to 10, of the body",
        value("persist-fanout", "log_of_body"),
        # Nothing in the log is no log: a body written once is there once at the least.
        at_least=1,
        at_most=1.5,
    ),
    Bar(
        "start with 1,000,000 messages after a kill",
        value("persist-restart", "killed_start_s"),
        at_most=3,
        unit="s",
    ),
    Bar(
        "start with 1,000,000 messages after a clean stop",
        value("persist-restart", "clean_start_s"),
        at_most=3,
        unit="s",
    ),
    Bar(
        "most memory while paging",
        value("persist-paging", "peak_rss_mb"),
        at_most=PAGING_BUDGET_BYTES / MB,
        unit="MB",
    ),
    Bar("publishers blocked while paging", value("persist-paging", "blocked"), at_most=0, unit=""),
    Bar(
        "drain of the backlog, of the disk's reading speed",
        value("persist-paging", "drain_of_disk"),
        at_least=0.5,
    ),
    Bar(
        "log left within 30 s of the drain",
        value("persist-paging", "log_left_mb"),
        at_most=GIVE_BACK_MB,
        unit="MB",
    ),
    Bar(
        "most room of a log consumed as fast as it fills",
        value("persist-steady", "log_most_mb"),
        at_most=512,
        unit="MB",
    ),
    Bar(
        "written to disk for a consumed message, of its record",
        value("persist-steady", "written_of_record"),
        at_most=1.6,
    ),
    Bar(
        "most memory while paging 50 GB",
        value("deep-paging", "peak_rss_mb"),
        at_most=DEEP_BUDGET_BYTES / MB,
        unit="MB",
    ),
    Bar("publishers blocked meanwhile", value("deep-paging", "blocked"), at_most=0, unit=""),
    Bar(
        "drain of 50 GB, of the disk's reading speed",
        value("deep-paging", "drain_of_disk"),
        at_least=0.5,
    ),
    Bar(
        "log left within 30 s of that drain",
        value("deep-paging", "log_left_mb"),
        at_most=GIVE_BACK_MB,
        unit="MB",
    ),
)
