"""Connections and channels: greeting, login, opening a virtual host, and the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import warren
from warren.auth.sasl import PeerCertificate, new_mechanism
from warren.auth.users import OperatorName
from warren.engine.consume import end_channels
from warren.engine.errands import abandon_errand
from warren.engine.queues import drop_queue
from warren.model.errors import AmqpError, ConnectionForced, NotAllowed
from warren.session.channel import Channel
from warren.session.states import ConnectionState

if TYPE_CHECKING:
    from warren.engine.engine import Engine
    from warren.session.connection import Connection

CAPABILITIES = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "consumer_priorities": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "direct_reply_to": True,
}


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a connection, as far as the engine cares."""

    host: str
    port: int
    local_host: str
    local_port: int
    is_loopback: bool
    tls: bool = False
    certificate: PeerCertificate | None = None


def start_connection(engine: Engine, connection: Connection) -> None:
    """The client has greeted us in our protocol: tell it who we are."""
    settings = engine.settings
    connection.state = ConnectionState.AWAIT_START_OK
    connection.on_end = engine.end_connection
    properties: dict[str, Any] = {
        "capabilities": CAPABILITIES,
        "cluster_name": engine.cluster_name,
        "copyright": "Licensed under the Apache License 2.0",
        "information": f"Warren {warren.__version__}, a broker for AMQP 0-9-1",
        "platform": "Warren",
        "product": settings.product,
        "version": settings.version,
        "warren_version": warren.__version__,
    }
    connection.send(0, "connection.start", 0, 9, properties, " ".join(settings.mechanisms), "en_US")


def login(engine: Engine, connection: Connection, mechanism: str, response: bytes) -> None:
    """Raises CommandInvalid for an unknown mechanism, LoginRefused for wrong credentials."""
    peer: Peer = connection.peer
    login_from: Literal["common_name", "distinguished_name"] = (
        "common_name"
        if engine.settings.certificate_login_from == "common_name"
        else "distinguished_name"
    )
    chosen = new_mechanism(mechanism, engine.settings.mechanisms, peer.certificate, login_from)
    credentials = chosen.step(response)
    try:
        user = engine.directory.authenticate(
            credentials.username, credentials.password, peer.is_loopback, mechanism
        )
    except AmqpError as error:
        engine.log.warning("%s: %s", connection.name, getattr(error, "reason", error.explanation))
        engine.totals.churn["auth_failed"] += 1
        engine.emit("user.authentication.failure", name=credentials.username)
        raise
    connection.user = user.name
    engine.totals.churn["auth_succeeded"] += 1
    engine.emit("user.authentication.success", name=user.name)


def open_vhost(engine: Engine, connection: Connection, name: str) -> None:
    """Check access and limits, and count the connection in."""
    engine.directory.check_vhost_access(connection.user, name)
    vhost = engine.vhosts[name]
    limit = engine.directory.vhost_limit(name, "max-connections")
    if limit is not None and vhost.connections >= limit:
        raise NotAllowed(
            f"access to vhost '{name}' refused for user '{connection.user}': "
            f"connection limit ({limit}) is reached"
        )
    limit = engine.directory.user(connection.user).limit("max-connections")
    if limit is not None and engine.connections_of_user[connection.user] >= limit:
        raise NotAllowed(
            f"connection refused for user '{connection.user}': "
            f"user connection limit ({limit}) is reached"
        )
    limit = engine.settings.connection_max
    if limit is not None and len(engine.connections) >= limit:
        raise NotAllowed(f"connection refused: node connection limit ({limit}) is reached")
    connection.vhost = vhost
    vhost.connections += 1
    engine.connections_of_user[connection.user] += 1
    engine.connections[connection] = None
    engine.totals.churn["connection_created"] += 1
    engine.log.info(
        "%s: user '%s' authenticated and granted access to vhost '%s'",
        connection.name,
        connection.user,
        name,
    )
    engine.emit("connection.created", name=connection.name, user=connection.user, vhost=name)


def check_channel(engine: Engine, connection: Connection) -> None:
    """May one more channel be opened? Any number will do. Raises NotAllowed."""
    if connection.channel_count >= connection.channel_max:
        raise NotAllowed(
            f"number of channels opened ({connection.channel_count}) has reached the negotiated "
            f"channel_max ({connection.channel_max})"
        )
    limit = engine.directory.user(connection.user).limit("max-channels")
    if limit is not None and engine.channels_of_user[connection.user] >= limit:
        raise NotAllowed(
            f"number of channels opened for user '{connection.user}' has reached "
            f"the maximum allowed user limit of ({limit})"
        )
    limit = engine.settings.channel_max_per_node
    if limit is not None and engine.channel_count >= limit:
        raise NotAllowed(f"number of channels opened on node has reached the limit of ({limit})")


def make_channel(engine: Engine, connection: Connection, number: int) -> Channel:
    channel = Channel(
        connection, engine, connection.outlet, number, engine.settings.max_message_bytes
    )
    channel.traced = connection.vhost.tracing
    engine.channel_count += 1
    engine.totals.churn["channel_created"] += 1
    engine.channels_of_user[connection.user] += 1
    return channel


def end_connection(engine: Engine, connection: Connection) -> None:
    """Everything the connection held goes back; its exclusive queues go with it."""
    if connection not in engine.connections:
        return
    del engine.connections[connection]
    engine.unread_replies.discard(connection)
    connection.vhost.connections -= 1
    engine.connections_of_user[connection.user] -= 1
    abandon_errand(connection)
    ending = [channel for channel in connection.open_channels() if not channel.closing]
    for channel in ending:
        channel.closing = True
    end_channels(engine, ending)
    for name in list(connection.exclusive_queues):
        queue = connection.vhost.queues.get(name)
        if queue is not None and queue.owner is connection:
            drop_queue(engine, queue)
    engine.owners.pop(connection.token, None)
    engine.totals.retire_connection(connection)
    engine.totals.churn["connection_closed"] += 1
    engine.emit("connection.closed", name=connection.name)
    engine.run_effects()


def close_all(engine: Engine, reason: str) -> None:
    """Tell every client that the broker, or an operator, ends the connection."""
    for connection in list(engine.connections):
        connection.close(ConnectionForced(reason))


def close_deleted_users(engine: Engine) -> None:
    """Connections of users that are not there any more are closed; the others' rights may differ.

    Each node of a cluster does it for its own.
    """
    for connection in list(engine.connections):
        user = connection.user
        if not isinstance(user, OperatorName) and not engine.directory.has_user(user):
            connection.close(ConnectionForced(f"user '{user}' is deleted"))
    engine.permissions_changed()


def log_unread_replies(engine: Engine, connection: Connection) -> None:
    """Once per connection: replies it does not read are dropped."""
    if connection not in engine.unread_replies:
        engine.unread_replies.add(connection)
        engine.log.warning(
            "%s: direct replies are dropped, the client does not read them", connection.name
        )


def log_channel_error(engine: Engine, channel: Channel, error: AmqpError) -> None:
    connection = channel.connection
    engine.log.warning(
        "%s channel %d: %s", connection.name, channel.number, _printable(error.reply_text)
    )


def log_connection_error(engine: Engine, connection: Connection, error: AmqpError) -> None:
    engine.log.warning("%s: %s", connection.name, _printable(error.reply_text))


def _printable(text: str) -> str:
    """Names in an error text are the client's: they must not forge log lines."""
    return (
        text.encode("ascii", "backslashreplace").decode().replace("\r", "\\r").replace("\n", "\\n")
    )
