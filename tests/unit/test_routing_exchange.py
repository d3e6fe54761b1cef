"""Exchanges as declared: types, idempotent bindings, alternates, chains."""

from __future__ import annotations

import pytest

from warren.model.errors import CommandInvalid, PreconditionFailed
from warren.routing.binding import Binding
from warren.routing.exchange import EXCHANGE_TYPES, Exchange, make_exchange
from warren.routing.resolve import resolve


def bind(source: Exchange, destination: str | Exchange, key: bytes = b"") -> Binding:
    if isinstance(destination, Exchange):
        binding = Binding(source.name, "exchange", destination.name, key)
    else:
        binding = Binding(source.name, "queue", destination, key)
    source.bind(binding, destination)
    return binding


def test_unknown_type() -> None:
    with pytest.raises(CommandInvalid) as refusal:
        make_exchange("e", "zz")
    assert refusal.value.explanation == "unknown exchange type 'zz'"


@pytest.mark.parametrize("inner", [None, "zz", 1, "x-delayed-message"])
def test_delayed_needs_an_inner_type(inner: object) -> None:
    arguments = {} if inner is None else {"x-delayed-type": inner}
    with pytest.raises(PreconditionFailed, match="'x-delayed-type' must be an existing"):
        make_exchange("e", "x-delayed-message", arguments=arguments)


@pytest.mark.parametrize("exchange_type", sorted(EXCHANGE_TYPES))
def test_binding_twice_is_binding_once(exchange_type: str) -> None:
    exchange = make_exchange("e", exchange_type, arguments={"x-delayed-type": "topic"})
    binding = Binding("e", "queue", "q", b"1")
    again = Binding("e", "queue", "q", b"1")
    assert not exchange.had_bindings
    assert exchange.bind(binding, "q")
    assert not exchange.bind(again, "q")
    assert exchange.bindings() == exchange.bindings_to("queue", "q") == [binding]
    assert exchange.match(b"1", None) == ["q"]
    assert exchange.unbind(again)
    assert not exchange.unbind(binding)
    assert exchange.match(b"1", None) == []
    assert exchange.is_unused
    assert exchange.had_bindings


def test_a_refused_binding_leaves_no_trace() -> None:
    exchange = make_exchange("e", "headers")
    with pytest.raises(PreconditionFailed):
        exchange.bind(Binding("e", "queue", "q", b"", {"x-match": "some"}), "q")
    assert exchange.is_unused
    assert not exchange.had_bindings


def test_which_types_are_decided_by_the_key_alone() -> None:
    delayed = make_exchange("e", "x-delayed-message", arguments={"x-delayed-type": "headers"})
    assert delayed.is_delayed
    assert not delayed.caches_by_key
    assert not make_exchange("e", "headers").caches_by_key
    assert all(make_exchange("e", kind).caches_by_key for kind in ("direct", "fanout", "topic"))
    by_header = make_exchange("e", "x-consistent-hash", arguments={"hash-header": "h"})
    assert not by_header.caches_by_key


def test_alternate_serves_only_where_nothing_is_found() -> None:
    first, second, third = (make_exchange(name, "direct") for name in ("a", "b", "c"))
    names = {"a": first, "b": second, "c": third}
    first.alternate, second.alternate, third.alternate = "b", "c", "a"
    bind(first, "q1", b"x")
    bind(third, "q3", b"y")
    assert resolve(first, [b"x"], None, None, names.get) == ["q1"]
    assert resolve(first, [b"y"], None, None, names.get) == ["q3"]
    assert resolve(first, [b"x", b"y"], None, None, names.get) == ["q1"]
    assert resolve(first, [b"none"], None, None, names.get) == []
    third.alternate = "missing"
    assert resolve(first, [b"none"], None, None, names.get) == []


def test_alternate_is_not_asked_where_an_exchange_was_found() -> None:
    first, dead_end, spare = (make_exchange(name, "fanout") for name in ("a", "b", "c"))
    first.alternate = "c"
    bind(first, dead_end)
    bind(spare, "q")
    assert resolve(first, [b""], None, None, {"c": spare}.get) == []


def test_cycles_end_and_each_queue_is_given_once() -> None:
    first, second = make_exchange("a", "fanout"), make_exchange("b", "topic")
    bind(first, second)
    bind(first, first)
    bind(second, first, b"#")
    bind(first, "q1")
    bind(second, "q1", b"#")
    bind(second, "q2", b"*")
    assert resolve(first, [b"k"], None, None, lambda _: None) == ["q1", "q2"]
    assert resolve(second, [b"k", b"l"], None, None, lambda _: None) == ["q1", "q2"]


def test_several_keys_give_the_union() -> None:
    exchange = make_exchange("e", "direct")
    bind(exchange, "q1", b"a")
    bind(exchange, "q2", b"b")
    bind(exchange, "q2", b"c")
    assert resolve(exchange, [b"c", b"a", b"b"], None, None, lambda _: None) == ["q2", "q1"]


def test_a_queue_and_an_exchange_of_one_name_are_two_to_the_hash() -> None:
    exchange = make_exchange("e", "x-consistent-hash")
    twin = make_exchange("same", "fanout")
    bind(exchange, twin, b"1")
    bind(exchange, "same", b"1")
    found = {exchange.match(b"%d" % number, None)[0] for number in range(50)}
    assert found == {twin, "same"}
