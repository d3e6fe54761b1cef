"""Exchanges and bindings: declaring, deleting, binding, and what each type does with a message."""

from __future__ import annotations

import time
from typing import Any

import pytest
from conftest import Clients
from live_broker import LiveNode, Operator
from raw_client import Closed, RawChannel


def refused(code: int, text: str, scope: str = "channel") -> Closed:
    return Closed(scope, code, text)


# -- declaring and deleting ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers"])
def test_declare_again_with_the_same(channel: RawChannel, kind: str) -> None:
    for _ in range(2):
        channel.exchange("x", kind, durable=True)
    channel.call("exchange.declare", exchange="x", passive=True)


def test_unknown_type(channel: RawChannel) -> None:
    assert channel.refused("exchange.declare", exchange="x", type="nonsense") == refused(
        503, "COMMAND_INVALID - unknown exchange type 'nonsense'", "connection"
    )


def test_unknown_type_of_an_existing_one(channel: RawChannel) -> None:
    channel.exchange("x")
    assert channel.refused("exchange.declare", exchange="x", type="nonsense").code == 503


def test_reserved_prefix(channel: RawChannel, vhost: str) -> None:
    assert channel.refused("exchange.declare", exchange="amq.mine", type="direct") == refused(
        403,
        "ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'",
    )


def test_reserved_ones_may_be_declared_as_they_are(channel: RawChannel) -> None:
    for name, kind in (("direct", "direct"), ("fanout", "fanout"), ("topic", "topic")):
        channel.exchange(f"amq.{name}", kind, durable=True)
    channel.exchange("amq.match", "headers", durable=True)
    channel.exchange("amq.headers", "headers", durable=True)
    channel.exchange("amq.rabbitmq.trace", "topic", durable=True, internal=True)


def test_default_exchange(clients: Clients) -> None:
    text = "ACCESS_REFUSED - operation not permitted on the default exchange"
    connection = clients.connect()
    channel = connection.channel
    assert channel().refused("exchange.declare", type="direct") == refused(403, text)
    assert channel().refused("exchange.declare", passive=True) == refused(403, text)
    assert channel().refused("exchange.delete") == refused(403, text)
    queue = channel(2).declare()
    assert channel().refused("queue.bind", queue=queue, routing_key="k") == refused(403, text)
    assert channel().refused("queue.unbind", queue=queue, routing_key="k") == refused(403, text)
    bind = {"source": "", "destination": "amq.fanout"}
    assert channel().refused("exchange.bind", **bind) == refused(403, text)
    unbind = {"source": "amq.fanout", "destination": ""}
    assert channel().refused("exchange.unbind", **unbind) == refused(403, text)


@pytest.mark.parametrize(
    ("key", "changed", "received", "current"),
    [
        ("type", {"type": "fanout"}, "fanout", "direct"),
        ("durable", {"durable": True}, "true", "false"),
        ("auto_delete", {"auto_delete": True}, "true", "false"),
        ("internal", {"internal": True}, "true", "false"),
    ],
)
def test_inequivalent(
    channel: RawChannel, vhost: str, key: str, changed: dict[str, Any], received: str, current: str
) -> None:
    channel.exchange("x")
    assert channel.refused(
        "exchange.declare", **{"exchange": "x", "type": "direct", **changed}
    ) == refused(
        406,
        f"PRECONDITION_FAILED - inequivalent arg '{key}' for exchange 'x' in vhost '{vhost}': "
        f"received '{received}' but current is '{current}'",
    )


def test_inequivalent_alternate(clients: Clients, vhost: str) -> None:
    channel = clients.channel()
    channel.exchange("x", arguments={"alternate-exchange": "a"})
    prefix = (
        "PRECONDITION_FAILED - inequivalent arg 'alternate-exchange' "
        f"for exchange 'x' in vhost '{vhost}': "
    )
    assert channel.refused(
        "exchange.declare", exchange="x", type="direct", arguments={"alternate-exchange": "b"}
    ) == refused(406, prefix + "received 'b' but current is 'a'")
    assert clients.channel().refused("exchange.declare", exchange="x", type="direct") == refused(
        406, prefix + "received none but current is the value 'a' of type 'longstr'"
    )


def test_passive(channel: RawChannel, vhost: str) -> None:
    assert channel.refused("exchange.declare", exchange="x", passive=True) == refused(
        404, f"NOT_FOUND - no exchange 'x' in vhost '{vhost}'"
    )


def test_line_breaks_are_stripped(channel: RawChannel) -> None:
    channel.exchange("a\r\nb\n")
    channel.call("exchange.declare", exchange="ab", passive=True)
    assert channel.declare("c\nd\r") == "cd"
    channel.bind("c\nd", "a\nb", "k")
    channel.call("exchange.bind", source="a\rb", destination="amq.\nfanout", routing_key="k")
    channel.publish("k", b"m", "ab")
    assert channel.wait_get("cd").body == b"m"


def test_longest_name(channel: RawChannel) -> None:
    name = "n" * 255
    channel.exchange(name)
    assert channel.declare(name) == name
    channel.bind(name, name, name)
    channel.publish(name, b"m", name)
    assert channel.bodies(name) == [b"m"]


def test_delete(clients: Clients, vhost: str) -> None:
    channel = clients.channel()
    channel.call("exchange.delete", exchange="missing")
    channel.exchange("x")
    channel.bind(channel.declare("q"), "x", "k")
    assert channel.refused("exchange.delete", exchange="x", if_unused=True) == refused(
        406, f"PRECONDITION_FAILED - exchange 'x' in vhost '{vhost}' in use"
    )
    channel = clients.channel()
    channel.call("exchange.delete", exchange="x")
    assert channel.refused("exchange.declare", exchange="x", passive=True).code == 404
    assert clients.channel().refused("exchange.delete", exchange="amq.direct") == refused(
        403,
        f"ACCESS_REFUSED - deletion of system exchange 'amq.direct' in vhost '{vhost}' not allowed",
    )


def test_no_wait(channel: RawChannel) -> None:
    channel.send("exchange.declare", exchange="x", type="direct", no_wait=True)
    channel.send("queue.declare", queue="q", no_wait=True)
    channel.send("queue.bind", queue="q", exchange="x", routing_key="k", no_wait=True)
    channel.publish("k", b"1", "x")
    channel.wait_depth("q", 1)
    channel.send("queue.purge", queue="q", no_wait=True)
    channel.send("queue.delete", queue="q", no_wait=True)
    channel.send("exchange.delete", exchange="x", no_wait=True)
    assert channel.quiet()


def test_internal(channel: RawChannel, vhost: str) -> None:
    channel.exchange("inner", "fanout", internal=True)
    channel.exchange("outer", "fanout")
    channel.call("exchange.bind", source="outer", destination="inner")
    channel.bind(channel.declare("q"), "inner")
    channel.publish("", b"m", "outer")
    assert channel.bodies("q") == [b"m"]
    assert channel.publish_refused("", b"m", "inner") == refused(
        403,
        f"ACCESS_REFUSED - cannot publish to internal exchange 'inner' in vhost '{vhost}'",
    )


def test_auto_delete(clients: Clients) -> None:
    channel = clients.channel()
    channel.exchange("x", auto_delete=True)
    channel.declare("q")
    channel.call("queue.unbind", queue="q", exchange="x", routing_key="k")
    channel.call("exchange.declare", exchange="x", passive=True)
    channel.bind("q", "x", "k")
    channel.bind("q", "x", "l")
    channel.call("queue.unbind", queue="q", exchange="x", routing_key="k")
    channel.call("exchange.declare", exchange="x", passive=True)
    channel.call("queue.delete", queue="q")
    assert channel.refused("exchange.declare", exchange="x", passive=True).code == 404


def test_auto_delete_goes_up_a_chain(channel: RawChannel) -> None:
    channel.exchange("up", "fanout", auto_delete=True)
    channel.exchange("down", "fanout", auto_delete=True)
    channel.call("exchange.bind", source="up", destination="down")
    channel.bind(channel.declare("q"), "down")
    channel.call("queue.delete", queue="q")
    assert channel.refused("exchange.declare", exchange="up", passive=True).code == 404


# -- bindings --------------------------------------------------------------------------------------


def test_bind_to_and_from_what_is_missing(clients: Clients, vhost: str) -> None:
    channel = clients.channel()
    channel.declare("q")
    assert channel.refused("queue.bind", queue="q", exchange="x") == refused(
        404, f"NOT_FOUND - no exchange 'x' in vhost '{vhost}'"
    )
    channel = clients.channel()
    assert channel.refused("queue.bind", queue="r", exchange="amq.direct") == refused(
        404, f"NOT_FOUND - no queue 'r' in vhost '{vhost}'"
    )
    channel = clients.channel()
    assert channel.refused("exchange.bind", source="x", destination="amq.direct") == refused(
        404, f"NOT_FOUND - no exchange 'x' in vhost '{vhost}'"
    )
    channel = clients.channel()
    channel.call("queue.unbind", queue="r", exchange="amq.direct")
    channel.call("queue.unbind", queue="q", exchange="x")
    channel.call("queue.unbind", queue="q", exchange="amq.direct", routing_key="never")
    channel.call("exchange.unbind", source="x", destination="y")


def test_binding_twice_is_one_binding(channel: RawChannel) -> None:
    channel.declare("q")
    for _ in range(2):
        channel.bind("q", "amq.direct", "k")
    channel.publish("k", b"1", "amq.direct")
    assert channel.bodies("q") == [b"1"]
    channel.call("queue.unbind", queue="q", exchange="amq.direct", routing_key="k")
    channel.publish("k", b"2", "amq.direct")
    assert channel.bodies("q") == []


def test_bindings_differ_by_arguments(channel: RawChannel) -> None:
    channel.declare("q")
    channel.bind("q", "amq.direct", "k", {"n": 1})
    channel.bind("q", "amq.direct", "k", {"n": 2})
    channel.publish("k", b"1", "amq.direct")
    assert channel.bodies("q") == [b"1"]
    channel.call("queue.unbind", queue="q", exchange="amq.direct", routing_key="k")
    channel.call(
        "queue.unbind", queue="q", exchange="amq.direct", routing_key="k", arguments={"n": 1}
    )
    channel.publish("k", b"2", "amq.direct")
    assert channel.bodies("q") == [b"2"]


def test_empty_names_stand_for_the_last_queue(clients: Clients) -> None:
    channel = clients.channel()
    name = channel.declare("")
    assert name.startswith("amq.gen-")
    channel.call("queue.bind", exchange="amq.direct")
    channel.publish(name, b"m", "amq.direct")
    channel.wait_depth(name, 1)
    found = channel.get("")
    assert found is not None
    assert found.body == b"m"
    channel.call("queue.purge")
    channel.call("queue.unbind", exchange="amq.direct")
    channel.call("queue.delete")
    channel = clients.channel()
    for method in ("queue.purge", "queue.delete", "basic.get"):
        assert clients.channel().refused(method) == refused(
            404, "NOT_FOUND - no previously declared queue"
        )


def test_exchange_to_exchange(channel: RawChannel) -> None:
    for name, kind in (("a", "topic"), ("b", "direct"), ("c", "fanout")):
        channel.exchange(name, kind)
    channel.call("exchange.bind", source="a", destination="b", routing_key="#")
    channel.call("exchange.bind", source="a", destination="c", routing_key="x.*")
    channel.declare("q")
    channel.bind("q", "b", "x.1")
    channel.bind("q", "c")
    channel.publish("x.1", b"once", "a")
    assert channel.bodies("q") == [b"once"]
    channel.call("exchange.unbind", source="a", destination="b", routing_key="#")
    channel.publish("x.2", b"by c", "a")
    channel.publish("y", b"nowhere", "a")
    assert channel.bodies("q") == [b"by c"]
    channel.call("exchange.delete", exchange="c")
    channel.publish("x.2", b"c is gone", "a")
    assert channel.bodies("q") == []


def test_exchange_cycle(channel: RawChannel) -> None:
    for name in "abc":
        channel.exchange(name, "fanout")
    for source, destination in ("ab", "bc", "ca", "aa"):
        channel.call("exchange.bind", source=source, destination=destination)
    for queue, exchange in (("q", "a"), ("q", "c"), ("r", "b")):
        channel.declare(queue)
        channel.bind(queue, exchange)
    channel.publish("", b"m", "b")
    assert channel.bodies("q") == [b"m"]
    assert channel.bodies("r") == [b"m"]


# -- types -----------------------------------------------------------------------------------------


def routed(
    channel: RawChannel, exchange: str, key: str, queues: list[str], **properties: Any
) -> list[str]:
    """Which of the queues get a message."""
    channel.publish(key, b"m", exchange, **properties)
    return [queue for queue in queues if channel.bodies(queue)]


def test_default_exchange_routes_by_queue_name(channel: RawChannel) -> None:
    channel.declare("q")
    assert routed(channel, "", "q", ["q"]) == ["q"]
    assert routed(channel, "", "r", ["q"]) == []


def test_direct(channel: RawChannel) -> None:
    for queue, key in (("a", "k"), ("b", "k"), ("b", "l"), ("c", "")):
        channel.declare(queue)
        channel.bind(queue, "amq.direct", key)
    assert routed(channel, "amq.direct", "k", ["a", "b", "c"]) == ["a", "b"]
    assert routed(channel, "amq.direct", "", ["a", "b", "c"]) == ["c"]
    assert routed(channel, "amq.direct", "K", ["a", "b", "c"]) == []


def test_topic(channel: RawChannel) -> None:
    patterns = {"a": "*.x", "b": "#", "c": "x.#.z", "d": "*", "e": "", "f": "x.y"}
    for queue, key in patterns.items():
        channel.declare(queue)
        channel.bind(queue, "amq.topic", key)
    queues = list(patterns)
    assert routed(channel, "amq.topic", "q.x", queues) == ["a", "b"]
    assert routed(channel, "amq.topic", "x.z", queues) == ["b", "c"]
    assert routed(channel, "amq.topic", "x.y.y.z", queues) == ["b", "c"]
    assert routed(channel, "amq.topic", "x.y", queues) == ["b", "f"]
    assert routed(channel, "amq.topic", "one", queues) == ["b", "d"]
    assert routed(channel, "amq.topic", "", queues) == ["b", "e"]


def test_headers(channel: RawChannel) -> None:
    bindings: dict[str, dict[str, Any]] = {
        "all": {"a": 1, "b": "x", "x-c": 9},
        "any": {"x-match": "any", "a": 2, "b": "x", "x-c": 9},
        "all-x": {"x-match": "all-with-x", "a": 1, "x-c": 5},
        "any-x": {"x-match": "any-with-x", "x-c": 5},
        "there": {"x-match": "all", "b": None},
        "none": {},
        "any-none": {"x-match": "any"},
    }
    for queue, arguments in bindings.items():
        channel.declare(queue)
        channel.bind(queue, "amq.headers", "", arguments)
    queues = list(bindings)

    def found(**headers: Any) -> set[str]:
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        return set(routed(channel, "amq.headers", "", queues, headers=named))

    assert found(a=1, b="x") == {"all", "any", "there", "none"}
    assert found(a=1, b="x", x_c=5) == {"all", "any", "all-x", "any-x", "there", "none"}
    assert found(a=2) == {"any", "none"}
    assert found(x_c=9) == {"none"}
    assert found(b="other") == {"there", "none"}
    assert found() == {"none"}


def test_headers_invalid_match(clients: Clients) -> None:
    channel = clients.channel()
    channel.declare("q")
    refusal = channel.refused(
        "queue.bind", queue="q", exchange="amq.headers", arguments={"x-match": "most"}
    )
    assert refusal.code == 406
    assert refusal.text.startswith(
        'PRECONDITION_FAILED - Invalid x-match field value <<"most">>; expected '
    )
    refusal = clients.channel().refused(
        "queue.bind", queue="q", exchange="amq.headers", arguments={"x-match": 1}
    )
    assert refusal.code == 406
    assert refusal.text == (
        "PRECONDITION_FAILED - Invalid x-match field type signedint (value 1); expected longstr"
    )


def test_consistent_hash(clients: Clients) -> None:
    channel = clients.channel()
    channel.exchange("h", "x-consistent-hash")
    for queue in ("a", "b"):
        channel.declare(queue)
        channel.bind(queue, "h", "2")
    for number in range(100):
        for _ in range(2):
            channel.publish(f"k{number}", b"%d" % number, "h")
    a, b = channel.bodies("a"), channel.bodies("b")
    assert len(a) + len(b) == 200
    assert a
    assert b
    # One key goes one way.
    assert not set(a) & set(b)
    channel.declare("c")
    refusal = channel.refused("queue.bind", queue="c", exchange="h", routing_key="heavy")
    assert refusal.code == 406


def test_consistent_hash_by_header(channel: RawChannel) -> None:
    channel.exchange("h", "x-consistent-hash", arguments={"hash-header": "id"})
    for queue in ("a", "b", "c"):
        channel.declare(queue)
        channel.bind(queue, "h", "1")
    for number in range(30):
        channel.publish(f"k{number}", b"", "h", headers={"id": "same"})
    assert sorted(len(channel.bodies(queue)) for queue in "abc") == [0, 0, 30]


# -- alternate exchanges ---------------------------------------------------------------------------


def test_alternate_exchange(channel: RawChannel) -> None:
    channel.exchange("spare", "fanout")
    channel.exchange("x", "direct", arguments={"alternate-exchange": "spare"})
    for queue, exchange in (("q", "x"), ("lost", "spare")):
        channel.declare(queue)
        channel.bind(queue, exchange, "k")
    assert routed(channel, "x", "k", ["q", "lost"]) == ["q"]
    channel.publish("other", b"m", "x", mandatory=True)
    found = channel.get("lost")
    assert found is not None
    assert (found.exchange, found.routing_key, found.body) == ("x", "other", b"m")


def test_alternate_exchange_missing(channel: RawChannel) -> None:
    channel.exchange("x", arguments={"alternate-exchange": "spare"})
    channel.publish("k", b"m", "x")
    channel.publish("k", b"m", "x", mandatory=True)
    returned = channel.expect("basic.return")
    assert (returned.reply_code, returned.reply_text) == (312, "NO_ROUTE")
    channel.exchange("spare", "fanout")
    channel.bind(channel.declare("q"), "spare")
    assert routed(channel, "x", "k", ["q"]) == ["q"]


def test_alternate_exchange_loop(channel: RawChannel) -> None:
    channel.exchange("a", arguments={"alternate-exchange": "b"})
    channel.exchange("b", arguments={"alternate-exchange": "a"})
    channel.publish("k", b"m", "a", mandatory=True)
    assert channel.next().name == "basic.return"
    channel.bind(channel.declare("q"), "b", "k")
    assert routed(channel, "a", "k", ["q"]) == ["q"]


def test_alternate_exchange_of_a_chained_one(channel: RawChannel) -> None:
    """The alternate is for the exchange that found nothing, though another found something."""
    channel.exchange("a", "fanout")
    channel.exchange("b", "direct", arguments={"alternate-exchange": "c"})
    channel.exchange("c", "fanout")
    channel.call("exchange.bind", source="a", destination="b")
    for queue, exchange in (("q", "a"), ("r", "c")):
        channel.declare(queue)
        channel.bind(queue, exchange)
    assert routed(channel, "a", "k", ["q", "r"]) == ["q", "r"]


def test_alternate_exchange_by_policy(channel: RawChannel, vhost: str, operator: Operator) -> None:
    channel.exchange("x")
    channel.exchange("spare", "fanout")
    channel.bind(channel.declare("lost"), "spare")
    assert routed(channel, "x", "k", ["lost"]) == []
    operator.set_policy(vhost, "ae", "^x$", {"alternate-exchange": "spare"}, apply_to="exchanges")
    assert routed(channel, "x", "k", ["lost"]) == ["lost"]
    operator.clear_policy(vhost, "ae")
    assert routed(channel, "x", "k", ["lost"]) == []


def test_alternate_argument_of_wrong_type(channel: RawChannel, vhost: str) -> None:
    assert channel.refused(
        "exchange.declare", exchange="x", type="direct", arguments={"alternate-exchange": 5}
    ) == refused(
        406,
        "PRECONDITION_FAILED - invalid type 'signedint' for arg 'alternate-exchange' "
        f"in exchange 'x' in vhost '{vhost}'",
    )


# -- delayed messages ------------------------------------------------------------------------------


def test_delayed_exchange(channel: RawChannel, node: object) -> None:
    channel.exchange("d", "x-delayed-message", arguments={"x-delayed-type": "direct"})
    channel.bind(channel.declare("q"), "d", "k")
    started = time.monotonic()
    channel.publish("k", b"late", "d", headers={"x-delay": 2500})
    channel.publish("k", b"soon", "d", headers={"x-delay": 1200})
    channel.publish("k", b"now", "d")
    channel.publish("k", b"negative", "d", headers={"x-delay": -5})
    assert channel.bodies("q") == [b"now", b"negative"]
    assert channel.wait_get("q").body == b"soon"
    late = channel.wait_get("q")
    assert (late.body, late.exchange, late.headers["x-delay"]) == (b"late", "d", -2500)
    assert time.monotonic() - started >= 2.5


def test_delayed_exchange_needs_a_type(channel: RawChannel, node: object) -> None:
    refusal = channel.refused("exchange.declare", exchange="d", type="x-delayed-message")
    assert refusal[:2] == ("channel", 406)


def delayed_to_q(channel: RawChannel) -> None:
    """A delayed exchange `d` that leads to queue `q`."""
    channel.exchange("d", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    channel.bind(channel.declare("q"), "d")


def test_a_delayed_exchange_behind_another(channel: RawChannel, node: object) -> None:
    delayed_to_q(channel)
    channel.exchange("first", "fanout")
    channel.call("exchange.bind", destination="d", source="first")
    channel.bind(channel.declare("direct"), "first")
    started = time.monotonic()
    channel.publish("", b"m", "first", headers={"x-delay": 1200}, mandatory=True)
    channel.publish("", b"now", "first")
    assert channel.bodies("direct") == [b"m", b"now"]
    assert channel.bodies("q") == [b"now"]
    assert channel.wait_get("q").body == b"m"
    assert time.monotonic() - started >= 1.2


def test_a_delayed_exchange_as_alternate(channel: RawChannel, node: object) -> None:
    delayed_to_q(channel)
    channel.exchange("first", "direct", {"alternate-exchange": "d"})
    channel.publish("nowhere", b"m", "first", headers={"x-delay": 1200}, mandatory=True)
    assert channel.bodies("q") == []
    assert channel.wait_get("q").body == b"m"


def test_a_delayed_exchange_for_dead_letters(channel: RawChannel, node: object) -> None:
    delayed_to_q(channel)
    channel.declare("source", {"x-dead-letter-exchange": "d", "x-message-ttl": 0})
    channel.publish("source", b"m", headers={"x-delay": 1200})
    assert channel.bodies("q") == []
    dead = channel.wait_get("q")
    assert (dead.body, dead.headers["x-delay"]) == (b"m", -1200)
    assert dead.headers["x-death"][0]["reason"] == "expired"


def test_what_waits_goes_with_its_exchange(channel: RawChannel, node: LiveNode) -> None:
    engine = node.node.engine
    before = node.call(lambda: engine.delayed_messages)
    delayed_to_q(channel)
    for _ in range(5):
        channel.publish("", b"m", "d", headers={"x-delay": 60_000})
    channel.publish("", b"soon", "d", headers={"x-delay": 50})
    channel.declare("q")
    assert node.call(lambda: engine.delayed_messages) == before + 6
    assert channel.wait_get("q").body == b"soon"
    assert node.call(lambda: engine.delayed_messages) == before + 5
    channel.call("exchange.delete", exchange="d")
    assert node.call(lambda: engine.delayed_messages) == before


def test_what_waits_goes_with_its_virtual_host(
    clients: Clients, node: LiveNode, operator: Operator
) -> None:
    engine = node.node.engine
    before = node.call(lambda: engine.delayed_messages)
    operator.add_vhost("goes")
    channel = clients.channel(vhost="goes")
    delayed_to_q(channel)
    channel.publish("", b"m", "d", headers={"x-delay": 60_000})
    channel.declare("q")
    assert node.call(lambda: engine.delayed_messages) == before + 1
    operator.delete_vhost("goes")
    assert node.call(lambda: engine.delayed_messages) == before
