"""Who may do what: permissions by operation, topic permissions, and policies over queues."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from conftest import Clients
from live_broker import Operator
from raw_client import Closed, RawChannel


def refusal(access: str, kind: str, name: str, vhost: str, user: str) -> Closed:
    return refused_access(access, f"{kind} '{name}'", vhost, user)


def refused_access(access: str, to: str, vhost: str, user: str) -> Closed:
    # RabbitMQ says which access is missing from 3.13 on.
    said = "" if "WARREN_TEST_URL" in os.environ else f"{access} "
    text = f"{said}access to {to} in vhost '{vhost}' refused for user '{user}'"
    return Closed("channel", 403, f"ACCESS_REFUSED - {text}")


@pytest.fixture
def prepared(clients: Clients) -> RawChannel:
    """A channel of an operator who has made queue `q` and exchanges `x` and `y`."""
    channel = clients.channel()
    channel.declare("q")
    channel.exchange("x")
    channel.exchange("y")
    return channel


#: (method, its fields, the access it needs, to which kind, of which name)
OPERATIONS: list[tuple[str, dict[str, Any], str, str, str]] = [
    ("queue.declare", {"queue": "new"}, "configure", "queue", "new"),
    ("queue.delete", {"queue": "q"}, "configure", "queue", "q"),
    ("exchange.declare", {"exchange": "e", "type": "direct"}, "configure", "exchange", "e"),
    ("exchange.delete", {"exchange": "x"}, "configure", "exchange", "x"),
    ("queue.bind", {"queue": "q", "exchange": "x"}, "write", "queue", "q"),
    ("queue.bind", {"queue": "q", "exchange": "x"}, "read", "exchange", "x"),
    ("queue.unbind", {"queue": "q", "exchange": "x"}, "write", "queue", "q"),
    ("queue.unbind", {"queue": "q", "exchange": "x"}, "read", "exchange", "x"),
    ("exchange.bind", {"destination": "x", "source": "y"}, "write", "exchange", "x"),
    ("exchange.bind", {"destination": "x", "source": "y"}, "read", "exchange", "y"),
    ("queue.purge", {"queue": "q"}, "read", "queue", "q"),
    ("basic.get", {"queue": "q"}, "read", "queue", "q"),
    ("basic.consume", {"queue": "q"}, "read", "queue", "q"),
]


@pytest.mark.parametrize(("method", "fields", "access", "kind", "name"), OPERATIONS)
def test_needs(
    clients: Clients,
    prepared: RawChannel,
    vhost: str,
    make_user: Callable[..., str],
    method: str,
    fields: dict[str, Any],
    access: str,
    kind: str,
    name: str,
) -> None:
    # Everything but the one access the operation needs.
    user = make_user(**{access: f"^(?!{name}$)"})
    channel = clients.channel(user=user, password=user)
    assert channel.refused(method, **fields) == refusal(access, kind, name, vhost, user)


def test_publish_needs_write(
    clients: Clients, prepared: RawChannel, vhost: str, make_user: Callable[..., str]
) -> None:
    user = make_user(write="^x$")
    channel = clients.channel(user=user, password=user)
    channel.publish("k", b"m", "x")
    assert channel.publish_refused("k", b"m", "y") == refusal("write", "exchange", "y", vhost, user)
    channel = clients.channel(user=user, password=user)
    assert channel.publish_refused("q", b"m") == refusal(
        "write", "exchange", "amq.default", vhost, user
    )


def test_passive_declare_needs_nothing(
    clients: Clients, prepared: RawChannel, make_user: Callable[..., str]
) -> None:
    user = make_user("^$", "^$", "^$")
    channel = clients.channel(user=user, password=user)
    channel.call("exchange.declare", exchange="x", passive=True)


def test_empty_patterns_allow_nothing(
    clients: Clients, vhost: str, make_user: Callable[..., str]
) -> None:
    user = make_user("", "", "")
    channel = clients.channel(user=user, password=user)
    assert channel.refused("queue.declare", queue="q") == refusal(
        "configure", "queue", "q", vhost, user
    )


def test_dead_letter_exchange_needs_read_and_write(
    clients: Clients, vhost: str, make_user: Callable[..., str]
) -> None:
    arguments = {"x-dead-letter-exchange": "dlx"}
    reader = make_user(write="^(?!dlx)")
    channel = clients.channel(user=reader, password=reader)
    assert channel.refused("queue.declare", queue="q", arguments=arguments) == refusal(
        "write", "exchange", "dlx", vhost, reader
    )
    writer = make_user(read="^$")
    channel = clients.channel(user=writer, password=writer)
    assert channel.refused("queue.declare", queue="q", arguments=arguments) == refusal(
        "read", "queue", "q", vhost, writer
    )


def test_alternate_exchange_needs_read_and_write(
    clients: Clients, vhost: str, make_user: Callable[..., str]
) -> None:
    fields = {"exchange": "x", "type": "direct", "arguments": {"alternate-exchange": "ae"}}
    user = make_user(write="^(?!ae)")
    channel = clients.channel(user=user, password=user)
    assert channel.refused("exchange.declare", **fields) == refusal(
        "write", "exchange", "ae", vhost, user
    )
    user = make_user(read="^$")
    channel = clients.channel(user=user, password=user)
    assert channel.refused("exchange.declare", **fields) == refusal(
        "read", "exchange", "x", vhost, user
    )


def test_permission_taken_away_stops_a_publisher(
    clients: Clients,
    vhost: str,
    operator: Operator,
    make_user: Callable[..., str],
    node: object,
) -> None:
    user = make_user()
    channel = clients.channel(user=user, password=user)
    channel.bind(channel.declare("q"), "amq.fanout")
    channel.publish("", b"1", "amq.fanout")
    channel.wait_depth("q", 1)
    operator.permit(user, vhost, ".*", "^$", ".*")
    assert channel.publish_refused("", b"2", "amq.fanout").code == 403


def topic_refusal(access: str, key: str, vhost: str, user: str) -> Closed:
    return refused_access(access, f"topic '{key}' in exchange 'amq.topic'", vhost, user)


def test_topic_permissions(
    clients: Clients, vhost: str, operator: Operator, make_user: Callable[..., str]
) -> None:
    user = make_user()
    operator.permit_topic(user, vhost, "amq.topic", "^{username}\\.", "^(open|{vhost})\\.")
    channel = clients.channel(user=user, password=user)
    channel.declare("q")
    channel.bind("q", "amq.topic", "open.#")
    channel.bind("q", "amq.topic", f"{vhost}.#")
    channel.publish(f"{user}.x", b"m", "amq.topic")
    assert channel.publish_refused("other.x", b"m", "amq.topic") == topic_refusal(
        "write", "other.x", vhost, user
    )
    channel = clients.channel(user=user, password=user)
    assert channel.refused(
        "queue.bind", queue="q", exchange="amq.topic", routing_key="closed.#"
    ) == topic_refusal("read", "closed.#", vhost, user)
    # Only topic exchanges are concerned, and only the one that was named.
    channel = clients.channel(user=user, password=user)
    channel.bind("q", "amq.direct", "closed")
    channel.publish("other.x", b"m", "amq.direct")
    channel.exchange("t", "topic")
    channel.publish("other.x", b"m", "t")
    channel.declare("r")


# -- policies --------------------------------------------------------------------------------------


def filled(channel: RawChannel, queue: str, count: int) -> int:
    """How many of so many messages a queue keeps."""
    channel.call("queue.purge", queue=queue)
    channel.call("confirm.select")
    for _ in range(count):
        channel.publish(queue)
    acked = 0
    while acked < count:
        found = channel.expect("basic.ack")
        acked = found.delivery_tag - filled_before.get(channel, 0)
    filled_before[channel] = filled_before.get(channel, 0) + count
    return channel.depth(queue)


#: By the channel itself: its number in memory is another's when it is gone.
filled_before: WeakKeyDictionary[RawChannel, int] = WeakKeyDictionary()


def test_highest_priority_policy_wins(channel: RawChannel, vhost: str, operator: Operator) -> None:
    channel.declare("q")
    assert filled(channel, "q", 9) == 9
    operator.set_policy(vhost, "low", "q", {"max-length": 2}, priority=1)
    operator.set_policy(vhost, "high", "^q$", {"max-length": 4}, priority=5)
    assert filled(channel, "q", 9) == 4
    # Policies are not joined: the lower one is out even for keys the higher one lacks.
    operator.set_policy(vhost, "high", "^q$", {"message-ttl": 60000}, priority=5)
    assert filled(channel, "q", 9) == 9
    operator.clear_policy(vhost, "high")
    assert filled(channel, "q", 9) == 2
    operator.clear_policy(vhost, "low")
    assert filled(channel, "q", 9) == 9


def test_pattern_is_searched(channel: RawChannel, vhost: str, operator: Operator) -> None:
    operator.set_policy(vhost, "p", "two.", {"max-length": 1})
    for queue, kept in (("two1", 1), ("has two inside", 1), ("two", 3), ("one", 3)):
        channel.declare(queue)
        assert filled(channel, queue, 3) == kept


def test_apply_to(channel: RawChannel, vhost: str, operator: Operator) -> None:
    channel.declare("q")
    operator.set_policy(
        vhost, "p", ".*", {"alternate-exchange": "amq.fanout"}, 9, apply_to="exchanges"
    )
    operator.set_policy(vhost, "r", ".*", {"max-length": 1}, 1, apply_to="queues")
    assert filled(channel, "q", 3) == 1
    other = channel.connection.channel(2)
    other.exchange("x")
    other.bind(other.declare("r"), "amq.fanout")
    other.publish("k", b"m", "x")
    other.wait_depth("r", 1)


def test_operator_policy(channel: RawChannel, vhost: str, operator: Operator) -> None:
    channel.declare("q", {"x-max-length": 8})
    operator.set_policy(vhost, "p", "q", {"max-length": 6})
    assert filled(channel, "q", 9) == 6
    operator.set_policy(vhost, "o", "q", {"max-length": 3}, apply_to="queues", operator=True)
    assert filled(channel, "q", 9) == 3
    operator.set_policy(vhost, "o", "q", {"max-length": 7}, apply_to="queues", operator=True)
    assert filled(channel, "q", 9) == 6
    operator.clear_policy(vhost, "p")
    operator.clear_policy(vhost, "o", operator=True)
    assert filled(channel, "q", 9) == 8


def test_argument_wins_over_policy_for_dead_letters(
    channel: RawChannel, vhost: str, operator: Operator
) -> None:
    for queue in ("by-argument", "by-policy"):
        channel.declare(queue)
    operator.set_policy(
        vhost,
        "p",
        "^q$",
        {"dead-letter-exchange": "", "dead-letter-routing-key": "by-policy", "message-ttl": 1},
    )
    channel.declare("q", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "by-argument"})
    channel.publish("q", b"m")
    assert channel.wait_get("by-argument").body == b"m"
    assert channel.get("by-policy") is None


def test_overflow_by_policy(confirming: RawChannel, vhost: str, operator: Operator) -> None:
    confirming.declare("q")
    operator.set_policy(vhost, "p", "^q$", {"max-length": 1, "overflow": "reject-publish"})
    confirming.publish("q", b"1")
    assert confirming.next().name == "basic.ack"
    confirming.publish("q", b"2")
    assert confirming.next().name == "basic.nack"
    assert confirming.bodies("q") == [b"1"]


def test_message_ttl_by_policy_concerns_what_comes(
    channel: RawChannel, vhost: str, operator: Operator
) -> None:
    channel.declare("q")
    operator.set_policy(vhost, "p", "^q$", {"message-ttl": 250})
    channel.publish("q", b"m")
    channel.wait_depth("q", 1)
    channel.wait_depth("q", 0)
    operator.clear_policy(vhost, "p")
    channel.publish("q", b"stays")
    channel.wait_depth("q", 1)
