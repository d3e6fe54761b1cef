"""When two bindings are the same, and how the management API names them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from warren.routing.binding import Binding


def binding(key: bytes = b"k", **arguments: Any) -> Binding:
    return Binding("e", "queue", "q", key, arguments)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({}, {}),
        ({"a": 1, "b": "x"}, {"b": "x", "a": 1}),
        ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}),
        ({"a": float("nan")}, {"a": float("nan")}),
        ({"a": Decimal("1.5")}, {"a": Decimal("1.5")}),
    ],
)
def test_same(left: dict[str, Any], right: dict[str, Any]) -> None:
    one, other = binding(**left), binding(**right)
    assert one == other
    assert hash(one) == hash(other)
    assert one.properties_key == other.properties_key


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({}, {"a": None}),
        ({"a": 1}, {"a": True}),
        ({"a": 1}, {"a": 1.0}),
        ({"a": 1}, {"a": "1"}),
        ({"a": "1"}, {"a": b"1"}),
        ({"a": [1]}, {"a": [True]}),
        ({"a": {"b": 0}}, {"a": {"b": False}}),
        ({"a": []}, {"a": {}}),
        ({"a": 1}, {"a": Decimal(1)}),
    ],
)
def test_different(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert binding(**left) != binding(**right)
    assert binding(**left).properties_key != binding(**right).properties_key


def test_each_name_counts() -> None:
    base = Binding("e", "queue", "q", b"k")
    others = [
        Binding("f", "queue", "q", b"k"),
        Binding("e", "exchange", "q", b"k"),
        Binding("e", "queue", "r", b"k"),
        Binding("e", "queue", "q", b"l"),
    ]
    assert all(base != other for other in others)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"", "~"),
        (b"plain.key-1_2", "plain.key-1_2"),
        (b"a b", "a+b"),
        (b"a~b/#", "a%7Eb%2F%23"),
        (b"\xff", "%FF"),
    ],
)
def test_properties_key_without_arguments(key: bytes, expected: str) -> None:
    assert binding(key).properties_key == expected


def test_properties_key_with_arguments_is_key_tilde_hash() -> None:
    key, _, digest = binding(b"a~b", x=1).properties_key.partition("~")
    assert key == "a%7Eb"
    assert len(digest) == 22
    assert binding(b"", x=1).properties_key == f"~{digest}"
