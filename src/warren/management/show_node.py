"""The overview and the node as the API shows them."""

from __future__ import annotations

import os
import platform
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import warren
from warren.base.system import total_memory_bytes, used_memory_bytes
from warren.management import machine
from warren.management.context import Context, ListenerFacts
from warren.management.sampler import CHURN_COLUMNS, NODE_COLUMNS, TOTAL_COLUMNS, sum_totals
from warren.management.samples import NO_RATE
from warren.management.show_queues import NO_SPANS, Spans, count_consumers
from warren.routing.exchange import EXCHANGE_TYPES

Shown = dict[str, Any]

_TYPE_TEXTS = {
    "direct": "AMQP direct exchange, as per the AMQP specification",
    "fanout": "AMQP fanout exchange, as per the AMQP specification",
    "headers": "AMQP headers exchange, as per the AMQP specification",
    "topic": "AMQP topic exchange, as per the AMQP specification",
    "x-consistent-hash": "Consistent Hashing Exchange",
    "x-delayed-message": "Delayed Message Exchange.",
}
_MECHANISM_TEXTS = {
    "PLAIN": "SASL PLAIN authentication mechanism",
    "AMQPLAIN": "QPid AMQPLAIN mechanism",
    "EXTERNAL": "SASL EXTERNAL authentication mechanism",
}
_MESSAGE_STATS = TOTAL_COLUMNS[:14]
_LENGTHS = ("messages", "messages_ready", "messages_unacknowledged")
#: Counters of parts that RabbitMQ has and this broker has not, or not yet.
_NOT_COUNTED = (
    "gc_num",
    "gc_bytes_reclaimed",
    "context_switches",
    "io_read_count",
    "io_read_bytes",
    "io_read_avg_time",
    "io_write_count",
    "io_write_bytes",
    "io_write_avg_time",
    "io_sync_count",
    "io_sync_avg_time",
    "io_seek_count",
    "io_seek_avg_time",
    "io_reopen_count",
    "mnesia_ram_tx_count",
    "mnesia_disk_tx_count",
    "msg_store_read_count",
    "msg_store_write_count",
    "queue_index_write_count",
    "queue_index_read_count",
)


def exchange_types() -> list[Shown]:
    return [
        {"name": name, "description": _TYPE_TEXTS.get(name, name), "enabled": True}
        for name in sorted(EXCHANGE_TYPES)
    ]


def runtime_text() -> str:
    """What stands where RabbitMQ names its Erlang."""
    return f"Python {platform.python_version()}"


async def show_overview(
    context: Context, vhosts: Sequence[str] | None, user: str | None, spans: Spans = NO_SPANS
) -> Shown:
    """The broker at a glance; `vhosts` and `user` limit it to what a plain user may see."""
    engine, settings = context.engine, context.settings
    counts = await sum_totals(engine, vhosts)
    sampler = context.sampler
    messages = sampler.totals_gauge(vhosts, spans.messages)
    lengths = sampler.totals_gauge(vhosts, spans.lengths)
    everything = sampler.totals_gauge(None, spans.messages)
    keep = {"global": [keep_ms // 1000 for keep_ms, _ in sampler.policies]}
    return {
        "management_version": engine.settings.version,
        "rates_mode": settings.management.rates_mode,
        "sample_retention_policies": {**keep, "basic": [600, 3600], "detailed": [600]},
        "exchange_types": exchange_types(),
        "product_version": engine.settings.version,
        "product_name": engine.settings.product,
        "rabbitmq_version": engine.settings.version,
        "warren_version": warren.__version__,
        "cluster_name": engine.cluster_name,
        "erlang_version": platform.python_version(),
        "erlang_full_version": runtime_text(),
        "release_series_support_status": "supported",
        "disable_stats": settings.management.disable_stats,
        "enable_queue_totals": settings.management.enable_queue_totals,
        "message_stats": _numbers(counts, _MESSAGE_STATS, messages),
        "churn_rates": _numbers(counts, CHURN_COLUMNS, everything),
        "queue_totals": _numbers(counts, _LENGTHS, lengths),
        "object_totals": _object_totals(context, vhosts, user),
        "statistics_db_event_queue": 0,
        "node": context.node_name,
        "listeners": [show_listener(context, listener) for listener in context.listeners],
        "contexts": [
            {"node": context.node_name, **show_web_context(listener)}
            for listener in context.http_listeners
        ],
    }


def _numbers(counts: Counter[str], names: Sequence[str], gauge: Any) -> Shown:
    filled: Shown = {}
    for name in names:
        filled[name] = counts[name]
        filled[f"{name}_details"] = gauge.details(TOTAL_COLUMNS.index(name))
    return filled


def _object_totals(context: Context, vhosts: Sequence[str] | None, user: str | None) -> Shown:
    engine = context.engine
    seen = [engine.vhosts[name] for name in (engine.vhosts if vhosts is None else vhosts)]
    connections = [c for c in engine.connections if user is None or c.user == user]
    return {
        "channels": sum(connection.channel_count for connection in connections),
        "connections": len(connections),
        "consumers": sum(count_consumers(vhost) for vhost in seen),
        "exchanges": sum(len(vhost.exchanges) for vhost in seen),
        "queues": sum(len(vhost.queues) for vhost in seen),
    }


def show_listener(context: Context, listener: ListenerFacts) -> Shown:
    settings = context.settings.listeners
    return {
        "node": context.node_name,
        "protocol": listener.protocol,
        "ip_address": listener.host,
        "port": listener.port,
        "tls": listener.tls,
        "socket_opts": {
            "backlog": settings.backlog,
            "nodelay": settings.nodelay,
            "linger": [settings.linger, settings.linger_timeout_s],
            "exit_on_close": settings.exit_on_close,
        },
    }


def show_web_context(listener: ListenerFacts) -> Shown:
    is_metrics = "prometheus" in listener.protocol
    shown: Shown = {
        "ssl_opts": [],
        "description": "RabbitMQ Prometheus" if is_metrics else "RabbitMQ Management",
        "path": "/",
        "cowboy_opts": "[]",
        "ip": listener.host,
        "port": str(listener.port),
    }
    if is_metrics:
        shown["protocol"] = f"'{listener.protocol}'"
    return shown


def show_node(context: Context, spans: Spans = NO_SPANS) -> Shown:
    engine, settings = context.engine, context.settings
    gauge = context.sampler.node_gauge(spans.node)
    row = machine.node_row(engine)
    files_max = machine.files_max()
    churn = engine.totals.churn
    churn_gauge = context.sampler.totals_gauge(None, spans.node)
    shown: Shown = {
        "partitions": [],
        "os_pid": str(os.getpid()),
        "fd_total": files_max,
        "sockets_total": files_max,
        "mem_limit": context.memory_limit_bytes or int(settings.memory.limit_bytes(_memory())),
        "mem_alarm": "memory" in engine.alarms,
        "disk_free_limit": context.disk_limit_bytes,
        "disk_free_alarm": "disk" in engine.alarms,
        "proc_total": 1,
        "rates_mode": settings.management.rates_mode,
        "uptime": int((time.monotonic() - context.started_s) * 1000),
        "run_queue": 0,
        "processors": machine.processors(),
        "exchange_types": exchange_types(),
        "auth_mechanisms": [
            {"name": name, "description": _MECHANISM_TEXTS.get(name, name), "enabled": True}
            for name in settings.auth.mechanisms
        ],
        "applications": [
            {"name": "warren", "description": "Warren", "version": warren.__version__}
        ],
        "contexts": [
            {key: value for key, value in show_web_context(http).items() if key != "ssl_opts"}
            for http in context.http_listeners
        ],
        "log_files": ["<stdout>"],
        "db_dir": settings.node.data_dir or "",
        "config_files": [],
        "net_ticktime": settings.cluster.net_tick_s,
        "enabled_plugins": ["rabbitmq_management", "rabbitmq_prometheus"],
        "mem_calculation_strategy": "rss",
        "ra_open_file_metrics": {"ra_log_wal": 0, "ra_log_segment_writer": 0},
        "name": context.node_name,
        "running": True,
        "type": "disc",
        "being_drained": context.node_name in context.drained_nodes(),
    }
    for column, name in enumerate(NODE_COLUMNS):
        shown[name] = row[column]
        shown[f"{name}_details"] = gauge.details(column)
    for name in _NOT_COUNTED:
        shown[name] = 0.0 if name.endswith("_avg_time") else 0
        shown[f"{name}_details"] = NO_RATE
    for name in CHURN_COLUMNS:
        shown[name] = churn[name]
        shown[f"{name}_details"] = churn_gauge.details(TOTAL_COLUMNS.index(name))
    shown["cluster_links"] = []
    shown["metrics_gc_queue_length"] = dict.fromkeys(_GC_QUEUES, 0)
    return shown


_GC_QUEUES = (
    "connection_closed",
    "channel_closed",
    "consumer_deleted",
    "exchange_deleted",
    "queue_deleted",
    "vhost_deleted",
    "node_node_deleted",
    "channel_consumer_deleted",
)


def _memory() -> int:
    return total_memory_bytes()


#: What RabbitMQ tells apart in its memory; one process of one language cannot.
_MEMORY_PARTS = (
    "connection_readers",
    "connection_writers",
    "connection_channels",
    "connection_other",
    "queue_procs",
    "queue_slave_procs",
    "quorum_queue_procs",
    "quorum_queue_dlx_procs",
    "stream_queue_procs",
    "stream_queue_replica_reader_procs",
    "stream_queue_coordinator_procs",
    "plugins",
    "other_proc",
    "metrics",
    "mgmt_db",
    "mnesia",
    "quorum_ets",
    "other_ets",
    "binary",
    "msg_index",
    "code",
    "atom",
    "other_system",
    "allocated_unused",
    "reserved_unallocated",
)


async def show_memory(context: Context) -> Shown:
    """How much memory goes to messages, and how much to all else."""
    counts = 0
    for vhost in context.engine.vhosts.values():
        counts += sum(queue.total_bytes for queue in vhost.queues_here())
    used = used_memory_bytes()
    parts = dict.fromkeys(_MEMORY_PARTS, 0)
    parts["binary"] = min(counts, used)
    parts["other_system"] = used - parts["binary"]
    total = {"erlang": used, "rss": used, "allocated": used}
    return {"memory": {**parts, "strategy": "rss", "total": total}}
