"""The headers index against the rule of the headers exchange, binding by binding."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from warren.routing.headers import HeadersMatcher

NAMES = st.sampled_from(["a", "b", "c", "x-a", "x-b", "x"])
SCALARS = st.sampled_from(
    [None, True, False, 0, 1, 2, 1.0, 0.0, "1", "", "v", b"1", b"v", Decimal(1)]
)
VALUES = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(NAMES, SCALARS, max_size=2)
HEADERS = st.dictionaries(NAMES, VALUES, max_size=6)
KINDS = st.sampled_from(["all", "any", "all-with-x", "any-with-x"])
ARGUMENTS = st.builds(
    lambda table, kind: table if kind is None else {**table, "x-match": kind},
    st.dictionaries(NAMES, VALUES, max_size=4),
    st.none() | KINDS,
)
DESTINATIONS = st.sampled_from(["q1", "q2", "q3"])
BINDINGS = st.lists(st.tuples(ARGUMENTS, DESTINATIONS), max_size=15)


def equal(wanted: Any, value: Any) -> bool:
    if type(wanted) is not type(value):
        return False
    if isinstance(wanted, list):
        return len(wanted) == len(value) and all(map(equal, wanted, value))
    if isinstance(wanted, dict):
        return wanted.keys() == value.keys() and all(equal(wanted[k], value[k]) for k in wanted)
    return bool(wanted == value)


def matches(arguments: dict[str, Any], headers: dict[str, Any] | None) -> bool:
    headers = headers or {}
    kind = arguments.get("x-match", "all")
    outcomes = [
        name in headers and (wanted is None or equal(wanted, headers[name]))
        for name, wanted in arguments.items()
        if name != "x-match" and (kind.endswith("-with-x") or not name.startswith("x-"))
    ]
    return all(outcomes) if kind.startswith("all") else any(outcomes)


@given(
    bindings=BINDINGS,
    messages=st.lists(st.none() | HEADERS, min_size=1, max_size=6),
    data=st.data(),
)
def test_index_equals_naive_rule(
    bindings: list[tuple[dict[str, Any], str]],
    messages: list[dict[str, Any] | None],
    data: st.DataObject,
) -> None:
    matcher = HeadersMatcher()
    bound: list[tuple[dict[str, Any], str]] = []
    for arguments, destination in bindings:
        if data.draw(st.booleans(), label="unbind first") and bound:
            victim = bound.pop(data.draw(st.integers(0, len(bound) - 1), label="victim"))
            matcher.unbind(b"", victim[0], victim[1])
        matcher.validate(b"", arguments)
        matcher.bind(b"", arguments, destination)
        bound.append((arguments, destination))
        for headers in messages:
            found = matcher.match(b"", headers)
            assert len(found) == len(set(found))
            assert set(found) == {d for a, d in bound if matches(a, headers)}
    for arguments, destination in bound:
        assert not matcher.is_empty
        matcher.unbind(b"", arguments, destination)
    assert matcher.is_empty
    assert all(matcher.match(b"", headers) == [] for headers in messages)


@given(rules=st.lists(ARGUMENTS, max_size=8), headers=HEADERS)
def test_order_is_bind_order(rules: list[dict[str, Any]], headers: dict[str, Any]) -> None:
    matcher = HeadersMatcher()
    for number, arguments in enumerate(rules):
        matcher.bind(b"", arguments, number)
    expected = [number for number, arguments in enumerate(rules) if matches(arguments, headers)]
    assert matcher.match(b"", headers) == expected
