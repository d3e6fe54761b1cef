"""Field tables against pamqp as the oracle, and against damage of every kind."""

from __future__ import annotations

import contextlib
import math
import random
import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pamqp.decode
import pamqp.encode
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warren.model.errors import WireSyntaxError
from warren.wire.tables import (
    LongBytes,
    Timestamp,
    decode_table,
    decode_value,
    encode_table,
    encode_value,
    join_entries,
    split_entries,
)

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=32)
KEYS = TEXT.filter(lambda key: len(key.encode()) <= 255)
NOT_UTF8 = st.binary(max_size=20).map(lambda raw: LongBytes(raw + b"\xff"))
DECIMALS = st.builds(
    lambda unscaled, scale: Decimal(unscaled).scaleb(-scale),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 255),
)
SCALARS = st.one_of(
    st.booleans(),
    INT64,
    st.floats(allow_nan=False),
    TEXT,
    st.binary(max_size=40),
    NOT_UTF8,
    st.integers(0, 2**64 - 1).map(Timestamp),
    DECIMALS,
    st.none(),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
TABLES = st.dictionaries(KEYS, VALUES, max_size=6)

# One value of each of RabbitMQ's types, as raw tagged bytes.
RAW_SCALARS = st.one_of(
    st.sampled_from(b"tbB").flatmap(lambda t: st.binary(min_size=1, max_size=1).map(_tag(t))),
    st.sampled_from(b"su").flatmap(lambda t: st.binary(min_size=2, max_size=2).map(_tag(t))),
    st.sampled_from(b"Iif").flatmap(lambda t: st.binary(min_size=4, max_size=4).map(_tag(t))),
    st.sampled_from(b"lLdT").flatmap(lambda t: st.binary(min_size=8, max_size=8).map(_tag(t))),
    st.binary(min_size=5, max_size=5).map(lambda raw: b"D" + raw),
    st.sampled_from(b"Sx").flatmap(lambda t: st.binary(max_size=30).map(_tag_long(t))),
    st.just(b"V"),
)


def _tag(kind: int) -> Any:
    return lambda raw: bytes([kind]) + raw


def _tag_long(kind: int) -> Any:
    return lambda raw: bytes([kind]) + struct.pack(">I", len(raw)) + raw


def _types(value: object) -> object:
    """The value with every leaf replaced by its type: 1, True and 1.0 are equal, these are not."""
    if isinstance(value, dict):
        return {key: _types(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_types(item) for item in value]
    return type(value)


def _for_pamqp(value: Any) -> Any:
    """What pamqp decodes where this codec decodes `value`."""
    if isinstance(value, dict):
        return {key: _for_pamqp(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_for_pamqp(item) for item in value]
    if isinstance(value, Timestamp):
        return datetime.fromtimestamp(value, tz=UTC)
    return value


@given(TABLES)
def test_tables_come_back_as_they_went(table: dict[str, Any]) -> None:
    decoded = decode_table(encode_table(table))
    assert decoded == table
    assert _types(decoded) == _types(table)
    assert list(decoded) == list(table)


@given(VALUES)
def test_values_come_back_as_they_went(value: Any) -> None:
    decoded = decode_value(encode_value(value))
    assert decoded == value
    assert _types(decoded) == _types(value)


# pamqp takes large timestamps for milliseconds, and reads decimals unsigned but writes them signed.
PAMQP_READS = st.recursive(
    st.one_of(
        st.booleans(),
        INT64,
        st.floats(allow_nan=False),
        TEXT,
        st.binary(max_size=30),
        st.integers(0, 2**32 - 1).map(Timestamp),
        st.builds(
            lambda n, scale: Decimal(n).scaleb(-scale),
            st.integers(0, 2**31 - 1),
            st.integers(0, 9),
        ),
        st.none(),
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(KEYS, PAMQP_READS, max_size=6))
def test_pamqp_reads_what_is_encoded(table: dict[str, Any]) -> None:
    entries = encode_table(table)
    consumed, decoded = pamqp.decode.field_table(struct.pack(">I", len(entries)) + entries)
    assert consumed == len(entries) + 4
    assert decoded == _for_pamqp(table)


PAMQP_WRITES = st.recursive(
    st.one_of(
        st.booleans(),
        INT64,
        st.floats(width=32, allow_nan=False),
        TEXT,
        st.binary(max_size=30).map(bytearray),
        st.integers(0, 2**32 - 1).map(lambda seconds: datetime.fromtimestamp(seconds, tz=UTC)),
        st.builds(
            lambda n, scale: Decimal(n).scaleb(-scale),
            st.integers(-(2**31), 2**31 - 1),
            st.integers(0, 255),
        ),
        st.none(),
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(KEYS, PAMQP_WRITES, max_size=6))
def test_what_pamqp_writes_is_read(table: dict[str, Any]) -> None:
    encoded = pamqp.encode.field_table(table)
    assert _for_pamqp(decode_table(encoded[4:])) == table


@given(RAW_SCALARS)
def test_every_type_is_read_as_struct_reads_it(tagged: bytes) -> None:
    formats = {"b": ">b", "B": ">B", "s": ">h", "u": ">H", "I": ">i", "i": ">I", "l": ">q"}
    formats |= {"L": ">q", "f": ">f", "d": ">d", "T": ">Q"}
    decoded = decode_value(tagged)
    kind, raw = chr(tagged[0]), tagged[1:]
    if kind in formats:
        (expected,) = struct.unpack(formats[kind], raw)
        assert decoded == expected or (math.isnan(expected) and math.isnan(decoded))  # type: ignore[arg-type]
    elif kind == "t":
        assert decoded is (raw != b"\0")
    elif kind == "D":
        (unscaled,) = struct.unpack(">i", raw[1:])
        assert decoded == Decimal(unscaled).scaleb(-raw[0])
    elif kind == "x":
        assert type(decoded) is bytes
        assert decoded == raw[4:]
    elif kind == "S":
        text = decoded.encode() if isinstance(decoded, str) else decoded
        assert text == raw[4:]
        assert isinstance(decoded, str | LongBytes)
    else:
        assert decoded is None


@given(st.dictionaries(st.binary(max_size=255), RAW_SCALARS, max_size=6))
def test_splitting_and_joining_keeps_every_byte(raw: dict[bytes, bytes]) -> None:
    entries = b"".join(bytes([len(key)]) + key + value for key, value in raw.items())
    parts = split_entries(entries)
    assert join_entries(parts) == entries
    assert [key.encode("utf-8", "surrogateescape") for key in parts] == list(raw)
    assert list(parts.values()) == list(raw.values())


@given(TABLES, KEYS, RAW_SCALARS)
def test_editing_one_entry_leaves_the_others(table: dict[str, Any], key: str, raw: bytes) -> None:
    before = split_entries(encode_table(table))
    after = split_entries(join_entries({**before, key: raw}))
    assert after.pop(key) == raw
    before.pop(key, None)
    assert after == before


@given(TABLES)
@settings(max_examples=60)
def test_truncation_anywhere_is_a_syntax_error_or_a_shorter_table(table: dict[str, Any]) -> None:
    entries = encode_table(table)
    parts = split_entries(entries)
    boundaries = {0}
    for key, value in parts.items():
        boundaries.add(max(boundaries) + 1 + len(key.encode()) + len(value))
    for cut in range(len(entries) + 1):
        for decode in (decode_table, split_entries):
            if cut in boundaries:
                assert list(decode(entries[:cut])) == list(parts)[: len(decode(entries[:cut]))]
            else:
                with pytest.raises(WireSyntaxError):
                    decode(entries[:cut])


@given(VALUES)
@settings(max_examples=60)
def test_a_cut_value_is_a_syntax_error(value: Any) -> None:
    tagged = encode_value(value)
    for cut in range(len(tagged)):
        with pytest.raises(WireSyntaxError):
            decode_value(tagged[:cut])
    with pytest.raises(WireSyntaxError):
        decode_value(tagged + b"\0")


@given(TABLES, st.integers(0, 2**32))
@settings(max_examples=100)
def test_flipped_bytes_raise_nothing_else(table: dict[str, Any], seed: int) -> None:
    entries = encode_table(table)
    dice = random.Random(seed)
    for _ in range(60 if entries else 0):
        damaged = bytearray(entries)
        for _ in range(dice.randint(1, 3)):
            damaged[dice.randrange(len(damaged))] = dice.choice((0, 0x7F, 0x80, 0xFF, *b"FASx"))
        try:
            decoded = decode_table(bytes(damaged))
        except WireSyntaxError:
            continue
        # What is accepted can be passed on.
        assert repr(decode_table(encode_table(decoded))) == repr(decoded)


@given(st.binary(max_size=80))
@settings(max_examples=500)
def test_noise_raises_nothing_else(noise: bytes) -> None:
    for decode in (decode_table, decode_value, split_entries):
        with contextlib.suppress(WireSyntaxError):
            decode(noise)
