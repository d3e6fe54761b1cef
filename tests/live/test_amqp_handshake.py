"""From the first byte to an open channel: greeting, login, tuning, virtual hosts, limits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from conftest import Clients
from live_broker import LiveNode, Operator
from raw_client import Closed, SocketClosedError, encode, frame

CAPABILITIES = {
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
}
REFUSED = (
    "ACCESS_REFUSED - Login was refused using authentication mechanism {}. "
    "For details see the broker logfile."
)


def test_start_announces_who_we_are(clients: Clients) -> None:
    start = clients.socket().greet()
    assert (start.version_major, start.version_minor) == (0, 9)
    assert start.locales == b"en_US"
    assert {"PLAIN", "AMQPLAIN"} <= set(start.mechanisms.decode().split())
    properties = start.server_properties
    assert {key for key, on in properties["capabilities"].items() if on is True} == CAPABILITIES
    assert properties["product"] == "RabbitMQ"
    assert properties["version"].startswith("3.1")
    for name in ("cluster_name", "copyright", "information", "platform"):
        assert properties[name]


@pytest.mark.parametrize(
    "greeting", [b"AMQP\x00\x00\x09\x02", b"AMQP\x01\x01\x00\x0a", b"GET / HTTP/1.1"]
)
def test_another_protocol_is_answered_with_ours(
    warren_only: None, clients: Clients, greeting: bytes
) -> None:
    connection = clients.socket()
    connection.socket.sendall(greeting)
    assert connection.socket.recv(100) == b"AMQP\x00\x00\x09\x01"
    assert connection.socket.recv(100) == b""


def test_tune_offers_the_defaults(clients: Clients) -> None:
    tune = clients.connect().tune
    assert tune is not None
    assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (2047, 131072, 60)


@pytest.mark.parametrize("mechanism", ["PLAIN", "AMQPLAIN"])
def test_login(clients: Clients, mechanism: str) -> None:
    clients.connect(mechanism=mechanism).close()


def test_unknown_mechanism(warren_only: None, clients: Clients) -> None:
    connection = clients.socket()
    connection.greet()
    connection.start_ok(mechanism="CRAM")
    assert connection.closed() == Closed(
        "connection", 503, "COMMAND_INVALID - unknown authentication mechanism 'CRAM'"
    )


@pytest.mark.parametrize("mechanism", ["PLAIN", "AMQPLAIN"])
@pytest.mark.parametrize("user", ["guest", "nobody"])
def test_wrong_password_is_told(clients: Clients, mechanism: str, user: str) -> None:
    connection = clients.socket()
    connection.greet()
    connection.start_ok(user, "wrong", mechanism)
    assert connection.closed() == Closed("connection", 403, REFUSED.format(mechanism))


def test_wrong_password_of_an_older_client_closes_the_socket(clients: Clients) -> None:
    connection = clients.socket()
    connection.greet()
    connection.start_ok("guest", "wrong", capabilities={})
    with pytest.raises(SocketClosedError):
        connection.read()


def test_guest_only_from_loopback(node: LiveNode, clients: Clients) -> None:
    engine = node.node.engine
    connection = clients.socket()
    connection.greet()
    peers = node.call(lambda: [link.connection for link in node.node._hub.links])  # type: ignore[union-attr]
    from dataclasses import replace

    for peer in peers:
        node.call(lambda peer=peer: setattr(peer, "peer", replace(peer.peer, is_loopback=False)))
    connection.start_ok()
    assert connection.closed() == Closed("connection", 403, REFUSED.format("PLAIN"))
    assert "guest" in engine.directory.loopback_users


@pytest.mark.parametrize(
    ("field", "asked", "text"),
    [
        ("frame_max", 131073, "131073 is higher than the maximum allowed value (131072)"),
        ("frame_max", 4095, "4095 is lower than the minimum allowed value (4096)"),
        ("frame_max", 0, "0 (no limit) is higher than the maximum allowed value (131072)"),
        ("channel_max", 2048, "2048 is higher than the maximum allowed value (2047)"),
        ("channel_max", 0, "0 (no limit) is higher than the maximum allowed value (2047)"),
    ],
)
def test_tuning_outside_the_offer(
    warren_only: None, clients: Clients, field: str, asked: int, text: str
) -> None:
    connection = clients.socket()
    connection.greet()
    connection.start_ok()
    connection.expect(0, "connection.tune")
    tuned = {"channel_max": 2047, "frame_max": 131072, "heartbeat": 0, field: asked}
    connection.send(0, "connection.tune-ok", **tuned)
    assert connection.closed() == Closed(
        "connection",
        530,
        f"NOT_ALLOWED - failed to negotiate connection parameters: negotiated {field} = {text}",
    )


def open_refused(clients: Clients, vhost: str, **login: str) -> Closed:
    connection = clients.socket()
    connection.greet()
    connection.start_ok(**login)
    connection.expect(0, "connection.tune")
    connection.send(0, "connection.tune-ok", channel_max=10, frame_max=4096)
    connection.send(0, "connection.open", virtual_host=vhost)
    return connection.closed()


def test_unknown_vhost(clients: Clients) -> None:
    assert open_refused(clients, "nowhere") == Closed(
        "connection", 530, "NOT_ALLOWED - vhost nowhere not found"
    )


def test_vhost_without_permission(
    clients: Clients, make_user: Callable[..., str], operator: Operator
) -> None:
    user = make_user()
    assert open_refused(clients, "/", user=user, password=user) == Closed(
        "connection", 530, f"NOT_ALLOWED - access to vhost '/' refused for user '{user}'"
    )


def test_vhost_connection_limit(clients: Clients, vhost: str, operator: Operator) -> None:
    operator.limit_vhost(vhost, max_connections=1)
    first = clients.connect()
    assert open_refused(clients, vhost) == Closed(
        "connection",
        530,
        f"NOT_ALLOWED - access to vhost '{vhost}' refused for user 'guest': "
        "connection limit (1) is reached",
    )
    first.close()
    operator.limit_vhost(vhost, max_connections=-1)
    clients.connect()
    clients.connect()
    operator.limit_vhost(vhost, max_connections=0)
    assert open_refused(clients, vhost).code == 530


def test_user_connection_limit(
    clients: Clients, vhost: str, make_user: Callable[..., str], operator: Operator
) -> None:
    user = make_user()
    operator.limit_user(user, max_connections=1)
    clients.connect(user=user, password=user)
    assert open_refused(clients, vhost, user=user, password=user) == Closed(
        "connection",
        530,
        f"NOT_ALLOWED - connection refused for user '{user}': user connection limit (1) is reached",
    )


def test_user_channel_limit(
    clients: Clients, make_user: Callable[..., str], operator: Operator
) -> None:
    user = make_user()
    operator.limit_user(user, max_channels=1)
    connection = clients.connect(user=user, password=user)
    connection.channel()
    connection.send(2, "channel.open")
    assert connection.closed(2) == Closed(
        "connection",
        530,
        f"NOT_ALLOWED - number of channels opened for user '{user}' has reached "
        "the maximum allowed user limit of (1)",
    )


def test_more_channels_than_negotiated(clients: Clients) -> None:
    """Channels are counted: which numbers they have does not matter."""
    connection = clients.connect(channel_max=3)
    for number in (1, 700, 65535):
        connection.channel(number)
    connection.send(2, "channel.open")
    refusal = connection.closed(2)
    assert refusal[:2] == ("connection", 530)
    assert "channel_max (3)" in refusal.text


def test_second_open(clients: Clients) -> None:
    connection = clients.connect()
    connection.channel()
    connection.send(1, "channel.open")
    assert connection.closed(1) == Closed(
        "connection", 504, "CHANNEL_ERROR - second 'channel.open' seen"
    )


def test_method_before_open(clients: Clients) -> None:
    connection = clients.connect()
    connection.send(1, "queue.declare")
    assert connection.closed(1) == Closed(
        "connection", 504, "CHANNEL_ERROR - expected 'channel.open'"
    )


def test_channel_number_is_free_again_after_close(clients: Clients) -> None:
    connection = clients.connect()
    connection.channel().close()
    again = connection.channel()
    assert again.refused("queue.declare", queue="x", passive=True).code == 404
    connection.channel().declare()


def test_channel_error_leaves_the_others(clients: Clients) -> None:
    connection = clients.connect()
    first, second = connection.channel(1), connection.channel(2)
    first.send("queue.declare", queue="missing", passive=True)
    # What the client sent before it knew is ignored.
    first.send("queue.declare", queue="late")
    assert connection.closed(1).code == 404
    assert second.refused("queue.declare", queue="late", passive=True).code == 404
    assert connection.channel(3).declare("q") == "q"


def test_frames_in_the_wrong_order(clients: Clients) -> None:
    connection = clients.connect()
    channel = connection.channel()
    channel.send("basic.publish", exchange="", routing_key="q")
    channel.send("queue.declare", queue="q")
    assert connection.closed(1) == Closed(
        "connection",
        505,
        "UNEXPECTED_FRAME - expected content header for class 60, "
        "got non content header frame instead",
    )
    connection = clients.connect()
    connection.channel()
    connection.socket.sendall(frame(3, 1, b"abc"))
    assert connection.closed(1) == Closed(
        "connection",
        505,
        "UNEXPECTED_FRAME - expected method frame, got non method frame instead",
    )


def test_frame_without_its_end(clients: Clients) -> None:
    connection = clients.connect()
    octets = frame(1, 1, encode("channel.open"))
    connection.socket.sendall(octets[:-1] + b"\x00" + b"\x00" * 8)
    refusal = connection.closed()
    assert refusal[:2] == ("connection", 501)


def test_frame_longer_than_negotiated(clients: Clients) -> None:
    connection = clients.connect(frame_max=4096)
    channel = connection.channel()
    channel.send("basic.publish", routing_key="q")
    connection.send_content(1, {}, b"x" * 5000, chunk=5000)
    assert connection.closed(1)[:2] == ("connection", 501)


def test_unknown_method(warren_only: None, clients: Clients) -> None:
    connection = clients.connect()
    connection.channel()
    connection.socket.sendall(frame(1, 1, b"\x00\x3c\x01\x00"))
    assert connection.closed(1).scope == "connection"


def test_connection_update_secret(clients: Clients) -> None:
    connection = clients.connect()
    connection.send(0, "connection.update-secret", new_secret=b"x", reason="because")
    connection.expect(0, "connection.update-secret-ok")


def test_flow_and_access_request(clients: Clients) -> None:
    channel = clients.channel()
    assert channel.call("channel.flow", active=True).active is True
    channel.call("access.request", realm="/data", active=True)
    refusal = channel.refused("channel.flow", active=False)
    assert refusal == Closed("connection", 540, "NOT_IMPLEMENTED - active=false")


def test_vhost_deletion_closes_its_connections(
    warren_only: None, clients: Clients, operator: Operator
) -> None:
    operator.add_vhost("doomed")
    connection = clients.connect(vhost="doomed")
    operator.delete_vhost("doomed")
    assert connection.closed() == Closed(
        "connection", 320, "CONNECTION_FORCED - vhost 'doomed' is deleted"
    )
