"""Connections and channels as the API shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren.management.context import Context
from warren.management.encode import table
from warren.management.sampler import (
    CHANNEL_COLUMNS,
    CONNECTION_COLUMNS,
    channel_row,
    connection_row,
)
from warren.management.samples import NO_RATE
from warren.management.show_queues import (
    GARBAGE_COLLECTION,
    NO_SPANS,
    Spans,
    given_name,
    iso_time,
    show_consumer,
)
from warren.session.states import STATE_NAMES

if TYPE_CHECKING:
    from warren.engine.connections import Peer
    from warren.session.channel import Channel
    from warren.session.connection import Connection

Shown = dict[str, Any]


def show_connection(context: Context, connection: Connection, spans: Spans = NO_SPANS) -> Shown:
    peer: Peer = connection.peer
    received, sent = connection_row(connection)
    gauge = context.sampler.gauge(connection, spans.data)
    certificate = peer.certificate
    tls = "unknown" if peer.tls else None
    shown: Shown = {
        "auth_mechanism": connection.mechanism,
        "channel_max": connection.channel_max,
        "channels": connection.channel_count,
        "client_properties": table(connection.client_properties or {}),
        "connected_at": connection.connected_at_ms,
        "frame_max": connection.outlet.frame_max,
        "garbage_collection": GARBAGE_COLLECTION,
        "host": peer.local_host,
        "name": connection.name,
        "node": context.node_name,
        "peer_cert_issuer": None,
        "peer_cert_subject": str(certificate) if certificate is not None else None,
        "peer_cert_validity": None,
        "peer_host": peer.host,
        "peer_port": peer.port,
        "port": peer.local_port,
        "protocol": "AMQP 0-9-1",
        "recv_cnt": connection.frames_in,
        "recv_oct": received,
        "recv_oct_details": gauge.details(CONNECTION_COLUMNS.index("recv_oct")),
        "reductions": 0,
        "reductions_details": NO_RATE,
        "send_cnt": connection.outlet.frames_out,
        "send_oct": sent,
        "send_oct_details": gauge.details(CONNECTION_COLUMNS.index("send_oct")),
        "send_pend": connection.outlet.pending_bytes,
        "ssl": peer.tls,
        "ssl_cipher": tls,
        "ssl_hash": tls,
        "ssl_key_exchange": tls,
        "ssl_protocol": tls,
        "state": "blocked" if connection.blocked else STATE_NAMES[connection.state],
        "timeout": connection.heartbeat_s,
        "type": "network",
        "user": connection.user,
        "user_who_performed_action": connection.user,
        "vhost": connection.vhost.name,
    }
    return {**shown, **given_name(connection)}


def show_channel(context: Context, channel: Channel, spans: Spans = NO_SPANS) -> Shown:
    """A channel in a list."""
    connection = channel.connection
    outstanding = channel.confirms.outstanding() if channel.confirms is not None else 0
    steps = channel.transaction[1:] if channel.transaction is not None else []
    settlements = sum(1 for step in steps if isinstance(step[0], int))
    shown: Shown = {
        "acks_uncommitted": settlements,
        "confirm": channel.confirms is not None,
        "connection_details": {
            "name": connection.name,
            "peer_host": connection.peer.host,
            "peer_port": connection.peer.port,
            **given_name(connection),
        },
        "consumer_count": len(channel.consumers),
        "garbage_collection": GARBAGE_COLLECTION,
        "global_prefetch_count": channel.global_prefetch,
        "message_stats": _message_stats(context, channel, spans),
        "messages_unacknowledged": channel.deliveries.live,
        "messages_uncommitted": len(steps) - settlements,
        "messages_unconfirmed": outstanding,
        "name": f"{connection.name} ({channel.number})",
        "node": context.node_name,
        "number": channel.number,
        "pending_raft_commands": 0,
        "prefetch_count": channel.prefetch,
        "reductions": 0,
        "reductions_details": NO_RATE,
        "state": "running",
        "transactional": channel.transaction is not None,
        "user": connection.user,
        "user_who_performed_action": connection.user,
        "vhost": connection.vhost.name,
    }
    since_ms = context.sampler.idle_since_ms(channel)
    if since_ms is not None:
        shown["idle_since"] = iso_time(since_ms)
    return shown


def show_channel_whole(context: Context, channel: Channel, spans: Spans = NO_SPANS) -> Shown:
    """A channel by itself: with its consumers."""
    consumers = [consumer for consumer in channel.consumers.values() if consumer.queue is not None]
    return {
        **show_channel(context, channel, spans),
        "consumer_details": [show_consumer(context, consumer) for consumer in consumers],
        "deliveries": [],
        "publishes": [],
    }


def _message_stats(context: Context, channel: Channel, spans: Spans) -> Shown:
    row = channel_row(context.engine, channel)
    gauge = context.sampler.gauge(channel, spans.messages)
    stats: Shown = {}
    for column, name in enumerate(CHANNEL_COLUMNS):
        stats[name] = row[column]
        stats[f"{name}_details"] = gauge.details(column)
    # Counted for the whole virtual host only.
    for name in ("drop_unroutable", "return_unroutable"):
        stats[name] = 0
        stats[f"{name}_details"] = NO_RATE
    return stats


def find_connection(context: Context, name: str) -> Connection | None:
    """The open connection of that name."""
    for connection in context.engine.connections:
        if connection.name == name:
            return connection
    return None
