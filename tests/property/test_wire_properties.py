"""Content headers against pamqp as the oracle, and against damage."""

from __future__ import annotations

import contextlib
import random
import struct
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from warren.model.errors import WireSyntaxError
from warren.wire.properties import (
    PROPERTY_NAMES,
    decode_properties,
    encode_properties,
    replace_properties,
)
from warren.wire.tables import Timestamp, decode_table, encode_table

# The oracle leaves empty strings out, so they have their own test.
# pamqp cuts table keys at 128 bytes: 32 characters are at most that.
TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=32)
HEADERS = st.dictionaries(
    TEXT.filter(lambda key: len(key.encode()) <= 255),
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXT | st.none(),
    max_size=4,
)
NUMBERS: dict[str, st.SearchStrategy[Any]] = {
    "headers": HEADERS,
    "delivery_mode": st.integers(0, 255),
    "priority": st.integers(0, 255),
    "timestamp": st.integers(0, 2**32 - 1).map(Timestamp),
}
PROPERTIES = st.fixed_dictionaries({}, optional={n: NUMBERS.get(n, TEXT) for n in PROPERTY_NAMES})
# What the oracle calls a property where it has a name of its own.
ORACLE_NAMES = {"type": "message_type"}
BODY_SIZES = st.integers(0, 2**64 - 1)
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        name: st.none()
        | (HEADERS.map(encode_table) if name == "headers" else NUMBERS.get(name, TEXT))
        for name in PROPERTY_NAMES
    },
)


@given(PROPERTIES, BODY_SIZES)
def test_properties_come_back_as_they_went(properties: dict[str, Any], size: int) -> None:
    payload = encode_properties(properties, size)
    assert struct.unpack(">HHQ", payload[:12]) == (60, 0, size)
    assert decode_properties(payload) == properties


@given(PROPERTIES, BODY_SIZES)
def test_pamqp_reads_what_is_encoded(properties: dict[str, Any], size: int) -> None:
    header: Any = ContentHeader()
    header.unmarshal(encode_properties(properties, size))
    assert (header.class_id, header.weight, header.body_size) == (60, 0, size)
    for name in PROPERTY_NAMES:
        expected = properties.get(name)
        if name == "timestamp" and expected is not None:
            expected = datetime.fromtimestamp(expected, tz=UTC)
        seen = getattr(header.properties, ORACLE_NAMES.get(name, name))
        assert (seen or None) == (expected or None), name


@given(PROPERTIES, BODY_SIZES)
def test_what_pamqp_writes_is_read(properties: dict[str, Any], size: int) -> None:
    oracle = Basic.Properties()
    for name in PROPERTY_NAMES:
        value = properties.get(name)
        if name == "timestamp" and value is not None:
            value = datetime.fromtimestamp(value, tz=UTC)
        setattr(oracle, ORACLE_NAMES.get(name, name), value)
    assert decode_properties(ContentHeader(0, size, oracle).marshal()) == properties


@given(PROPERTIES, BODY_SIZES, CHANGES)
@settings(max_examples=200)
def test_replacing_equals_encoding_anew(
    properties: dict[str, Any], size: int, changes: dict[str, Any]
) -> None:
    replaced = replace_properties(encode_properties(properties, size), changes)
    expected = {**properties, **changes}
    if isinstance(expected.get("headers"), bytes):
        expected["headers"] = decode_table(expected["headers"])
    assert replaced == encode_properties(expected, size)


@given(PROPERTIES)
def test_replacing_nothing_changes_nothing(properties: dict[str, Any]) -> None:
    payload = encode_properties(properties, 5)
    assert replace_properties(payload, {}) == payload


@given(PROPERTIES)
@settings(max_examples=100)
def test_truncation_anywhere_is_a_syntax_error(properties: dict[str, Any]) -> None:
    payload = encode_properties(properties, 5)
    for cut in range(len(payload)):
        with pytest.raises(WireSyntaxError):
            decode_properties(payload[:cut])
        with pytest.raises(WireSyntaxError):
            replace_properties(payload[:cut], {"priority": 1})
    with pytest.raises(WireSyntaxError):
        decode_properties(payload + b"\0")


@given(PROPERTIES, st.integers(0, 2**32))
@settings(max_examples=100)
def test_flipped_bytes_raise_nothing_else(properties: dict[str, Any], seed: int) -> None:
    payload = encode_properties(properties, 5)
    dice = random.Random(seed)
    for _ in range(60):
        damaged = bytearray(payload)
        for _ in range(dice.randint(1, 3)):
            damaged[dice.randrange(12, len(damaged))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF))
        try:
            decoded = decode_properties(bytes(damaged))
        except WireSyntaxError:
            continue
        assert decode_properties(encode_properties(decoded, 5)) == decoded


@given(st.binary(max_size=60))
@settings(max_examples=500)
def test_noise_raises_nothing_else(noise: bytes) -> None:
    with contextlib.suppress(WireSyntaxError):
        decode_properties(struct.pack(">HHQ", 60, 0, 1) + noise)
