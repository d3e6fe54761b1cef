"""Queues and consumers as the API shows them."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from warren.engine.pausing import pause_of
from warren.gateway.lending import RemoteConsumer
from warren.management.ages import oldest_message
from warren.management.context import Context
from warren.management.encode import table
from warren.management.mirrors import mirror_fields
from warren.management.sampler import QUEUE_COLUMNS, queue_row
from warren.management.samples import NO_RATE, Span
from warren.model.policy import merge
from warren.queue.looking import peek
from warren.queue.picking import persistent
from warren.session.channel import Consumer
from warren.wire.properties import decode_properties

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.vhost import VHost
    from warren.session.channel import Channel
    from warren.session.connection import Connection

Shown = dict[str, Any]
#: What a message costs beside its body, roughly; and a queue without any.
MESSAGE_BYTES, QUEUE_BYTES = 200, 4096
#: Nothing here is collected the way Erlang collects; the fields are there for who reads them.
GARBAGE_COLLECTION: Mapping[str, int] = {
    "fullsweep_after": 0,
    "max_heap_size": 0,
    "min_bin_vheap_size": 0,
    "min_heap_size": 0,
    "minor_gcs": 0,
}
_STATS = tuple((name, f"{name}_details", QUEUE_COLUMNS.index(name)) for name in QUEUE_COLUMNS[:9])
_READY, _UNACKED, _ALL = 9, 10, 11


class Spans:
    """The histories a request asked for, by what they are of."""

    __slots__ = ("data", "lengths", "messages", "node")

    def __init__(
        self,
        lengths: Span | None = None,
        messages: Span | None = None,
        data: Span | None = None,
        node: Span | None = None,
    ) -> None:
        self.lengths = lengths
        self.messages = messages
        self.data = data
        self.node = node


NO_SPANS = Spans()


def iso_time(since_ms: int) -> str:
    """`2026-11-15T17:43:01.433+00:00`, as idle times are shown."""
    moment = datetime.datetime.fromtimestamp(since_ms / 1000, datetime.UTC)
    return moment.isoformat(timespec="milliseconds")


def is_exclusive(queue: AmqpQueue) -> bool:
    """Whether it goes with a connection, which may be one of another node."""
    return queue.owner is not None or queue.declaration.exclusive


def state_of(queue: AmqpQueue) -> str:
    """How a queue of this node is doing."""
    if queue.absence is not None:
        return "down"
    return "running" if pause_of(queue) is None else "paused"


def pause_fields(queue: AmqpQueue) -> Shown:
    """Whether its consumers are paused; all nodes know that."""
    pause = pause_of(queue)
    if pause is None:
        return {"paused": False}
    return {"paused": True, "paused_by": pause.by, "paused_at": pause.at_ms}


def state_fields(queue: AmqpQueue) -> Shown:
    """How a queue of this node is doing, and who has paused it."""
    return {"state": state_of(queue), **pause_fields(queue)}


def show_queue_totals(context: Context, queue: AmqpQueue) -> Shown:
    """A queue for lists without statistics (`disable_stats`, `enable_queue_totals`)."""
    return {
        "name": queue.name,
        "vhost": queue.vhost.name,
        "type": "classic",
        "durable": queue.declaration.durable,
        "auto_delete": queue.declaration.auto_delete,
        "exclusive": is_exclusive(queue),
        "arguments": table(queue.declaration.arguments),
        "node": queue.home or context.node_name,
        "state": state_of(queue),
        "messages": queue.ready + queue.unacked + queue.buried,
        "messages_ready": queue.ready,
        "messages_unacknowledged": queue.unacked,
    }


def show_queue(context: Context, queue: AmqpQueue, spans: Spans = NO_SPANS) -> Shown:
    """A queue in a list."""
    row = queue_row(queue)
    gauge = context.sampler.gauge(queue)
    lengths = gauge if spans.lengths is None else context.sampler.gauge(queue, spans.lengths)
    messages, ready, unacked = row[_ALL], row[_READY], row[_UNACKED]
    ready_bytes, all_bytes = queue.ready_bytes, queue.total_bytes
    kept, kept_bytes = (0, 0) if queue.is_remote else persistent(queue)
    declaration, policy, operator_policy = queue.declaration, queue.policy, queue.operator_policy
    exclusive_consumer, active = queue.exclusive_consumer, queue.active
    utilisation = _utilisation(queue)
    shown: Shown = {
        "arguments": table(declaration.arguments) if declaration.arguments else {},
        "auto_delete": declaration.auto_delete,
        "backing_queue_status": _backing_status(queue, row),
        "consumer_capacity": utilisation,
        "consumer_utilisation": utilisation,
        "consumers": len(queue.consumers),
        "durable": declaration.durable,
        "effective_policy_definition": dict(merge(policy, operator_policy)),
        "exclusive": is_exclusive(queue),
        "exclusive_consumer_tag": _tag(exclusive_consumer),
        "garbage_collection": GARBAGE_COLLECTION,
        "head_message_timestamp": None,
        "memory": QUEUE_BYTES + all_bytes + MESSAGE_BYTES * messages,
        "message_bytes": all_bytes,
        "message_bytes_paged_out": 0,
        "message_bytes_persistent": kept_bytes,
        "message_bytes_ram": all_bytes,
        "message_bytes_ready": ready_bytes,
        "message_bytes_unacknowledged": all_bytes - ready_bytes,
        "message_stats": _message_stats(context, queue, row, spans),
        "messages": messages,
        "messages_buried": queue.buried,
        "messages_details": lengths.details(_ALL),
        "messages_paged_out": 0,
        "messages_persistent": kept,
        "messages_ram": messages,
        "messages_ready": ready,
        "messages_ready_details": lengths.details(_READY),
        "messages_ready_ram": ready,
        "messages_unacknowledged": unacked,
        "messages_unacknowledged_details": lengths.details(_UNACKED),
        "messages_unacknowledged_ram": unacked,
        "name": queue.name,
        "node": queue.home or context.node_name,
        "operator_policy": operator_policy.name if operator_policy is not None else None,
        "policy": policy.name if policy is not None else None,
        "reductions": 0,
        "reductions_details": NO_RATE,
        "single_active_consumer_tag": _tag(active) if queue.single_active else None,
        "type": "classic",
        "vhost": queue.vhost.name,
        **state_fields(queue),
        **mirror_fields(context.engine, queue),
        **oldest_message(context.engine, queue),
    }
    if (since_ms := context.sampler.idle_since_ms(queue)) is not None:
        shown["idle_since"] = iso_time(since_ms)
    if queue.owner is not None:
        peer = queue.owner.peer
        shown["owner_pid_details"] = {
            "name": queue.owner.name,
            "peer_host": peer.host,
            "peer_port": peer.port,
        }
    if queue.damage:
        # A field of our own: what the log could not give back.
        shown["damage"] = queue.damage
    return shown


def show_queue_whole(context: Context, queue: AmqpQueue, spans: Spans = NO_SPANS) -> Shown:
    """A queue by itself: with its consumers."""
    consumers = [
        show_consumer(context, consumer)
        if isinstance(consumer, Consumer)
        else show_consumer_elsewhere(context, queue, consumer)
        for consumer in queue.consumers
        if isinstance(consumer, Consumer | RemoteConsumer)
    ]
    # Who published and who was delivered how much is not counted by pair.
    return {
        "consumer_details": consumers,
        **show_queue(context, queue, spans),
        "head_message_timestamp": _first_timestamp(queue),
        "deliveries": [],
        "incoming": [],
    }


def _first_timestamp(queue: AmqpQueue) -> int | None:
    """When the first message was made, as its publisher says; lists leave it out, for its cost."""
    rows = [] if queue.is_remote else peek(queue, 1)
    made = dict(decode_properties(rows[0][5].header)).get("timestamp") if rows else None
    seconds = made.timestamp() if isinstance(made, datetime.datetime) else made
    return int(seconds) if isinstance(seconds, int | float) else None


def count_consumers(vhost: VHost) -> int:
    """Consumers of this node's clients, wherever their queues are."""
    return sum(
        isinstance(consumer, Consumer)
        for queue in vhost.queues.values()
        for consumer in queue.consumers
    )


def _tag(consumer: object) -> str | None:
    return consumer.tag if isinstance(consumer, Consumer | RemoteConsumer) else None


def _utilisation(queue: AmqpQueue) -> float:
    """The part of the time that consumers could take a message: now, or not now."""
    if not queue.consumers:
        return 0
    return 1.0 if not queue.ready else 0.0


def _backing_status(queue: AmqpQueue, row: tuple[int, ...]) -> Shown:
    return {
        "avg_ack_egress_rate": 0.0,
        "avg_ack_ingress_rate": 0.0,
        "avg_egress_rate": 0.0,
        "avg_ingress_rate": 0.0,
        "delta": ["delta", "undefined", 0, 0, "undefined"],
        "len": row[_READY],
        "mode": queue.effective.queue_mode,
        "next_deliver_seq_id": row[8],
        "next_seq_id": row[0],
        "q1": 0,
        "q2": 0,
        "q3": 0,
        "q4": row[_READY],
        "target_ram_count": "infinity",
        "version": queue.effective.queue_version,
    }


def _message_stats(context: Context, queue: AmqpQueue, row: tuple[int, ...], spans: Spans) -> Shown:
    gauge = context.sampler.gauge(queue, spans.messages)
    stats: Shown = {}
    for name, details, column in _STATS:
        stats[name] = row[column]
        stats[details] = gauge.details(column)
    return stats


def given_name(connection: Connection) -> Shown:
    """What the client calls itself, if it does."""
    own_name = (connection.client_properties or {}).get("connection_name")
    return {"user_provided_name": own_name} if isinstance(own_name, str) else {}


def channel_details(context: Context, channel: Channel) -> Shown:
    """The channel of a consumer."""
    connection = channel.connection
    return {
        "connection_name": connection.name,
        "name": f"{connection.name} ({channel.number})",
        "node": context.node_name,
        "number": channel.number,
        "peer_host": connection.peer.host,
        "peer_port": connection.peer.port,
        "user": connection.user,
        **given_name(connection),
    }


def show_consumer(context: Context, consumer: Consumer) -> Shown:
    return {
        **_consumer(context, consumer.queue, consumer),
        "ack_required": not consumer.no_ack,
        "channel_details": channel_details(context, consumer.channel),
    }


def show_consumer_elsewhere(context: Context, queue: AmqpQueue, consumer: RemoteConsumer) -> Shown:
    """A consumer of this node's queue whose client is connected to another node."""
    connection, _, number = str(consumer.channel).rpartition(" (")
    return {
        **_consumer(context, queue, consumer),
        "ack_required": not consumer.auto_ack,
        "channel_details": {
            "connection_name": connection,
            "name": str(consumer.channel),
            "node": consumer.port.peer if consumer.port is not None else None,
            "number": int(number[:-1]) if number[:-1].isdigit() else None,
        },
    }


def _consumer(context: Context, queue: AmqpQueue, consumer: Consumer | RemoteConsumer) -> Shown:
    is_active = not queue.single_active or queue.active is consumer
    timeout_ms = queue.effective.consumer_timeout_ms or context.engine.settings.consumer_timeout_ms
    return {
        "arguments": table(consumer.arguments or {}),
        "active": is_active,
        "activity_status": "single_active"
        if queue.single_active and is_active
        else ("up" if is_active else "waiting"),
        "consumer_tag": consumer.tag,
        "consumer_timeout": timeout_ms or 0,
        "exclusive": consumer.exclusive,
        "prefetch_count": consumer.prefetch,
        "queue": {"name": queue.name, "vhost": queue.vhost.name},
    }
