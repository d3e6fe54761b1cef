"""What Spark itself can do: the columns of `format("warren")` from memory, with no broker."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
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


class MemoryReader(DataSourceReader):
    def __init__(self, rows: int, parts: int) -> None:
        self.rows, self.parts = rows, parts

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(n) for n in range(self.parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        schema = to_arrow_schema(source_schema(read_options({})), timezone="UTC")
        made = rows_batch(BATCH_ROWS)
        now = datetime.datetime.now(datetime.UTC)
        constants: dict[str, Any] = {
            "queue": "bench", "incarnation": "i", "exchange": "", "routing_key": "bench",
            "enqueued_at": now, "delivery_mode": 2, "redelivered_hint": False, "node": "n",
            "epoch": 0,
        }  # fmt: skip
        for first in range(0, self.rows // self.parts, BATCH_ROWS):
            arrays = []
            for column in schema:
                if column.name == "seq":
                    arrays.append(pa.array(range(first, first + BATCH_ROWS), pa.int64()))
                elif column.name == "body":
                    arrays.append(made.column("body"))
                elif column.name == "headers":
                    arrays.append(pa.array([[]] * BATCH_ROWS, column.type))
                elif column.name in constants:
                    value = pa.scalar(constants[column.name], column.type)
                    arrays.append(pa.repeat(value, BATCH_ROWS))
                else:
                    arrays.append(pa.nulls(BATCH_ROWS, column.type))
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


class MemorySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "memory-columns"

    def schema(self) -> StructType:
        return source_schema(read_options({}))

    def reader(self, schema: StructType) -> DataSourceReader:
        return MemoryReader(int(self.options["rows"]), int(self.options["parts"]))
