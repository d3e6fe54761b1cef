"""Every method against pamqp as the oracle, and against damage."""

from __future__ import annotations

import contextlib
import random
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp.commands import INDEX_MAPPING

from warren.model.errors import CommandInvalid, WireSyntaxError
from warren.wire.methods import decode_method, encode_method
from warren.wire.spec import BY_NAME, METHODS, Method

# pamqp cuts table keys at 128 bytes, AMQP only at 255: 32 characters are at most 128 bytes.
TEXT = st.text(st.characters(codec="utf-8"), max_size=32)
# Values that pamqp and this codec see alike; the types in tables have their own tests.
TABLES = st.dictionaries(
    TEXT.filter(lambda key: len(key.encode()) <= 255),
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXT | st.none(),
    max_size=4,
)
BY_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "bit": st.booleans(),
    "octet": st.integers(0, 2**8 - 1),
    "short": st.integers(0, 2**16 - 1),
    "long": st.integers(0, 2**32 - 1),
    "longlong": st.integers(0, 2**64 - 1),
    "shortstr": TEXT.filter(lambda text: len(text.encode()) <= 255),
    "longstr": TEXT.map(str.encode),
    "table": TABLES,
}


def _arguments(method: Method) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(*(BY_TYPE[kind] for _, kind in method.fields))


CALLS = st.sampled_from(list(METHODS.values())).flatmap(
    lambda method: st.tuples(st.just(method), _arguments(method))
)
# pamqp knows no class access, and takes 64 bit numbers for signed.
ORACLE_CALLS = CALLS.filter(
    lambda call: (
        call[0].key in INDEX_MAPPING
        and all(value < 2**63 for value in call[1] if isinstance(value, int))
    )
)


def _oracle(method: Method) -> Any:
    """The oracle's frame of this method, without its checks of names and reserved values."""
    base: Any = INDEX_MAPPING[method.key]
    body = {"__slots__": base.__slots__, "validate": lambda self: None}
    unchecked: Any = type(base.__name__, (base,), body)
    return unchecked.__new__(unchecked)


def test_the_oracle_lays_every_method_out_alike() -> None:
    extra = {method.name for key, method in METHODS.items() if key not in INDEX_MAPPING}
    assert extra == {"access.request", "access.request-ok"}
    frame: Any
    for key, frame in INDEX_MAPPING.items():
        types = [frame.amqp_type(name) for name in frame.__slots__]
        assert [kind for _, kind in METHODS[key].fields] == types, METHODS[key].name


@given(CALLS)
@settings(max_examples=300)
def test_methods_come_back_as_they_went(call: tuple[Method, tuple[Any, ...]]) -> None:
    method, args = call
    assert decode_method(encode_method(method, *args)) == (method, args)


@given(ORACLE_CALLS)
@settings(max_examples=300)
def test_pamqp_reads_what_is_encoded(call: tuple[Method, tuple[Any, ...]]) -> None:
    method, args = call
    frame = _oracle(method)
    frame.unmarshal(encode_method(method, *args)[4:])
    expected = [
        value.decode() if kind == "longstr" else value
        for (_, kind), value in zip(method.fields, args, strict=True)
    ]
    seen = [getattr(frame, name) for name in frame.__slots__]
    assert [v.decode() if isinstance(v, bytes) else v for v in seen] == expected


@given(ORACLE_CALLS)
@settings(max_examples=300)
def test_what_pamqp_writes_is_read(call: tuple[Method, tuple[Any, ...]]) -> None:
    method, args = call
    frame = _oracle(method)
    for name, (_, kind), value in zip(frame.__slots__, method.fields, args, strict=True):
        setattr(frame, name, value.decode() if kind == "longstr" else value)
    payload = struct.pack(">I", method.key) + frame.marshal()
    assert decode_method(payload) == (method, args)


@given(CALLS)
@settings(max_examples=150)
def test_truncation_anywhere_is_a_syntax_error(call: tuple[Method, tuple[Any, ...]]) -> None:
    payload = encode_method(call[0], *call[1])
    for cut in range(len(payload)):
        with pytest.raises(WireSyntaxError):
            decode_method(payload[:cut])
    with pytest.raises(WireSyntaxError):
        decode_method(payload + b"\0")


@given(CALLS, st.integers(0, 2**32))
@settings(max_examples=150)
def test_flipped_bytes_raise_nothing_else(call: tuple[Method, tuple[Any, ...]], seed: int) -> None:
    payload = encode_method(call[0], *call[1])
    dice = random.Random(seed)
    for _ in range(60):
        damaged = bytearray(payload)
        for _ in range(dice.randint(1, 3)):
            damaged[dice.randrange(len(damaged))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF))
        with contextlib.suppress(WireSyntaxError, CommandInvalid):
            decode_method(bytes(damaged))


@given(st.sampled_from(list(METHODS)), st.binary(max_size=60))
@settings(max_examples=500)
def test_noise_raises_nothing_else(key: int, noise: bytes) -> None:
    try:
        method, args = decode_method(struct.pack(">I", key) + noise)
    except WireSyntaxError:
        return
    assert method is METHODS[key]
    assert len(args) == len(method.fields)


@given(st.binary(max_size=255))
def test_short_strings_are_lossless(raw: bytes) -> None:
    payload = struct.pack(">I", BY_NAME["connection.blocked"].key) + bytes([len(raw)]) + raw
    method, args = decode_method(payload)
    assert encode_method(method, *args) == payload
