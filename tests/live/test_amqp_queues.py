"""Queues: declaring, equivalence, exclusive and auto-delete ones, deleting, purging, expiry."""

from __future__ import annotations

import time
from typing import Any

import pytest
from conftest import Clients
from live_broker import Operator
from raw_client import Closed, RawChannel


def refused(code: int, text: str, scope: str = "channel") -> Closed:
    return Closed(scope, code, text)


def test_server_named(channel: RawChannel) -> None:
    first, second = channel.declare(), channel.declare()
    assert first != second
    assert first.startswith("amq.gen-")
    assert second.startswith("amq.gen-")


@pytest.mark.parametrize("name", ["amq.mine", "amq.gen-mine"])
def test_reserved_prefix(channel: RawChannel, name: str) -> None:
    assert channel.refused("queue.declare", queue=name) == refused(
        403, f"ACCESS_REFUSED - queue name '{name}' contains reserved prefix 'amq.*'"
    )


def test_declare_ok_counts(channel: RawChannel) -> None:
    assert channel.call("queue.declare", queue="q").values == {
        "queue": "q",
        "message_count": 0,
        "consumer_count": 0,
    }
    for _ in range(3):
        channel.publish("q")
    channel.wait_depth("q", 3)
    assert channel.call("queue.declare", queue="q").message_count == 3
    channel.call("basic.qos", prefetch_count=1)
    channel.consume("q")
    channel.delivery()
    found = channel.call("queue.declare", queue="q")
    assert (found.message_count, found.consumer_count) == (2, 1)


def test_passive(channel: RawChannel, vhost: str) -> None:
    assert channel.refused("queue.declare", queue="q", passive=True) == refused(
        404, f"NOT_FOUND - no queue 'q' in vhost '{vhost}'"
    )


@pytest.mark.parametrize(
    ("key", "first", "second", "received", "current"),
    [
        ("durable", {}, {"durable": True}, "'true'", "'false'"),
        ("auto_delete", {"auto_delete": True}, {}, "'false'", "'true'"),
        ("x-message-ttl", {"x-message-ttl": 1000}, {"x-message-ttl": 2000}, "'2000'", "'1000'"),
        (
            "x-max-length",
            {},
            {"x-max-length": 5},
            "the value '5' of type 'signedint'",
            "none",
        ),
        (
            "x-dead-letter-exchange",
            {"x-dead-letter-exchange": "d"},
            {},
            "none",
            "the value 'd' of type 'longstr'",
        ),
        ("x-max-priority", {"x-max-priority": 5}, {"x-max-priority": 6}, "'6'", "'5'"),
        ("x-expires", {"x-expires": 60000}, {"x-expires": 60001}, "'60001'", "'60000'"),
        (
            "x-overflow",
            {"x-overflow": "drop-head"},
            {"x-overflow": "reject-publish"},
            "'reject-publish'",
            "'drop-head'",
        ),
    ],
)
def test_inequivalent(
    channel: RawChannel,
    vhost: str,
    key: str,
    first: dict[str, Any],
    second: dict[str, Any],
    received: str,
    current: str,
) -> None:
    def fields(given: dict[str, Any]) -> dict[str, Any]:
        arguments = {name: value for name, value in given.items() if name.startswith("x-")}
        flags = {name: value for name, value in given.items() if not name.startswith("x-")}
        return {"queue": "q", "arguments": arguments, **flags}

    channel.call("queue.declare", **fields(first))
    assert channel.refused("queue.declare", **fields(second)) == refused(
        406,
        f"PRECONDITION_FAILED - inequivalent arg '{key}' for queue 'q' in vhost '{vhost}': "
        f"received {received} but current is {current}",
    )


def test_unknown_arguments_are_not_compared(channel: RawChannel) -> None:
    channel.declare("q", {"x-whatever": 1})
    channel.declare("q", {"another": True})


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("x-message-ttl", -1, "{value_negative,-1}"),
        ("x-message-ttl", "ten", None),
        ("x-expires", 0, "{value_zero,0}"),
        ("x-expires", -3, "{value_negative,-3}"),
        ("x-max-length", -1, "{value_negative,-1}"),
        ("x-max-length-bytes", -1, "{value_negative,-1}"),
        ("x-max-priority", 256, "{max_value_exceeded,256}"),
        ("x-max-priority", -1, "{value_negative,-1}"),
        ("x-overflow", "explode", "invalid_overflow"),
        ("x-dead-letter-routing-key", "k", "routing_key_but_no_dlx_defined"),
        ("x-single-active-consumer", "yes", "{unacceptable_type,longstr}"),
        ("x-queue-type", "nonsense", None),
        ("x-queue-mode", "nonsense", None),
    ],
)
def test_bad_argument(
    channel: RawChannel, vhost: str, key: str, value: Any, reason: str | None
) -> None:
    refusal = channel.refused("queue.declare", queue="q", arguments={key: value})
    text = f"PRECONDITION_FAILED - invalid arg '{key}' for queue 'q' in vhost '{vhost}': "
    if reason is None:
        assert refusal.code == 406
        assert refusal.text.startswith(text)
    else:
        assert refusal == refused(406, text + reason)


def test_dead_letter_exchange_of_wrong_type(channel: RawChannel, vhost: str) -> None:
    refusal = channel.refused("queue.declare", queue="q", arguments={"x-dead-letter-exchange": 5})
    assert refusal == refused(
        406,
        "PRECONDITION_FAILED - invalid type 'signedint' for arg 'x-dead-letter-exchange' "
        f"in queue 'q' in vhost '{vhost}'",
    )


# -- exclusive and auto-delete ---------------------------------------------------------------------


def locked(queue: str, vhost: str) -> Closed:
    text = (
        f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{queue}' "
        f"in vhost '{vhost}'. It could be originally declared on another connection or the "
        "exclusive property value does not match that of the original declaration."
    )
    if len(text) > 255:
        text = text[:252] + "..."
    return refused(405, text)


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("queue.declare", {"exclusive": True}),
        ("queue.declare", {}),
        ("queue.declare", {"passive": True}),
        ("queue.delete", {}),
        ("queue.purge", {}),
        ("queue.bind", {"exchange": "amq.fanout"}),
        ("queue.unbind", {"exchange": "amq.fanout"}),
        ("basic.consume", {}),
        ("basic.get", {}),
    ],
)
def test_exclusive_to_its_connection(
    clients: Clients, vhost: str, method: str, fields: dict[str, Any]
) -> None:
    owner = clients.channel()
    owner.declare("q", exclusive=True)
    owner.bind("q", "amq.fanout")
    assert clients.channel().refused(method, queue="q", **fields) == locked("q", vhost)
    # Its own connection may use it from another channel, and all may publish to it.
    other = owner.connection.channel(2)
    other.declare("q", exclusive=True)
    clients.channel().publish("q", b"m")
    owner.wait_depth("q", 1)


def test_exclusive_flag_must_match(clients: Clients, vhost: str) -> None:
    channel = clients.channel()
    channel.declare("q", exclusive=True)
    assert channel.refused("queue.declare", queue="q") == locked("q", vhost)
    channel = clients.channel()
    channel.declare("r")
    assert channel.refused("queue.declare", queue="r", exclusive=True) == locked("r", vhost)


def test_exclusive_is_never_durable(channel: RawChannel) -> None:
    channel.declare("q", exclusive=True, durable=True)
    channel.declare("q", exclusive=True)


@pytest.mark.parametrize("politely", [True, False])
def test_exclusive_goes_with_its_connection(clients: Clients, politely: bool) -> None:
    owner = clients.connect()
    owner.channel().declare("q", exclusive=True, durable=True)
    if politely:
        owner.close()
    else:
        owner.drop()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        refusal = clients.channel().refused("queue.declare", queue="q", passive=True)
        if refusal.code == 404:
            return
    pytest.fail("the queue is still there")


def test_auto_delete(clients: Clients) -> None:
    connection = clients.connect()
    channel, other = connection.channel(1), connection.channel(2)
    channel.declare("q", auto_delete=True)
    channel.get("q")
    channel.consume("q", "a")
    other.consume("q", "b")
    channel.call("basic.cancel", consumer_tag="a")
    channel.call("queue.declare", queue="q", passive=True)
    other.close()
    assert channel.refused("queue.declare", queue="q", passive=True).code == 404


def test_auto_delete_without_a_consumer_stays(clients: Clients) -> None:
    connection = clients.connect()
    connection.channel().declare("q", auto_delete=True)
    connection.close()
    clients.channel().call("queue.declare", queue="q", passive=True)


# -- delete and purge ------------------------------------------------------------------------------


def test_delete(clients: Clients, vhost: str) -> None:
    channel = clients.channel()
    assert channel.call("queue.delete", queue="missing").message_count == 0
    channel.declare("q")
    for _ in range(3):
        channel.publish("q")
    channel.wait_depth("q", 3)
    assert channel.refused("queue.delete", queue="q", if_empty=True) == refused(
        406, f"PRECONDITION_FAILED - queue 'q' in vhost '{vhost}' not empty"
    )
    channel = clients.channel()
    assert channel.call("queue.delete", queue="q").message_count == 3
    channel.declare("q")
    channel.consume("q", "c")
    assert channel.refused("queue.delete", queue="q", if_unused=True) == refused(
        406, f"PRECONDITION_FAILED - queue 'q' in vhost '{vhost}' in use"
    )
    channel = clients.channel()
    channel.call("queue.delete", queue="q", if_unused=True, if_empty=True)
    assert channel.refused("queue.declare", queue="q", passive=True).code == 404


def test_delete_takes_bindings_away(channel: RawChannel) -> None:
    channel.bind(channel.declare("q"), "amq.fanout")
    channel.call("queue.delete", queue="q")
    channel.declare("q")
    channel.publish("", b"m", "amq.fanout")
    assert channel.bodies("q") == []


def test_purge_spares_what_is_out(channel: RawChannel, vhost: str) -> None:
    channel.declare("q")
    for number in range(5):
        channel.publish("q", b"%d" % number)
    channel.wait_depth("q", 5)
    held = channel.get("q", no_ack=False)
    assert held is not None
    assert channel.call("queue.purge", queue="q").message_count == 4
    assert channel.get("q") is None
    channel.nack(held.delivery_tag)
    channel.wait_depth("q", 1)
    assert channel.bodies("q") == [b"0"]
    assert channel.refused("queue.purge", queue="missing") == refused(
        404, f"NOT_FOUND - no queue 'missing' in vhost '{vhost}'"
    )


def test_vhost_queue_limit(clients: Clients, vhost: str, operator: Operator) -> None:
    channel = clients.channel()
    channel.declare("a")
    operator.limit_vhost(vhost, max_queues=1)
    assert channel.refused("queue.declare", queue="b") == refused(
        406,
        f"PRECONDITION_FAILED - cannot declare queue 'b': queue limit in vhost '{vhost}' (1) "
        "is reached",
    )
    clients.channel().declare("a")
    operator.limit_vhost(vhost, max_queues=-1)
    clients.channel().declare("b")


# -- expiry ----------------------------------------------------------------------------------------


def exists(clients: Clients, queue: str) -> bool:
    channel = clients.channel()
    channel.send("queue.bind", queue=queue, exchange="amq.fanout")
    return channel.next().name == "queue.bind-ok"


def wait_gone(clients: Clients, queue: str) -> None:
    deadline = time.monotonic() + 30
    while exists(clients, queue):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_expires_when_unused(clients: Clients) -> None:
    started = time.monotonic()
    clients.channel().declare("q", {"x-expires": 1500})
    assert exists(clients, "q")
    wait_gone(clients, "q")
    assert time.monotonic() - started >= 1.5


def test_expiry_waits_for_consumers(clients: Clients) -> None:
    channel = clients.channel()
    channel.declare("q", {"x-expires": 1000})
    channel.consume("q", "c")
    time.sleep(1.3)
    assert exists(clients, "q")
    channel.call("basic.cancel", consumer_tag="c")
    wait_gone(clients, "q")


@pytest.mark.parametrize("how", ["declare", "get"])
def test_use_puts_expiry_off(clients: Clients, how: str) -> None:
    channel = clients.channel()
    channel.declare("q", {"x-expires": 1500})
    for _ in range(4):
        time.sleep(0.5)
        if how == "declare":
            channel.declare("q", {"x-expires": 1500})
        else:
            channel.get("q")
    assert exists(clients, "q")


def test_expiry_by_policy(clients: Clients, vhost: str, operator: Operator) -> None:
    clients.channel().declare("q")
    operator.set_policy(vhost, "p", "q", {"expires": 100})
    wait_gone(clients, "q")
