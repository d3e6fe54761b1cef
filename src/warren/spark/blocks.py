"""Blocks of columns, from the broker into Arrow and back, without touching single rows."""

from __future__ import annotations

import json
import struct
from typing import Any

import pyarrow as pa

MAGIC = b"WARRENB1"
_HEAD = struct.Struct("<8sII")
#: Columns whose values come from the block, by the type they have in Arrow.
_TYPES: dict[str, pa.DataType] = {
    "seq": pa.int64(),
    "exchange": pa.string(),
    "routing_key": pa.string(),
    "enqueued_at": pa.timestamp("us", "UTC"),
    "published_at": pa.timestamp("us", "UTC"),
    "message_id": pa.string(),
    "correlation_id": pa.string(),
    "content_type": pa.string(),
    "delivery_mode": pa.int8(),
    "priority": pa.int8(),
    "expiration": pa.string(),
    "redelivered_hint": pa.bool_(),
    "body": pa.binary(),
}
_KINDS = {
    "exchange": "text",
    "routing_key": "text",
    "body": "bytes",
    "message_id": "text",
    "correlation_id": "text",
    "content_type": "text",
    "expiration": "text",
    "delivery_mode": "i8",
    "priority": "i8",
    "published_at": "i64",
    "headers": "map",
}


class BadBlock(ValueError):
    """What came is no block."""


class Block:
    """A block of messages as it came from the broker."""

    def __init__(self, data: bytes) -> None:
        if len(data) < _HEAD.size:
            raise BadBlock("the answer is no block of messages")
        magic, length, self.rows = _HEAD.unpack_from(data)
        if magic != MAGIC:
            raise BadBlock("the answer is no block of messages")
        try:
            self.head: dict[str, Any] = json.loads(data[_HEAD.size : _HEAD.size + length])
        except ValueError as error:
            raise BadBlock(f"the head of a block of messages cannot be read: {error}") from error
        self._base = _HEAD.size + length
        self._data = pa.py_buffer(data)
        self._columns = {name: spots for name, _kind, spots in self.head["columns"]}

    @property
    def end(self) -> int:
        """The position behind the last it speaks of."""
        return int(self.head["to"])

    def _buffer(self, spot: list[int] | None) -> pa.Buffer | None:
        if spot is None:
            return None
        at, size = spot
        if self._base + at + size > self._data.size:
            raise BadBlock("a block of messages is cut short")
        return self._data.slice(self._base + at, size)

    def column(self, name: str, kind: pa.DataType) -> pa.Array:
        """A column as Arrow has it; nulls where the block has none."""
        spots = self._columns.get(name)
        if spots is None:
            return pa.nulls(self.rows, kind)
        if name == "headers":
            return self._headers(spots, kind)
        valid, offsets, values = (self._buffer(spot) for spot in spots)
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            return pa.Array.from_buffers(kind, self.rows, [valid, offsets, values])
        return pa.Array.from_buffers(kind, self.rows, [valid, values])

    def _headers(self, spots: list[Any], kind: pa.DataType) -> pa.Array:
        entries = int(self.head["entries"])
        _, offsets, key_offsets, keys, valid, value_offsets, values = (
            self._buffer(spot) for spot in spots
        )
        key_array = pa.Array.from_buffers(pa.string(), entries, [None, key_offsets, keys])
        value_array = pa.Array.from_buffers(pa.string(), entries, [valid, value_offsets, values])
        entry_type = pa.struct([kind.key_field, kind.item_field])
        pairs = pa.Array.from_buffers(
            entry_type, entries, [None], children=[key_array, value_array]
        )
        return pa.Array.from_buffers(kind, self.rows, [None, offsets], children=[pairs])


def to_batch(block: Block, schema: pa.Schema, constants: dict[str, Any]) -> pa.RecordBatch:
    """A record batch of the schema; what is the same in all rows is in `constants`."""
    arrays = []
    for column in schema:
        if column.name in constants:
            value = constants[column.name]
            arrays.append(pa.repeat(pa.scalar(value, column.type), block.rows))
        else:
            arrays.append(block.column(column.name, column.type))
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    try:
        batch.validate()
    except pa.ArrowInvalid as error:
        raise BadBlock(f"a block of messages is damaged: {error}") from error
    return batch


# -- the other way ---------------------------------------------------------------------------------


def _flat(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The array in the type that blocks have, beginning at its buffers' start."""
    if array.type != kind:
        array = array.cast(kind)
    if array.offset:
        array = pa.concat_arrays([array])
    return array


def _text_buffers(array: pa.Array) -> list[pa.Buffer | None]:
    valid, offsets, values = array.buffers()
    if offsets is None:
        offsets = pa.py_buffer(b"\0" * 4)
    return [valid if array.null_count else None, offsets, values or pa.py_buffer(b"")]


def _map_buffers(array: pa.Array) -> tuple[list[pa.Buffer | None], int]:
    """Maps of text to text; where there is none, an empty one."""
    kind = pa.map_(pa.string(), pa.string())
    if array.type != kind:
        array = array.cast(kind)
    keys, items = array.keys, array.items
    # Whatever the array was a slice of, its offsets are counted anew.
    offsets = array.offsets
    first = offsets[0].as_py() if len(offsets) else 0
    if first:
        offsets = pa.compute.subtract(offsets, pa.scalar(first, pa.int32()))
    last = offsets[len(offsets) - 1].as_py() if len(offsets) else 0
    keys = _flat(keys.slice(0, last) if len(keys) != last else keys, pa.string())
    items = _flat(items.slice(0, last) if len(items) != last else items, pa.string())
    offsets = pa.concat_arrays([offsets])
    return [None, offsets.buffers()[1], *_text_buffers(keys)[1:], *_text_buffers(items)], last


def from_batch(batch: pa.RecordBatch) -> bytes:
    """A block of the columns of a batch that make a message."""
    columns: list[tuple[str, str, list[pa.Buffer | None]]] = []
    entries = 0
    for name, kind in _KINDS.items():
        at = batch.schema.get_field_index(name)
        if at < 0:
            continue
        array = batch.column(at)
        buffers: list[pa.Buffer | None]
        if kind == "map":
            buffers, entries = _map_buffers(array)
        elif kind in {"text", "bytes"}:
            buffers = _text_buffers(_flat(array, _TYPES[name]))
        else:
            flat = _flat(array, _TYPES[name])
            valid, values = flat.buffers()
            buffers = [valid if flat.null_count else None, None, values]
        columns.append((name, kind, buffers))
    places: list[list[list[int] | None]] = []
    pieces: list[Any] = []
    at = 0
    for _, _, buffers in columns:
        spots: list[list[int] | None] = []
        for buffer in buffers:
            if buffer is None:
                spots.append(None)
                continue
            spots.append([at, buffer.size])
            pieces.append(memoryview(buffer))
            padding = -buffer.size % 8
            pieces.append(b"\0" * padding)
            at += buffer.size + padding
        places.append(spots)
    listed = [[n, k, spots] for (n, k, _), spots in zip(columns, places, strict=True)]
    head = json.dumps({"columns": listed, "entries": entries}).encode()
    head += b" " * (-len(head) % 8)
    return b"".join((_HEAD.pack(MAGIC, len(head), batch.num_rows), head, *pieces))
