"""The codec's edges: lengths that lie, nesting, numbers that do not fit, unknown methods."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import pytest

from warren.model.errors import CommandInvalid, WireSyntaxError
from warren.wire import constants
from warren.wire.methods import decode_method, encode_method
from warren.wire.properties import decode_properties, encode_properties, replace_properties
from warren.wire.spec import BY_NAME, METHODS
from warren.wire.tables import (
    TABLE_DEPTH_MAX,
    LongBytes,
    Timestamp,
    decode_table,
    decode_value,
    encode_table,
    encode_value,
    join_entries,
    split_entries,
)


def _nested(levels: int, kind: bytes) -> bytes:
    """The entries of a table that is the outermost of `levels` tables or arrays."""
    inner = b""
    for _ in range(levels - 1):
        inner = kind + struct.pack(">I", len(inner)) + inner
        if kind == b"F":
            inner = b"\x01k" + inner
    return b"\x01k" + inner if kind == b"A" else inner


@pytest.mark.parametrize("kind", [b"F", b"A"])
def test_nesting_is_bounded(kind: bytes) -> None:
    decode_table(_nested(TABLE_DEPTH_MAX, kind))
    for levels in (TABLE_DEPTH_MAX + 1, 1000, 20_000):
        with pytest.raises(WireSyntaxError):
            decode_table(_nested(levels, kind))


def test_nesting_is_bounded_when_encoding() -> None:
    table: dict[str, Any] = {}
    for _ in range(TABLE_DEPTH_MAX - 1):
        table = {"k": table}
    assert decode_table(encode_table(table)) == table
    with pytest.raises(WireSyntaxError):
        encode_table({"k": table})
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(WireSyntaxError):
        encode_value(endless)


@pytest.mark.parametrize("length", [1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFB, 0xFFFFFFFF])
@pytest.mark.parametrize("kind", [b"S", b"x", b"A", b"F"])
def test_lengths_beyond_the_end_are_refused(kind: bytes, length: int) -> None:
    tagged = kind + struct.pack(">I", length)
    with pytest.raises(WireSyntaxError):
        decode_value(tagged)
    with pytest.raises(WireSyntaxError):
        decode_table(b"\x01k" + tagged)
    nested = b"\x01k" + tagged
    with pytest.raises(WireSyntaxError):
        decode_table(b"\x01kF" + struct.pack(">I", len(nested)) + nested + b"\x01lV")
    declare = struct.pack(">IHB", constants.QUEUE_DECLARE, 0, 0) + b"\0" + tagged[1:]
    with pytest.raises(WireSyntaxError):
        decode_method(declare)
    with pytest.raises(WireSyntaxError):
        decode_properties(struct.pack(">HHQH", 60, 0, 0, 0x2000) + tagged[1:])


def test_unknown_types_are_refused() -> None:
    known = set(b"tbBsuIilLfdDSxATFV")
    for kind in set(range(256)) - known:
        with pytest.raises(WireSyntaxError):
            decode_value(bytes([kind]) + bytes(16))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (True, b"t\x01"),
        (-1, b"I\xff\xff\xff\xff"),
        (2**31 - 1, b"I\x7f\xff\xff\xff"),
        (-(2**31), b"I\x80\0\0\0"),
        (2**31, b"l\0\0\0\0\x80\0\0\0"),
        (-(2**31) - 1, b"l\xff\xff\xff\xff\x7f\xff\xff\xff"),
        (1.5, b"d\x3f\xf8\0\0\0\0\0\0"),
        ("é", b"S\0\0\0\x02\xc3\xa9"),
        (b"\xc3", b"x\0\0\0\x01\xc3"),
        (LongBytes(b"\xc3"), b"S\0\0\0\x01\xc3"),
        (Timestamp(2**64 - 1), b"T" + b"\xff" * 8),
        (Decimal("-1.50"), b"D\x02\xff\xff\xff\x6a"),
        (Decimal("2E+3"), b"D\0\0\0\x07\xd0"),
        (None, b"V"),
        ((1,), b"A\0\0\0\x05I\0\0\0\x01"),
        ({"k": False}, b"F\0\0\0\x04\x01kt\0"),
    ],
)
def test_values_take_these_types(value: object, encoded: bytes) -> None:
    assert encode_value(value) == encoded


@pytest.mark.parametrize(
    "value",
    [
        2**63,
        -(2**63) - 1,
        Timestamp(-1),
        Timestamp(2**64),
        Decimal("NaN"),
        Decimal("-Infinity"),
        Decimal("1E+20"),
        Decimal("1E+999999"),
        Decimal("1E-256"),
        Decimal(2**31),
        "\ud800",
        {"k" * 256: 1},
        {"\ud800": 1},
    ],
)
def test_values_that_do_not_fit_are_refused(value: object) -> None:
    with pytest.raises(WireSyntaxError):
        encode_value(value)


def test_values_without_a_type_are_a_mistake_of_the_caller() -> None:
    for value in (object(), {1: 2}, {"k": {1, 2}}):
        with pytest.raises(TypeError):
            encode_value(value)


def test_the_first_of_two_equal_keys_counts() -> None:
    entries = b"\x01kI\0\0\0\x01\x01kI\0\0\0\x02"
    assert decode_table(entries) == {"k": 1}
    assert split_entries(entries) == {"k": b"I\0\0\0\x01"}


def test_only_whole_values_can_be_joined() -> None:
    assert join_entries({"k": b"V"}) == b"\x01kV"
    for broken in (b"", b"I\0", b"VV", b"?"):
        with pytest.raises(WireSyntaxError):
            join_entries({"k": broken})


def test_empty_tables_are_empty() -> None:
    assert encode_table({}) == b""
    assert decode_table(b"") == {}
    assert join_entries(split_entries(b"")) == b""


def test_unknown_methods_are_invalid_commands() -> None:
    for key in (0, 10 << 16, 60 << 16 | 999, 0xFFFFFFFF):
        with pytest.raises(CommandInvalid):
            decode_method(struct.pack(">I", key))


@pytest.mark.parametrize("args", [(-1, 0, 0), (0x10000, 0, 0), (0, 2**32, 0), (0, 2**70, 0)])
def test_numbers_that_do_not_fit_a_field_are_refused(args: tuple[int, ...]) -> None:
    with pytest.raises(WireSyntaxError):
        encode_method(BY_NAME["connection.tune"], *args)


def test_a_method_takes_all_its_arguments() -> None:
    with pytest.raises(TypeError):
        encode_method(BY_NAME["basic.ack"], 1)


def test_long_strings_may_be_given_as_text() -> None:
    method = BY_NAME["connection.secure"]
    assert decode_method(encode_method(method, "é")) == (method, ("é".encode(),))


def test_unused_bits_of_an_octet_are_ignored() -> None:
    payload = struct.pack(">IQB", constants.BASIC_ACK, 7, 0xFF)
    assert decode_method(payload)[1] == (7, True)


def test_constants_name_every_method() -> None:
    for method in METHODS.values():
        name = method.name.upper().replace(".", "_").replace("-", "_")
        assert getattr(constants, name) == method.key


def test_only_methods_with_messages_have_content() -> None:
    names = {method.name for method in METHODS.values() if method.content}
    assert names == {"basic.publish", "basic.return", "basic.deliver", "basic.get-ok"}


def test_flags_without_a_property_are_refused() -> None:
    for flags in (1, 2, 3):
        with pytest.raises(WireSyntaxError):
            decode_properties(struct.pack(">HHQH", 60, 0, 0, flags))


def test_empty_properties_are_present() -> None:
    payload = encode_properties({"content_type": "", "headers": {}, "priority": 0}, 0)
    assert decode_properties(payload) == {"content_type": "", "headers": {}, "priority": 0}


def test_properties_that_do_not_exist_or_fit_are_refused() -> None:
    payload = encode_properties({}, 0)
    with pytest.raises(TypeError):
        encode_properties({"colour": "red"}, 0)
    with pytest.raises(TypeError):
        replace_properties(payload, {"colour": "red"})
    for changes in ({"priority": 256}, {"headers": b"\x01k"}, {"type": "x" * 256}):
        with pytest.raises(WireSyntaxError):
            replace_properties(payload, changes)


def test_replacing_headers_keeps_the_types_of_others() -> None:
    entries = b"\x01ai\0\0\0\x01\x01bL\0\0\0\0\0\0\0\x02"
    payload = replace_properties(encode_properties({"headers": {}}, 9), {"headers": entries})
    kept = split_entries(payload[18:])
    kept["c"] = encode_value("new")
    changed = replace_properties(payload, {"headers": join_entries(kept), "expiration": "5"})
    assert changed[18 : 18 + len(entries)] == entries
    assert decode_properties(changed) == {
        "headers": {"a": 1, "b": 2, "c": "new"},
        "expiration": "5",
    }
