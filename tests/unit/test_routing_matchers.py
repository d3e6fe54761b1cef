"""The corner cases of the matchers by name."""

from __future__ import annotations

from typing import Any

import pytest

from warren.model.errors import PreconditionFailed
from warren.routing.consistent_hash import ConsistentHashMatcher
from warren.routing.headers import HeadersMatcher
from warren.routing.topic import TopicMatcher


@pytest.mark.parametrize(
    ("pattern", "matching", "failing"),
    [
        (b"", [b""], [b"a", b"."]),
        (b"#", [b"", b"a", b"a.b", b".", b".."], []),
        (b"*", [b"a", b"*", b"#"], [b"", b".", b"a.b"]),
        (b"#.#", [b"", b"a", b"a.b.c"], []),
        (b"*.#", [b"a", b"a.b"], [b""]),
        (b"#.*", [b"a", b"a.b"], [b""]),
        (b"#.a", [b"a", b"b.a", b".a"], [b"", b"a.b"]),
        (b"a.#", [b"a", b"a.", b"a.b.c"], [b"", b"b.a", b".a"]),
        (b"a.#.b", [b"a.b", b"a.x.b", b"a.b.b"], [b"a", b"b", b"a.b.c"]),
        (b"#.a.#.a.#", [b"a.a", b"x.a.a", b"a.x.a.y"], [b"a", b"x.a.y"]),
        (b"a..b", [b"a..b"], [b"a.b", b"a.x.b"]),
        (b"a.*.b", [b"a..b", b"a.x.b"], [b"a.b"]),
        (b".", [b"."], [b"", b".."]),
        (b"a*", [b"a*"], [b"ab", b"a"]),
        (b"a#b.#", [b"a#b", b"a#b.c"], [b"ab"]),
    ],
)
def test_topic(pattern: bytes, matching: list[bytes], failing: list[bytes]) -> None:
    matcher = TopicMatcher()
    matcher.bind(pattern, {}, "q")
    assert [key for key in matching if matcher.match(key, None) != ["q"]] == []
    assert [key for key in failing if matcher.match(key, None) != []] == []


def test_topic_gives_a_destination_once_in_bind_order() -> None:
    matcher = TopicMatcher()
    for pattern, destination in [(b"*", "b"), (b"#", "a"), (b"k", "c"), (b"k", "a"), (b"k.#", "b")]:
        matcher.bind(pattern, {}, destination)
    assert matcher.match(b"k", None) == ["b", "a", "c"]


def test_unbinding_what_is_not_bound_is_refused() -> None:
    matcher = TopicMatcher()
    matcher.bind(b"a.b", {}, "q")
    for key, destination in [(b"a", "q"), (b"a.b.c", "q"), (b"a.b", "r"), (b"", "q"), (b"#", "q")]:
        with pytest.raises(KeyError):
            matcher.unbind(key, {}, destination)
    assert matcher.match(b"a.b", None) == ["q"]


@pytest.mark.parametrize(
    ("arguments", "headers", "expected"),
    [
        ({}, None, True),
        ({"x-match": "any"}, {"a": 1}, False),
        ({"x-match": "any", "x-a": 1}, {"x-a": 1}, False),
        ({"x-match": "any-with-x", "x-a": 1}, {"x-a": 1}, True),
        ({"x-match": "all", "x-a": 1}, {}, True),
        ({"x-match": "all-with-x", "x-a": 1}, {}, False),
        ({"x-match": "all-with-x", "x-a": 1}, {"x-a": 1}, True),
        ({"a": None}, {"a": "whatever"}, True),
        ({"a": None}, {"a": None}, True),
        ({"a": None}, {}, False),
        ({"a": 1}, {"a": None}, False),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}, True),
        ({"a": 1, "b": 2, "x-match": "any"}, {"a": 0, "b": 2}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"a": "1"}, False),
        ({"a": 1}, {"a": 1.0}, False),
        ({"a": [1, 2]}, {"a": [1, 2]}, True),
    ],
)
def test_headers(arguments: dict[str, Any], headers: dict[str, Any] | None, expected: bool) -> None:
    matcher = HeadersMatcher()
    matcher.validate(b"", arguments)
    matcher.bind(b"", arguments, "q")
    assert matcher.match(b"ignored", headers) == (["q"] if expected else [])


def test_headers_same_arguments_under_two_keys_are_counted() -> None:
    matcher = HeadersMatcher()
    matcher.bind(b"k1", {"a": 1}, "q")
    matcher.bind(b"k2", {"a": 1, "x-match": "all"}, "q")
    matcher.unbind(b"k1", {"a": 1}, "q")
    assert matcher.match(b"", {"a": 1}) == ["q"]
    matcher.unbind(b"k2", {"a": 1}, "q")
    assert matcher.is_empty


@pytest.mark.parametrize(
    ("value", "explanation"),
    [
        (
            "bogus",
            'Invalid x-match field value <<"bogus">>; expected all, any, all-with-x, or any-with-x',
        ),
        (1, "Invalid x-match field type signedint (value 1); expected longstr"),
    ],
)
def test_headers_refuses_unknown_x_match(value: object, explanation: str) -> None:
    with pytest.raises(PreconditionFailed) as refusal:
        HeadersMatcher().validate(b"", {"x-match": value})
    assert refusal.value.explanation == explanation


@pytest.mark.parametrize("weight", [b"", b"a", b"1.5", b" 1", b"1_0", b"\xff", b"9" * 16, b"-"])
def test_hash_refuses_a_weight_that_is_no_integer(weight: bytes) -> None:
    with pytest.raises(PreconditionFailed, match="The binding key must be an integer"):
        ConsistentHashMatcher().validate(weight, {})


@pytest.mark.parametrize("weight", [b"0", b"-1", b"00"])
def test_hash_refuses_a_weight_below_one(weight: bytes) -> None:
    with pytest.raises(PreconditionFailed, match="must be greater than 0"):
        ConsistentHashMatcher().validate(weight, {})


def test_hash_refuses_contradicting_arguments() -> None:
    with pytest.raises(PreconditionFailed, match="mutually exclusive"):
        ConsistentHashMatcher({"hash-header": "h", "hash-property": "message_id"})
    with pytest.raises(PreconditionFailed, match="Unsupported property: app_id"):
        ConsistentHashMatcher({"hash-property": "app_id"})


def hashed(arguments: dict[str, Any] | None = None) -> ConsistentHashMatcher:
    matcher = ConsistentHashMatcher(arguments)
    for number in range(10):
        matcher.bind(b"1", {}, f"q{number}")
    return matcher


def test_hash_is_the_same_in_every_process() -> None:
    # Recorded results: a change here moves messages of running systems to other queues.
    routes = [hashed().match(b"key-%d" % number, None)[0] for number in range(8)]
    assert routes == ["q2", "q9", "q9", "q3", "q9", "q5", "q0", "q6"]


def test_hash_by_header_and_property() -> None:
    by_header = hashed({"hash-header": "h"})
    by_property = hashed({"hash-property": "message_id"})
    assert not by_header.caches_by_key
    assert not by_property.caches_by_key
    assert hashed().caches_by_key
    for number in range(20):
        text = f"key-{number}"
        expected = hashed().match(text.encode(), None)
        assert by_header.match(b"other", {"h": text}) == expected
        assert by_property.match(b"other", None, {"message_id": text}) == expected
    assert by_header.match(b"a", None) == by_header.match(b"b", {}) != []


def test_hash_counts_the_oldest_binding_of_a_destination() -> None:
    matcher = ConsistentHashMatcher()
    matcher.bind(b"1", {}, "q")
    matcher.bind(b"5", {}, "q")
    with pytest.raises(KeyError):
        matcher.unbind(b"2", {}, "q")
    matcher.unbind(b"1", {}, "q")
    assert matcher.match(b"k", None) == ["q"]
    matcher.unbind(b"5", {}, "q")
    assert matcher.is_empty
    assert matcher.match(b"k", None) == []
