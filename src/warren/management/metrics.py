"""The metrics as text for Prometheus, under the names that RabbitMQ's dashboards ask for.

One row of a table is one metric: its name without the prefix, its kind and its help. The values
come from the same counters as the API; nothing is counted for the metrics alone.
"""

from __future__ import annotations

import platform
import resource
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import warren
from warren.management import machine
from warren.management.ages import age_metrics
from warren.management.context import Context
from warren.management.mirror_metrics import mirror_metrics
from warren.management.pace import Pace
from warren.management.sampler import (
    channel_row,
    connection_row,
    exchange_row,
    queue_row,
    sum_totals,
)
from warren.management.show_queues import count_consumers
from warren.model.ports import TIME_BOUNDS_US, Times
from warren.queue.picking import persistent

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.session.channel import Channel
    from warren.session.connection import Connection

Labels = Mapping[str, str]
Number = int | float

_PROTOCOL = {"protocol": "amqp091"}
_QUEUE_TYPE = {"protocol": "amqp091", "queue_type": "rabbit_classic_queue"}
#: Metrics of messages: name, the broker's count of it, help.
_GLOBAL = (
    ("messages_received_total", "publish", "Total number of messages received from publishers"),
    (
        "messages_received_confirm_total",
        "received_confirm",
        "Total number of messages received from publishers expecting confirmations",
    ),
    ("messages_routed_total", "routed", "Total number of messages routed to queues or streams"),
    ("messages_confirmed_total", "confirm", "Total number of messages confirmed to publishers"),
    (
        "messages_unroutable_returned_total",
        "return_unroutable",
        "Total number of messages published as mandatory into an exchange and returned to the "
        "publisher as unroutable",
    ),
    (
        "messages_unroutable_dropped_total",
        "drop_unroutable",
        "Total number of messages published as non-mandatory into an exchange and dropped as "
        "unroutable",
    ),
)
_GLOBAL_BY_TYPE = (
    ("messages_delivered_total", "deliver_get", "Total number of messages delivered to consumers"),
    (
        "messages_delivered_consume_manual_ack_total",
        "deliver",
        "Total number of messages delivered to consumers using basic.consume with manual "
        "acknowledgment",
    ),
    (
        "messages_delivered_consume_auto_ack_total",
        "deliver_no_ack",
        "Total number of messages delivered to consumers using basic.consume with automatic "
        "acknowledgment",
    ),
    (
        "messages_delivered_get_manual_ack_total",
        "get",
        "Total number of messages delivered to consumers using basic.get with manual "
        "acknowledgment",
    ),
    (
        "messages_delivered_get_auto_ack_total",
        "get_no_ack",
        "Total number of messages delivered to consumers using basic.get with automatic "
        "acknowledgment",
    ),
    (
        "messages_get_empty_total",
        "get_empty",
        "Total number of times basic.get operations fetched no message",
    ),
    (
        "messages_redelivered_total",
        "redeliver",
        "Total number of messages redelivered to consumers",
    ),
    (
        "messages_acknowledged_total",
        "ack",
        "Total number of message acknowledgements received from consumers",
    ),
)
_DEAD_LETTERED = ("expired", "rejected", "maxlen", "delivery_limit")
_CHURN = (
    ("connections_opened_total", "connection_created", "Total number of connections opened"),
    (
        "connections_closed_total",
        "connection_closed",
        "Total number of connections closed or terminated",
    ),
    ("channels_opened_total", "channel_created", "Total number of channels opened"),
    ("channels_closed_total", "channel_closed", "Total number of channels closed"),
    ("queues_declared_total", "queue_declared", "Total number of queues declared"),
    ("queues_created_total", "queue_created", "Total number of queues created"),
    ("queues_deleted_total", "queue_deleted", "Total number of queues deleted"),
)


class Page:
    """Text in the exposition format, metric by metric."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def head(self, name: str, kind: str, text: str) -> None:
        self._lines.append(f"# TYPE {name} {kind}")
        self._lines.append(f"# HELP {name} {text}")

    def value(self, name: str, value: Number, labels: Labels | None = None) -> None:
        self._lines.append(f"{name}{_labels(labels)} {value}")

    def gauge(self, name: str, text: str, value: Number, labels: Labels | None = None) -> None:
        self.head(name, "gauge", text)
        self.value(name, value, labels)

    def counter(self, name: str, text: str, value: Number, labels: Labels | None = None) -> None:
        self.head(name, "counter", text)
        self.value(name, value, labels)

    def times(self, name: str, text: str, times: Times) -> None:
        """A histogram, in seconds."""
        self.head(name, "histogram", text)
        buckets = times.buckets()
        for bound_us, count in zip(TIME_BOUNDS_US, buckets, strict=False):
            self.value(f"{name}_bucket", count, {"le": f"{bound_us / 1e6:g}"})
        self.value(f"{name}_bucket", buckets[-1], {"le": "+Inf"})
        self.value(f"{name}_sum", times.total_us / 1e6)
        self.value(f"{name}_count", buckets[-1])

    def encode(self) -> bytes:
        return ("\n".join(self._lines) + "\n").encode("utf-8", "replace")


def _labels(labels: Labels | None) -> str:
    if not labels:
        return ""
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def identity(context: Context, page: Page) -> None:
    """What dashboards join all other metrics with."""
    settings = context.engine.settings
    page.gauge(
        "rabbitmq_build_info",
        "RabbitMQ & Erlang/OTP version info",
        1,
        {
            "rabbitmq_version": settings.version,
            "prometheus_plugin_version": settings.version,
            "prometheus_client_version": warren.__version__,
            "erlang_version": platform.python_version(),
            "warren_version": warren.__version__,
        },
    )
    page.gauge(
        "rabbitmq_identity_info",
        "RabbitMQ node & cluster identity info",
        1,
        {
            "rabbitmq_node": settings.node_name,
            "rabbitmq_cluster": context.engine.cluster_name,
            "rabbitmq_cluster_permanent_id": context.engine.cluster_name,
        },
    )


def node_metrics(context: Context, page: Page) -> None:
    """The process and its limits."""
    engine, settings = context.engine, context.settings
    memory, disk_free, files, sockets, _ = machine.node_row(engine)
    files_max = machine.files_max()
    limit = context.memory_limit_bytes or settings.memory.high_watermark_bytes or 0
    rows = (
        ("process_open_fds", "Open file descriptors", files),
        ("process_max_fds", "Open file descriptors limit", files_max),
        ("process_open_tcp_sockets", "Open TCP sockets", sockets),
        ("process_max_tcp_sockets", "Open TCP sockets limit", files_max),
        ("process_resident_memory_bytes", "Memory used in bytes", memory),
        ("resident_memory_limit_bytes", "Memory high watermark in bytes", limit),
        ("disk_space_available_bytes", "Disk space available in bytes", disk_free),
        (
            "disk_space_available_limit_bytes",
            "Free disk space low watermark in bytes",
            context.disk_limit_bytes,
        ),
        ("alarms_file_descriptor_limit", "is 1 if file descriptor limit alarm is in effect", 0),
        (
            "alarms_free_disk_space_watermark",
            "is 1 if free disk space watermark alarm is in effect",
            int("disk" in engine.alarms),
        ),
        (
            "alarms_memory_used_watermark",
            "is 1 if VM memory watermark alarm is in effect",
            int("memory" in engine.alarms),
        ),
    )
    for name, text, value in rows:
        page.gauge(f"rabbitmq_{name}", text, value)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    page.counter(
        "process_cpu_seconds_total",
        "Total user and system CPU time spent in seconds",
        usage.ru_utime + usage.ru_stime,
    )


def churn_metrics(context: Context, page: Page, prefix: str = "rabbitmq") -> None:
    churn = context.engine.totals.churn
    for name, count, text in _CHURN:
        page.counter(f"{prefix}_{name}", text, churn[count])


def auth_metrics(context: Context, page: Page, prefix: str = "rabbitmq") -> None:
    """Attempts to log in over AMQP."""
    churn = context.engine.totals.churn
    good, bad = churn["auth_succeeded"], churn["auth_failed"]
    for name, text, value in (
        ("auth_attempts_total", "Total number of authorization attempts", good + bad),
        ("auth_attempts_succeeded_total", "Total number of successful attempts", good),
        ("auth_attempts_failed_total", "Total number of failed attempts", bad),
    ):
        page.counter(f"{prefix}_{name}", text, value, {"protocol": "amqp091"})


def global_metrics(context: Context, page: Page, counts: Counter[str]) -> None:
    """Messages of the whole broker."""
    publishers = consumers = 0
    for connection in context.engine.connections:
        for channel in connection.open_channels():
            publishers += channel.published > 0
            consumers += len(channel.consumers)
    prefix = "rabbitmq_global"
    page.gauge(f"{prefix}_publishers", "Publishers currently connected", publishers, _PROTOCOL)
    page.gauge(f"{prefix}_consumers", "Consumers currently connected", consumers, _PROTOCOL)
    for name, count, text in _GLOBAL:
        page.counter(f"{prefix}_{name}", text, counts[count], _PROTOCOL)
    for name, count, text in _GLOBAL_BY_TYPE:
        page.counter(f"{prefix}_{name}", text, counts[count], _QUEUE_TYPE)
    for reason in _DEAD_LETTERED:
        page.counter(
            f"{prefix}_messages_dead_lettered_{reason}_total",
            f"Total number of messages dead-lettered: {reason}",
            counts[f"dead_lettered_{reason}"],
            {"queue_type": "rabbit_classic_queue", "dead_letter_strategy": "at_most_once"},
        )


#: Metrics of a queue: name, kind, help.
QUEUE_METRICS = (
    ("queue_messages_ready", "gauge", "Messages ready to be delivered to consumers"),
    ("queue_messages_unacked", "gauge", "Messages delivered to consumers but not yet acknowledged"),
    ("queue_messages", "gauge", "Sum of ready and unacknowledged messages - total queue depth"),
    ("queue_messages_published_total", "counter", "Total number of messages published to queues"),
    ("queue_consumers", "gauge", "Consumers on a queue"),
    ("queue_messages_ready_bytes", "gauge", "Size in bytes of ready messages"),
    ("queue_messages_unacked_bytes", "gauge", "Size in bytes of all unacknowledged messages"),
    ("queue_messages_bytes", "gauge", "Size in bytes of ready and unacknowledged messages"),
    ("queue_messages_ram", "gauge", "Ready and unacknowledged messages stored in memory"),
    ("queue_messages_ram_bytes", "gauge", "Size of ready and unacknowledged messages in memory"),
    ("queue_messages_persistent", "gauge", "Persistent messages"),
    ("queue_messages_persistent_bytes", "gauge", "Size in bytes of persistent messages"),
)


def queue_values(queue: AmqpQueue) -> tuple[Number, ...]:
    row = queue_row(queue)
    ready_bytes, all_bytes = queue.ready_bytes, queue.total_bytes
    return (
        row[9],
        row[10],
        row[11],
        row[0],
        len(queue.consumers),
        ready_bytes,
        all_bytes - ready_bytes,
        all_bytes,
        row[11],
        all_bytes,
        *persistent(queue),
    )


CONNECTION_METRICS = (
    (
        "connection_incoming_bytes_total",
        "counter",
        "Total number of bytes received on a connection",
    ),
    ("connection_outgoing_bytes_total", "counter", "Total number of bytes sent on a connection"),
    ("connection_channels", "gauge", "Channels on a connection"),
    (
        "connection_incoming_packets_total",
        "counter",
        "Total number of packets received on a connection",
    ),
    (
        "connection_outgoing_packets_total",
        "counter",
        "Total number of packets sent on a connection",
    ),
)


def connection_values(connection: Connection) -> tuple[Number, ...]:
    frames = connection.frames_in, connection.outlet.frames_out
    return (*connection_row(connection), connection.channel_count, *frames)


CHANNEL_METRICS = (
    ("channel_consumers", "gauge", "Consumers on a channel"),
    ("channel_messages_unacked", "gauge", "Delivered but not yet acknowledged messages"),
    ("channel_messages_unconfirmed", "gauge", "Published but not yet confirmed messages"),
    ("channel_prefetch", "gauge", "Total limit of unacknowledged messages on a channel"),
    (
        "channel_messages_published_total",
        "counter",
        "Total number of messages published into an exchange on a channel",
    ),
    (
        "channel_messages_confirmed_total",
        "counter",
        "Total number of messages published into an exchange and confirmed on the channel",
    ),
    (
        "channel_messages_delivered_ack_total",
        "counter",
        "Total number of messages delivered to consumers in manual acknowledgement mode",
    ),
    (
        "channel_messages_delivered_total",
        "counter",
        "Total number of messages delivered to consumers in automatic acknowledgement mode",
    ),
    (
        "channel_messages_redelivered_total",
        "counter",
        "Total number of messages redelivered to consumers",
    ),
    (
        "channel_messages_acked_total",
        "counter",
        "Total number of messages acknowledged by consumers",
    ),
)


def channel_values(context: Context, channel: Channel) -> tuple[Number, ...]:
    row = channel_row(context.engine, channel)
    unconfirmed = channel.confirms.outstanding() if channel.confirms is not None else 0
    return (
        len(channel.consumers),
        channel.deliveries.live,
        unconfirmed,
        channel.global_prefetch,
        row[0],
        row[1],
        row[2],
        row[3],
        row[9],
        row[7],
    )


EXCHANGE_METRICS = (
    (
        "exchange_messages_published_total",
        "counter",
        "Total number of messages published into an exchange",
    ),
    (
        "exchange_messages_routed_total",
        "counter",
        "Total number of queues that messages of an exchange went to",
    ),
)


async def object_rows(context: Context, kind: str, vhosts: set[str] | None) -> list[Any]:
    """(labels, values) of every object of a kind."""
    pace = Pace()
    rows: list[Any] = []
    if kind == "queue":
        for vhost in list(context.engine.vhosts.values()):
            if vhosts is None or vhost.name in vhosts:
                for queue in vhost.queues_here():
                    rows.append(({"vhost": vhost.name, "queue": queue.name}, queue_values(queue)))
                    await pace.rest()
        return rows
    if kind == "exchange":
        for vhost in list(context.engine.vhosts.values()):
            if vhosts is None or vhost.name in vhosts:
                for exchange in list(vhost.exchanges.values()):
                    labels = {"vhost": vhost.name, "exchange": exchange.name}
                    rows.append((labels, exchange_row(exchange)))
                    await pace.rest()
        return rows
    for connection in list(context.engine.connections):
        if vhosts is not None and connection.vhost.name not in vhosts:
            continue
        if kind == "connection":
            rows.append(({"connection": connection.name}, connection_values(connection)))
        else:
            for channel in connection.open_channels():
                name = f"{connection.name} ({channel.number})"
                rows.append(({"channel": name}, channel_values(context, channel)))
        await pace.rest()
    return rows


_KINDS = (
    ("queue", QUEUE_METRICS),
    ("connection", CONNECTION_METRICS),
    ("channel", CHANNEL_METRICS),
    ("exchange", EXCHANGE_METRICS),
)
#: What may be asked of `/metrics/detailed`: a family, the kind of object, and its metrics' names.
FAMILIES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "queue_coarse_metrics": (
        "queue",
        ("queue_messages_ready", "queue_messages_unacked", "queue_messages"),
    ),
    "queue_consumer_count": ("queue", ("queue_consumers",)),
    "queue_metrics": ("queue", tuple(name for name, _, _ in QUEUE_METRICS[3:])),
    "queue_delivery_metrics": ("queue", ("queue_messages_published_total",)),
    "connection_coarse_metrics": (
        "connection",
        ("connection_incoming_bytes_total", "connection_outgoing_bytes_total"),
    ),
    "connection_metrics": ("connection", tuple(name for name, _, _ in CONNECTION_METRICS[2:])),
    "exchange_metrics": ("exchange", tuple(name for name, _, _ in EXCHANGE_METRICS)),
    "channel_metrics": ("channel", tuple(name for name, _, _ in CHANNEL_METRICS[:4])),
    "channel_exchange_metrics": (
        "channel",
        ("channel_messages_published_total", "channel_messages_confirmed_total"),
    ),
    "channel_queue_metrics": (
        "channel",
        tuple(name for name, _, _ in CHANNEL_METRICS[6:]),
    ),
}


def cursor_metrics(context: Context, page: Page) -> None:
    """How far behind each reader of ranges is, and what is kept for them."""
    queues = [
        queue
        for vhost in context.engine.vhosts.values()
        for queue in vhost.queues_here()
        if queue.cursors is not None and queue.cursors.by_name
    ]
    if not queues:
        return
    page.head("warren_cursor_lag", "gauge", "Messages that a cursor has not trimmed yet")
    for queue in queues:
        assert queue.cursors is not None
        for cursor in queue.cursors.by_name.values():
            labels = {"vhost": queue.vhost.name, "queue": queue.name, "cursor": cursor.name}
            page.value("warren_cursor_lag", max(0, queue.readable_end - cursor.position), labels)
    page.head("warren_queue_retained_bytes", "gauge", "Bodies that are kept for cursors only")
    for queue in queues:
        labels = {"vhost": queue.vhost.name, "queue": queue.name}
        page.value("warren_queue_retained_bytes", queue.retained_bytes, labels)


async def page_of_broker(context: Context, per_object: bool) -> bytes:
    """Everything; of queues, connections and channels their sums, or each by itself."""
    page = Page()
    engine = context.engine
    counts = await sum_totals(engine, None)
    identity(context, page)
    node_metrics(context, page)
    churn_metrics(context, page)
    auth_metrics(context, page)
    global_metrics(context, page, counts)
    page.times(
        "warren_publish_confirm_seconds",
        "Time from the arrival of a message to its confirm",
        engine.turn.confirm_times,
    )
    queues = sum(len(vhost.queues_here()) for vhost in engine.vhosts.values())
    consumers = sum(count_consumers(vhost) for vhost in engine.vhosts.values())
    page.gauge("rabbitmq_connections", "Connections currently open", len(engine.connections))
    page.gauge("rabbitmq_channels", "Channels currently open", engine.channel_count)
    page.gauge("rabbitmq_consumers", "Consumers currently connected", consumers)
    page.gauge("rabbitmq_queues", "Queues available", queues)
    for kind, metrics in _KINDS:
        rows = await object_rows(context, kind, None)
        await _write(page, "rabbitmq_", metrics, rows, per_object)
    cursor_metrics(context, page)
    await age_metrics(context, page, per_object)
    await mirror_metrics(context, page, per_object)
    return page.encode()


async def _write(
    page: Page,
    prefix: str,
    metrics: Iterable[tuple[str, str, str]],
    rows: list[tuple[Labels, tuple[Number, ...]]],
    per_object: bool,
    wanted: Iterable[str] | None = None,
) -> None:
    pace = Pace()
    for column, (name, kind, text) in enumerate(metrics):
        if wanted is not None and name not in wanted:
            continue
        page.head(prefix + name, kind, text)
        if not per_object:
            page.value(prefix + name, sum(values[column] for _, values in rows))
            await pace.rest()
            continue
        for labels, values in rows:
            page.value(prefix + name, values[column], labels)
            await pace.rest()


async def page_of_families(
    context: Context, families: Iterable[str], vhosts: set[str] | None
) -> bytes:
    """Only what was asked for, object by object."""
    page = Page()
    wanted: dict[str, set[str]] = {}
    for family in families:
        if family in FAMILIES:
            kind, names = FAMILIES[family]
            wanted.setdefault(kind, set()).update(names)
        elif family == "connection_churn_metrics":
            churn_metrics(context, page, "rabbitmq_detailed")
        elif family == "auth_attempt_metrics":
            auth_metrics(context, page, "rabbitmq_detailed")
        elif family == "vhost_status":
            _vhost_status(context, page, vhosts)
        elif family == "exchange_bindings":
            _exchange_bindings(context, page, vhosts)
    for kind, metrics in _KINDS:
        if kind in wanted:
            rows = await object_rows(context, kind, vhosts)
            await _write(page, "rabbitmq_detailed_", metrics, rows, True, wanted[kind])
    return page.encode()


def _vhost_status(context: Context, page: Page, vhosts: set[str] | None) -> None:
    name = "rabbitmq_cluster_vhost_status"
    page.head(name, "gauge", "Whether a given vhost is running")
    for vhost in context.engine.vhosts:
        if vhosts is None or vhost in vhosts:
            page.value(name, 1, {"vhost": vhost})


def _exchange_bindings(context: Context, page: Page, vhosts: set[str] | None) -> None:
    name = "rabbitmq_cluster_exchange_bindings"
    page.head(name, "gauge", "Number of bindings for an exchange")
    for vhost in context.engine.vhosts.values():
        if vhosts is None or vhost.name in vhosts:
            for exchange in vhost.exchanges.values():
                labels = {"vhost": vhost.name, "exchange": exchange.name, "type": exchange.type}
                count = len(exchange.bindings()) if exchange.name else len(vhost.queues)
                page.value(name, count, labels)
