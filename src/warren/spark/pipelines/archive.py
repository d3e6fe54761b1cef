"""The archive: queues into Parquet files by day and queue, each message once.

Each micro-batch writes files of its own, named after the batch, and lists them in one file of
`_batches`, which is what makes them count: a batch that is run again writes the same files anew.
Readers that know nothing of that list find the same rows, but while a batch is being written.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StringType, StructField, StructType

from warren.spark.errors import WarrenError
from warren.spark.pipelines import delta, progress
from warren.spark.pipelines.audit import shaped
from warren.spark.pipelines.interrupts import interrupts
from warren.spark.pipelines.problems import reason

CURSOR = "archive"
#: How often it is looked whether somebody wants a stream to end, in seconds.
LOOK_S = 1
#: Files that a task may have open before it begins to sort its rows by where they go.
OPEN_FILES = 16
#: What an archive has of each queue.
COUNTS = StructType(
    [
        StructField("queue", StringType()),
        StructField("incarnation", StringType()),
        StructField("messages", LongType()),
        StructField("first_seq", LongType()),
        StructField("last_seq", LongType()),
        StructField("bytes", LongType()),
    ]
)


@dataclass(frozen=True, slots=True)
class Lake:
    """The directory of an archive.

    data/dt=2026-11-18/queue=orders/batch=12/part-….parquet, _batches/12.json, _checkpoint/
    """

    path: Path
    #: `data` is to be a Delta table.
    as_delta: bool = False

    @property
    def data(self) -> Path:
        return self.path / "data"

    @property
    def checkpoint(self) -> Path:
        return self.path / "_checkpoint"

    def prepare(self) -> None:
        """Raises WarrenError when it cannot be written to; nothing was read by then."""
        try:
            (self.path / "_batches").mkdir(parents=True, exist_ok=True)
            probe = self.path / "_batches" / ".probe"
            probe.write_text("")
            probe.unlink()
        except OSError as error:
            raise WarrenError(
                f"the archive cannot be written to {self.path}: {error.strerror}; choose another "
                "place with --to. Nothing was taken out of the queues"
            ) from error
        if self.as_delta:
            delta.load_deltalake()
        if self.data.is_dir() and delta.is_delta(self.data) != self.as_delta:
            raise WarrenError(
                f"{self.path} is an archive of the other --format: go on with that, or choose "
                "another place with --to"
            )

    def written(self) -> list[dict[str, Any]]:
        """What all batches say of themselves, in order."""
        found = sorted((self.path / "_batches").glob("*.json"), key=lambda one: int(one.stem))
        return [json.loads(one.read_text()) for one in found]

    def settled(self) -> set[int]:
        """Batches that are whole, and done for Spark too: it never runs them again."""
        commits = self.checkpoint / "commits"
        done = {int(one.name) for one in commits.glob("*") if one.name.isdigit()}
        newest = max(done, default=-1)
        return {int(one["batch"]) for one in self.written() if int(one["batch"]) <= newest}

    def forget(self, batch: int) -> None:
        """Remove what there is of a batch that is not whole."""
        shutil.rmtree(self.data / "_temporary", ignore_errors=True)
        for old in self.data.glob(f"dt=*/queue=*/batch={batch}"):
            shutil.rmtree(old, ignore_errors=True)
        (self.path / "_batches" / f"{batch}.part").unlink(missing_ok=True)

    def note(self, batch: int, rows: int, **more: Any) -> None:
        place = self.path / "_batches" / f"{batch}.json"
        part = place.with_suffix(".part")
        part.write_text(json.dumps({"batch": batch, "rows": rows, **more}) + "\n")
        part.rename(place)


def day_of() -> Column:
    """The day that a message came.

    Where the broker does not know when that was, it is the day it was published, or 1970.
    """
    came = F.coalesce("enqueued_at", "published_at", F.lit("1970-01-01").cast("timestamp"))
    return F.to_date(came).cast("string")


def archived(rows: DataFrame) -> DataFrame:
    """The columns of an archive: those of the source, and the day."""
    return rows.withColumn("dt", day_of())


def counted(rows: DataFrame) -> DataFrame:
    """What there is of each queue: how many, from where to where, and whether positions lack.

    Positions lack by right where a queue has priorities, or messages were gone before the archive
    began to follow it.
    """
    found = rows.groupBy("queue", "incarnation").agg(
        F.count("*").alias("messages"),
        F.min("seq").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        F.coalesce(F.sum(F.length("body")), F.lit(0)).alias("bytes"),
    )
    return shaped(found, COUNTS).orderBy("queue", "incarnation")


def write_batch(rows: DataFrame, batch: int, lake: Lake) -> int:
    """Write a batch, in place of what an attempt before left of it; how many rows it has."""
    table = archived(rows).withColumn("batch", F.lit(batch).cast("long"))
    try:
        write = _append_to_delta if lake.as_delta else _write_files
        queues = write(table, batch, lake)
        count = sum(int(one["messages"]) for one in queues)
        lake.note(batch, count, queues=queues)
    except Exception:
        if not lake.as_delta:
            # Readers that know nothing of the list of batches are not to find half of one.
            lake.forget(batch)
        raise
    return count


def _append_to_delta(table: DataFrame, batch: int, lake: Lake) -> list[dict[str, Any]]:
    table = table.persist()
    try:
        queues = _counts(table)
        if queues:
            delta.append_batch(table, batch, lake.data)
    finally:
        table.unpersist()
    return queues


def _write_files(table: DataFrame, batch: int, lake: Lake) -> list[dict[str, Any]]:
    # Tasks that a killed driver left would be taken for this batch's own.
    lake.forget(batch)
    # A task has rows of one queue, and of a day or two: it need not sort them to write their files.
    table.sparkSession.conf.set("spark.sql.maxConcurrentOutputFileWriters", OPEN_FILES)
    table.write.mode("append").partitionBy("dt", "queue", "batch").parquet(str(lake.data))
    folders = sorted(map(str, lake.data.glob(f"dt=*/queue=*/batch={batch}")))
    if not folders:
        return []
    # What is counted is what is in the files: reading them is cheaper than keeping the rows.
    return _counts(read_files(table.sparkSession, lake.data, folders, table.schema))


def _counts(table: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in counted(table).collect()]


def read_files(
    spark: SparkSession, data: Path, places: Sequence[str], schema: StructType | None = None
) -> DataFrame:
    """Rows of some files or directories of an archive; without a schema, as the files say.

    Left to itself Spark takes a queue that is named 007 for the number 7.
    """
    reader = spark.read.option("basePath", str(data))
    if schema is None:
        # Archives grow over years: where a column was added, older files lack it.
        found = spark.read.options(basePath=str(data), mergeSchema="true").parquet(*places).schema
        queue = StructField("queue", StringType())
        schema = StructType([queue if one.name == queue.name else one for one in found.fields])
    return reader.schema(schema).parquet(*places)


def summed(batches: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The counts of several batches together, as rows of `COUNTS`."""
    found: dict[tuple[str, str], list[int]] = {}
    for one in (queue for batch in batches for queue in batch.get("queues", ())):
        key = (one["queue"], one["incarnation"])
        first, last = one["first_seq"], one["last_seq"]
        total = found.setdefault(key, [0, first, last, 0])
        total[0] += one["messages"]
        total[1], total[2] = min(total[1], first), max(total[2], last)
        total[3] += one["bytes"]
    return [(*key, *found[key]) for key in sorted(found, key=str)]


def run_archive(
    spark: SparkSession, options: dict[str, str], lake: Lake, follow: bool, interval_s: int
) -> int:
    """Until all is archived that was there, or with `follow` until it is interrupted; rows."""
    lake.prepare()
    before = sum(int(one["rows"]) for one in lake.written())

    def take(rows: DataFrame, batch: int) -> None:
        write_batch(rows, batch, lake)

    run_stream(spark, options, lake, take, follow, interval_s)
    return sum(int(one["rows"]) for one in lake.written()) - before


def run_stream(
    spark: SparkSession,
    options: dict[str, str],
    lake: Lake,
    take: Callable[[DataFrame, int], None],
    follow: bool,
    interval_s: int,
) -> None:
    """Give the queues' messages to `take`, batch by batch; a batch may be given again.

    Raises WarrenError: nothing was trimmed of a batch that failed. An interrupt is the end of one
    that follows; of others it is a KeyboardInterrupt.
    """
    from warren.spark import register

    register(spark)
    writer = (
        spark.readStream.format("warren")
        .options(**options)
        .load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(lake.checkpoint))
    )
    writer = (
        writer.trigger(processingTime=f"{interval_s} seconds")
        if follow
        else writer.trigger(availableNow=True)
    )
    query = writer.start()
    progress.measure_by(lambda: progress.rows_of(query))
    try:
        with interrupts() as wanted:
            while not query.awaitTermination(LOOK_S):
                if wanted.is_set():
                    query.stop()
                    break
    except StreamingQueryException as error:
        told = reason(str(error))
        raise WarrenError(f"{told}. Nothing was trimmed of the batch that failed") from error
    if wanted.is_set() and not follow:
        raise KeyboardInterrupt


# -- compaction ------------------------------------------------------------------------------------


def compact(spark: SparkSession, lake: Lake) -> tuple[int, int]:
    """Few large files instead of many small ones; files before and after. Raises WarrenError.

    The archive must not be written meanwhile. Days are exchanged one by one, each when it is whole:
    the new one lies beside it under a name that says so, and a run that was killed is finished by
    the next. Batches that the archive may write once more are left as they are.
    """
    if not lake.data.is_dir():
        raise WarrenError(f"there is no archive in {lake.path}")
    if delta.is_delta(lake.data):
        return delta.compact_table(lake.data)
    finish_exchange(lake)
    before = sum(1 for _ in lake.data.rglob("*.parquet"))
    settled = lake.settled()
    for day in sorted(lake.data.glob("dt=*")):
        _compact_day(spark, lake, day, settled)
    return before, sum(1 for _ in lake.data.rglob("*.parquet"))


def _compact_day(spark: SparkSession, lake: Lake, day: Path, settled: set[int]) -> None:
    chosen = [
        folder
        for folder in sorted(day.glob("queue=*/batch=*"))
        if _batch_of(folder) < 0 or _batch_of(folder) in settled
    ]
    if len([path for folder in chosen for path in folder.glob("*.parquet")]) < 2:
        return
    work, done = lake.path / "_compacting", lake.path / "_compacted"
    shutil.rmtree(work, ignore_errors=True)
    rows = read_files(spark, lake.data, [str(one) for one in chosen])
    before, count = _files(chosen), rows.count()
    ordered = rows.repartition("queue").sortWithinPartitions("queue", "seq")
    ordered.drop("dt", "batch").write.partitionBy("queue").parquet(str(work))
    written = spark.read.parquet(str(work)).count()
    if written != count or _files(chosen) != before:
        raise WarrenError(f"{day} was written to meanwhile: stop its archive first")
    # Compacted files have a negative number that none of the old ones has.
    number = min(0, *(_batch_of(folder) for folder in chosen)) - 1
    old = [str(one.relative_to(lake.path)) for one in chosen]
    said = {"day": day.name, "batch": number, "old": old}
    (work / "exchange.json").write_text(json.dumps(said) + "\n")
    # From here on the new files count: whatever happens, the next run goes on with them.
    work.rename(done)
    finish_exchange(lake)


def _batch_of(folder: Path) -> int:
    return int(folder.name.partition("=")[2])


def _files(folders: list[Path]) -> list[Path]:
    return sorted(path for folder in folders for path in folder.glob("*.parquet"))


def finish_exchange(lake: Lake) -> None:
    """Put a compacted day in the place of its old files; done again, it changes nothing."""
    done = lake.path / "_compacted"
    if not (done / "exchange.json").exists():
        shutil.rmtree(done, ignore_errors=True)
        return
    said = json.loads((done / "exchange.json").read_text())
    for old in said["old"]:
        shutil.rmtree(lake.path / old, ignore_errors=True)
    for folder in sorted(done.glob("queue=*")):
        place = lake.data / said["day"] / folder.name / f"batch={said['batch']}"
        place.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(place)
    shutil.rmtree(done)
