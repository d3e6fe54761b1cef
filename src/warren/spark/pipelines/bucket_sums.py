"""Checksums of what replicas hold, a bucket of positions each, made where the messages are read.

A million messages are a few hundred rows then, and nothing of them goes through Spark. The sum of a
bucket depends on its messages alone, however the blocks were cut that they came in: each column has
hashes of its own that go on from block to block.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

#: Positions of a bucket.
BUCKET = 4096
#: What every replica has alike: all that a message consists of. When it came is noted by each node.
CONTENT = (
    "seq", "exchange", "routing_key", "published_at", "message_id", "correlation_id",
    "content_type", "delivery_mode", "priority", "expiration", "body",
)  # fmt: skip
HEADERS = "headers"
_SUM_BYTES = 8


class BucketSums:
    """Takes blocks of one queue's messages in order; `found` has (bucket, messages, checksum)."""

    def __init__(self) -> None:
        self.found: list[tuple[int, int, int]] = []
        self._bucket = -1
        self._messages = 0
        self._hashes: dict[str, Any] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        positions = batch.column(batch.schema.get_field_index("seq"))
        first = 0
        while first < batch.num_rows:
            bucket = positions[first].as_py() // BUCKET
            end = bisect_left(
                range(batch.num_rows),
                (bucket + 1) * BUCKET,
                first,
                key=lambda i: positions[i].as_py(),
            )
            if bucket != self._bucket:
                self.finish()
                self._bucket = bucket
            self._feed(batch.slice(first, end - first))
            first = end

    def finish(self) -> None:
        """What was given of the last bucket was all of it."""
        if self._messages:
            whole = hashlib.blake2b(digest_size=_SUM_BYTES)
            for name in sorted(self._hashes):
                whole.update(self._hashes[name].digest())
            checksum = int.from_bytes(whole.digest(), "little", signed=True)
            self.found.append((self._bucket, self._messages, checksum))
        self._messages, self._hashes = 0, {}

    def _feed(self, batch: pa.RecordBatch) -> None:
        self._messages += batch.num_rows
        for name in CONTENT:
            column = batch.column(batch.schema.get_field_index(name))
            for part, data in _parts(column):
                self._update(f"{name} {part}", data)
        headers = batch.column(batch.schema.get_field_index(HEADERS))
        for part, data in _map_parts(headers):
            self._update(f"{HEADERS} {part}", data)

    def _update(self, name: str, data: Any) -> None:
        held = self._hashes.get(name)
        if held is None:
            held = self._hashes[name] = hashlib.blake2b(digest_size=16)
        held.update(data)


def _parts(column: pa.Array) -> Iterator[tuple[str, Any]]:
    """The bytes of a column's values, and what tells where each ends and which are none."""
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        yield "lengths", _raw(pc.fill_null(pc.binary_length(column), -1))
        _, offsets, values = column.buffers()
        if values is not None and len(column):
            ends = memoryview(offsets).cast("i")
            yield (
                "values",
                memoryview(values)[ends[column.offset] : ends[column.offset + len(column)]],
            )
        return
    yield "known", _raw(pc.is_valid(column).cast(pa.int8()))
    number = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
    yield "values", _raw(pc.fill_null(number, 0))


def _map_parts(column: pa.Array) -> Iterator[tuple[str, Any]]:
    offsets = column.offsets
    last = len(offsets) - 1
    yield "known", _raw(pc.is_valid(column).cast(pa.int8()))
    yield "counts", _raw(pc.subtract(offsets.slice(1), offsets.slice(0, last)))
    first, end = offsets[0].as_py(), offsets[last].as_py()
    for name, entries in (("keys", column.keys), ("items", column.items)):
        for part, data in _parts(entries.slice(first, end - first)):
            yield f"{name} {part}", data


def _raw(numbers: pa.Array) -> Any:
    width = numbers.type.bit_width // 8
    held = numbers.buffers()[1]
    return memoryview(held)[numbers.offset * width : (numbers.offset + len(numbers)) * width]
