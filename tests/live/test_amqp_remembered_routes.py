"""What the broker remembers about exchanges and routes, and when it has to forget it."""

from __future__ import annotations

import time
from collections.abc import Callable

from conftest import Clients
from live_broker import LiveNode, Operator
from raw_client import RawChannel

from warren.engine.remembered_routes import EMPTY_ROUTES_MAX


def test_an_exchange_declared_anew_is_checked_anew(channel: RawChannel) -> None:
    channel.exchange("e", "fanout")
    channel.publish("k", b"1", "e")
    other = channel.connection.channel(2)
    other.call("exchange.delete", exchange="e")
    other.exchange("e", "fanout", internal=True)
    refusal = channel.publish_refused("k", b"2", "e")
    assert refusal[:2] == ("channel", 403)


def test_topic_permissions_of_an_exchange_declared_anew(
    clients: Clients, vhost: str, operator: Operator, make_user: Callable[..., str]
) -> None:
    user = make_user()
    operator.permit_topic(user, vhost, "e", "^allowed$", ".*")
    channel = clients.channel(user=user, password=user)
    channel.exchange("e", "fanout")
    channel.publish("other", b"1", "e")
    owner = clients.channel()
    owner.call("exchange.delete", exchange="e")
    owner.exchange("e", "topic")
    channel.publish("allowed", b"2", "e")
    refusal = channel.publish_refused("other", b"3", "e")
    assert refusal[:2] == ("channel", 403)


def test_deleted_exchanges_leave_nothing_behind(
    channel: RawChannel, node: LiveNode, vhost: str
) -> None:
    channel.declare("q")
    for number in range(100):
        name = f"e{number}"
        channel.exchange(name, "fanout")
        channel.bind("q", name)
        channel.publish("k", b"", name)
        if number % 2:
            channel.call("queue.unbind", queue="q", exchange=name)
        channel.call("exchange.delete", exchange=name)
    assert channel.depth("q") == 100
    known = node.node.engine.vhosts[vhost]
    assert node.call(lambda: known.routes.exchanges) <= 1
    assert node.call(lambda: known.queues["q"].sources) == set()
    books = node.call(
        lambda: [
            len(c.books)
            for connection in node.node.engine.connections
            if connection.vhost is known
            for c in connection.open_channels()
        ]
    )
    assert max(books) <= 66


def test_sources_are_kept_while_a_binding_is_left(
    channel: RawChannel, node: LiveNode, vhost: str
) -> None:
    channel.declare("q")
    channel.bind("q", "amq.direct", "a")
    channel.bind("q", "amq.direct", "b")
    known = node.node.engine.vhosts[vhost]
    for key, sources in (("a", {"amq.direct"}), ("b", set())):
        channel.call("queue.unbind", queue="q", exchange="amq.direct", routing_key=key)
        assert node.call(lambda: set(known.queues["q"].sources)) == sources


def test_unroutable_keys_are_not_remembered_for_ever(
    channel: RawChannel, node: LiveNode, vhost: str
) -> None:
    channel.declare("q")
    channel.publish("q", b"1")
    for number in range(2 * EMPTY_ROUTES_MAX):
        channel.publish(f"nowhere{number}", b"", "" if number % 2 else "amq.match")
    channel.publish("q", b"2")
    assert channel.depth("q") == 2
    routes = node.node.engine.vhosts[vhost].routes
    assert 1 <= node.call(lambda: len(routes)) <= EMPTY_ROUTES_MAX + 1
    # A queue that is declared after all is found.
    channel.declare("nowhere2047")
    channel.publish("nowhere2047", b"")
    assert channel.depth("nowhere2047") == 1


def test_a_memory_alarm_forgets_all_routes(channel: RawChannel, node: LiveNode, vhost: str) -> None:
    channel.declare("q")
    channel.publish("q", b"1")
    channel.wait_depth("q", 1)
    routes = node.node.engine.vhosts[vhost].routes
    assert node.call(lambda: len(routes)) == 1
    node.call(lambda: node.node.engine.set_alarm("memory", True))
    assert node.call(lambda: len(routes)) == 0
    node.call(lambda: node.node.engine.set_alarm("memory", False))
    channel.publish("q", b"2")
    assert channel.depth("q") == 2


def test_a_long_chain_of_exchanges_goes_with_its_last_binding(
    channel: RawChannel, node: LiveNode, vhost: str, judge_time: Callable[[float, float], None]
) -> None:
    """Chained far deeper than calls may be nested, and in good time."""
    length = 2000
    for number in range(length):
        channel.send(
            "exchange.declare", exchange=f"e{number}", type="fanout", auto_delete=True, no_wait=True
        )
        if number:
            channel.send(
                "exchange.bind", destination=f"e{number - 1}", source=f"e{number}", no_wait=True
            )
    channel.declare("q")
    channel.bind("q", "e0")
    channel.publish("", b"through", f"e{length - 1}")
    channel.wait_depth("q", 1)
    started = time.monotonic()
    channel.call("queue.delete", queue="q")
    judge_time(time.monotonic() - started, 1)
    known = node.node.engine.vhosts[vhost]
    assert node.call(lambda: [name for name in known.exchanges if name.startswith("e")]) == []
    assert known.chained == 0


def test_a_ring_of_exchanges_can_be_deleted(
    channel: RawChannel, node: LiveNode, vhost: str
) -> None:
    for name in ("a", "b", "c"):
        channel.exchange(name, "fanout", auto_delete=True)
    for source, destination in (("a", "b"), ("b", "c"), ("c", "a"), ("a", "a")):
        channel.call("exchange.bind", destination=destination, source=source)
    channel.call("exchange.delete", exchange="b")
    known = node.node.engine.vhosts[vhost]
    # a led to b and to itself; c goes when a does.
    assert node.call(lambda: {"a", "c"} <= known.exchanges.keys())
    channel.call("exchange.delete", exchange="a")
    assert node.call(lambda: known.exchanges.keys() & {"a", "b", "c"}) == set()
    assert known.chained == 0


def test_a_transaction_through_an_exchange_deleted_meanwhile(channel: RawChannel) -> None:
    channel.exchange("e", "fanout")
    channel.bind(channel.declare("q"), "e")
    working = channel.connection.channel(2)
    working.call("tx.select")
    working.publish("", b"dropped", "e")
    working.publish("", b"returned", "e", mandatory=True)
    working.publish("q", b"kept")
    channel.call("exchange.delete", exchange="e")
    working.send("tx.commit")
    returned = working.expect("basic.return")
    assert (returned.body, returned.reply_code) == (b"returned", 312)
    working.expect("tx.commit-ok")
    assert channel.bodies("q") == [b"kept"]
