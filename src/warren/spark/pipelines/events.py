"""The events of all nodes as one table, and the shapes that several pipelines make of it."""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from warren.spark.errors import WarrenError
from warren.spark.journal_files import removed_until, segments

#: A row is `count` messages at following positions from `seq` on.
EVENTS = StructType(
    [
        StructField("at", TimestampType()),
        StructField("node", StringType()),
        StructField("vhost", StringType()),
        StructField("queue", StringType()),
        StructField("incarnation", LongType()),
        StructField("epoch", IntegerType()),
        StructField("event", StringType()),
        StructField("seq", LongType()),
        StructField("count", IntegerType()),
        StructField("bytes", LongType()),
        StructField("redelivered", BooleanType()),
        StructField("no_ack", BooleanType()),
        StructField("dead_lettered", BooleanType()),
        StructField("peer", StringType()),
        StructField("in_sync", BooleanType()),
    ]
)
#: What tells a queue from all others.
QUEUE = ("vhost", "queue", "incarnation")
#: Positions of a block; no row of the journal goes beyond one.
BLOCK = 65_536
#: Bits of a position below its priority level.
LEVEL_SHIFT = 55
#: What ends a message's time in its queue; a delivery that nobody acknowledges does so too.
GONE = ("ack", "reject", "expire", "drop", "limit", "purge", "drain")


#: What happens to a queue as a whole, or to none: their positions are not those of messages.
NO_MESSAGE = ("promote", "depose", "sync", "copy", "position", "return", "delete")


def is_gone() -> Column:
    return F.col("event").isin(*GONE) | ((F.col("event") == "deliver") & F.col("no_ack"))


def block_of(seq: Column) -> Column:
    return F.shiftright(seq, 16)


def level_of(seq: Column) -> Column:
    return F.shiftright(seq, LEVEL_SHIFT)


def by_message(events: DataFrame) -> DataFrame:
    """A row for each message of each row; `seq` is its own position."""
    last = F.col("seq") + F.col("count") - 1
    return events.withColumn("seq", F.explode(F.sequence(F.col("seq"), last)))


def whole_since(directories: Sequence[Path]) -> datetime.datetime | None:
    """From when on no journal has made room by removing segments; None: none ever has."""
    found = [removed_until(directory) for directory in directories]
    return max((until for until in found if until is not None), default=None)


@contextmanager
def read_events(spark: SparkSession, directories: Sequence[Path]) -> Iterator[DataFrame]:
    """The journals of several nodes; valid inside the `with` only. Raises WarrenError."""
    with tempfile.TemporaryDirectory(prefix="warren-journal") as scratch:
        files = [
            str(path) for directory in directories for path in segments(directory, Path(scratch))
        ]
        if not files:
            places = ", ".join(str(directory) for directory in directories)
            raise WarrenError(
                f"there are no events in {places}: is journal.enabled set, and was there traffic?"
            )
        yield spark.read.schema(EVENTS).parquet(*files)
