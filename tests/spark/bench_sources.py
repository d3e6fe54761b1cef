"""What Spark itself can do: the columns of `format("warren")` from memory, with no broker."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from warren.spark.options import read_options
from warren.spark.schema import source_schema

BATCH_ROWS = 20_000
BODY_BYTES = 200


def rows_batch(count: int) -> pa.RecordBatch:
    """Messages to publish: bodies of 200 bytes that do not compress to nothing."""
    bodies = [
        (b"%016x" % (n * 2654435761 % 2**64)) * (BODY_BYTES // 16) + b"\0" * (BODY_BYTES % 16)
        for n in range(count)
    ]
    return pa.RecordBatch.from_pydict(
        {"exchange": [""] * count, "routing_key": ["bench"] * count, "body": bodies}
    )


def batches(first: int, end: int) -> Iterator[pa.RecordBatch]:
    """Rows of these positions, some at a time."""
    schema = to_arrow_schema(source_schema(read_options({})), timezone="UTC")
    made = rows_batch(BATCH_ROWS)
    now = datetime.datetime.now(datetime.UTC)
    constants: dict[str, Any] = {
        "queue": "bench", "incarnation": "i", "exchange": "", "routing_key": "bench",
        "enqueued_at": now, "delivery_mode": 2, "redelivered_hint": False, "node": "n",
        "epoch": 0,
    }  # fmt: skip
    for at in range(first, end, BATCH_ROWS):
        count = min(BATCH_ROWS, end - at)
        arrays = []
        for column in schema:
            if column.name == "seq":
                arrays.append(pa.array(range(at, at + count), pa.int64()))
            elif column.name == "body":
                arrays.append(made.column("body").slice(0, count))
            elif column.name == "headers":
                arrays.append(pa.array([[]] * count, column.type))
            elif column.name in constants:
                value = pa.scalar(constants[column.name], column.type)
                arrays.append(pa.repeat(value, count))
            else:
                arrays.append(pa.nulls(count, column.type))
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def shares(first: int, end: int, parts: int) -> list[InputPartition]:
    size = end - first
    return [
        InputPartition((first + size * n // parts, first + size * (n + 1) // parts))
        for n in range(parts)
    ]


class MemoryReader(DataSourceReader):
    """All of it in one job."""

    def __init__(self, rows: int, parts: int) -> None:
        self.rows, self.parts = rows, parts

    def partitions(self) -> Sequence[InputPartition]:
        return shares(0, self.rows, self.parts)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches(*partition.value)


class MemoryStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The same in micro-batches: what Spark takes for each of them, it takes here, too."""

    def __init__(self, rows: int, parts: int, rows_a_batch: int) -> None:
        self.rows, self.parts, self.rows_a_batch = rows, parts, rows_a_batch

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"seq": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self.rows_a_batch)

    def prepareForTriggerAvailableNow(self) -> None: ...  # noqa: N802

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        most = self.rows if isinstance(limit, ReadAllAvailable) else self.rows_a_batch
        return {"seq": min(self.rows, start["seq"] + most)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return shares(start["seq"], end["seq"], self.parts)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches(*partition.value)


class MemorySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "memory-columns"

    def schema(self) -> StructType:
        return source_schema(read_options({}))

    def reader(self, schema: StructType) -> DataSourceReader:
        return MemoryReader(int(self.options["rows"]), int(self.options["parts"]))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        given = self.options
        return MemoryStreamReader(
            int(given["rows"]), int(given["parts"]), int(given["rows_a_batch"])
        )
