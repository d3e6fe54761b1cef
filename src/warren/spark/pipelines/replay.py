"""The replay: rows of an archive back into an exchange, in order per queue, each once.

First the plan: the rows that were chosen are written down, in order, a file for each batch. Then
the batches are published one after the other, under the plan's own name. The broker remembers
which batches of it every queue has, so a replay that was killed goes on where it was.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import (
    AnalysisException,
    ParseException,
    PySparkException,
    StreamingQueryException,
)
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from warren.spark.errors import WarrenError
from warren.spark.pipelines import delta, progress
from warren.spark.pipelines.archive import read_files
from warren.spark.pipelines.audit import shaped
from warren.spark.pipelines.output import write_tables
from warren.spark.pipelines.problems import reason

#: What the sink of the connector takes.
MESSAGE = StructType(
    [
        StructField("exchange", StringType()),
        StructField("routing_key", StringType()),
        StructField("message_id", StringType()),
        StructField("correlation_id", StringType()),
        StructField("content_type", StringType()),
        StructField("delivery_mode", ByteType()),
        StructField("priority", ByteType()),
        StructField("published_at", TimestampType()),
        StructField("headers", MapType(StringType(), StringType())),
        StructField("body", BinaryType()),
    ]
)
PLANNED = StructType(
    [
        *MESSAGE.fields,
        StructField("batch", LongType()),
        StructField("place", LongType()),
        StructField("from_queue", StringType()),
        StructField("from_seq", LongType()),
    ]
)
#: What each batch of a plan holds.
LOG = StructType(
    [
        StructField("batch", LongType()),
        StructField("from_queue", StringType()),
        StructField("rows", LongType()),
        StructField("first_seq", LongType()),
        StructField("last_seq", LongType()),
    ]
)
REPLAYED_FROM = "x-replayed-from"


@dataclass(frozen=True, slots=True)
class Target:
    """Where messages go: one exchange, or, with none, where they were published to at first."""

    exchange: str | None = None
    routing_key: str | None = None


def plan(archive: DataFrame, target: Target, batch_rows: int) -> DataFrame:
    """The messages to be published, with the batch of each and its place in it.

    A header tells where each came from. How long messages are to live is left out: they would be
    gone before anybody sees them. A queue that was declared anew counts its messages from 0 again:
    they come after those of the one before.
    """
    began = F.min("enqueued_at").over(Window.partitionBy("queue", "incarnation"))
    in_order = Window.orderBy("queue", "began", "incarnation", "seq")
    number = F.row_number().over(in_order) - 1
    origin = F.concat_ws("/", F.col("queue"), F.col("seq").cast("string"))
    headers = F.map_concat(
        F.map_filter(
            F.coalesce("headers", F.create_map().cast("map<string,string>")),
            lambda name, _: name != REPLAYED_FROM,
        ),
        F.create_map(F.lit(REPLAYED_FROM), origin),
    )
    exchange = F.col("exchange") if target.exchange is None else F.lit(target.exchange)
    key = F.col("routing_key") if target.routing_key is None else F.lit(target.routing_key)
    numbered = archive.withColumn("began", began).withColumns({"n": number, "headers": headers})
    planned = numbered.withColumns(
        {
            "batch": F.floor(F.col("n") / batch_rows),
            "place": F.col("n") % batch_rows,
            "from_queue": F.col("queue").cast("string"),
            "from_seq": F.col("seq"),
            "exchange": exchange,
            "routing_key": key,
        }
    )
    columns = [F.col(f.name).cast(f.dataType).alias(f.name) for f in PLANNED.fields]
    return planned.select(*columns)


@dataclass(frozen=True, slots=True)
class Replay:
    """The directory of one replay: its plan, and how far it has come."""

    path: Path

    @property
    def rows(self) -> Path:
        return self.path / "rows"

    @property
    def is_planned(self) -> bool:
        return (self.path / "name").exists()

    @property
    def name(self) -> str:
        """What the broker knows the replay by."""
        return (self.path / "name").read_text().strip()

    @property
    def asked(self) -> dict[str, Any]:
        """What the plan was made of, as `write_plan` was told; empty: it was not told."""
        place = self.path / "asked.json"
        said: dict[str, Any] = json.loads(place.read_text()) if place.exists() else {}
        return said

    def write_plan(self, planned: DataFrame, asked: dict[str, Any] | None = None) -> None:
        """A file for each batch, and last the name, which says that the plan is whole."""
        self._remove_plan()
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            self._write_batches(planned)
            write_tables(self.path, {"replay_log": log_of(planned)})
            (self.path / "asked.json").write_text(json.dumps(asked or {}) + "\n")
            part = self.path / "name.part"
            part.write_text(f"replay-{uuid.uuid4().hex}\n")
            part.rename(self.path / "name")
        except Exception:
            # Where the disk is full, half of a plan would only take more of it.
            self._remove_plan()
            raise

    def _remove_plan(self) -> None:
        for folder in (self.path / "planning", self.rows, self.path / "replay_log"):
            shutil.rmtree(folder, ignore_errors=True)
        for name in ("asked.json", "name.part"):
            (self.path / name).unlink(missing_ok=True)

    def _write_batches(self, planned: DataFrame) -> None:
        beside = self.path / "planning"
        ordered = planned.repartitionByRange("batch").sortWithinPartitions("batch", "place")
        ordered.write.partitionBy("batch").option("maxRecordsPerFile", 0).parquet(str(beside))
        self.rows.mkdir()
        for folder in beside.glob("batch=*"):
            files = list(folder.glob("*.parquet"))
            if len(files) != 1:
                raise WarrenError(f"{folder} should hold one file: plan again with an empty --run")
            number = int(folder.name.partition("=")[2])
            place = self.rows / f"{number:09d}.parquet"
            files[0].rename(place)
            # Spark takes files in order of their times.
            os.utime(place, (1_000_000_000 + number, 1_000_000_000 + number))
        shutil.rmtree(beside)

    def publish(self, spark: SparkSession, options: dict[str, str], pause_s: float) -> None:
        """All batches that are not published yet, in order; one begins every `pause_s`."""
        from warren.spark import register

        register(spark)
        stored = StructType([f for f in PLANNED.fields if f.name != "batch"])
        writer = (
            spark.readStream.schema(stored)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self.rows))
            # One task a batch: what it publishes is in the order of the file.
            .coalesce(1)
            .select(*[field.name for field in MESSAGE.fields])
            .writeStream.format("warren")
            .options(**options, producer=self.name)
            .option("checkpointLocation", str(self.path / "_checkpoint"))
        )
        batches = len(list(self.rows.glob("*.parquet")))
        progress.measure_by(lambda: self._how_far(batches))
        try:
            if pause_s <= 0:
                writer.trigger(availableNow=True).start().awaitTermination()
                return
            query = writer.trigger(
                processingTime=f"{max(1, round(pause_s * 1000))} milliseconds"
            ).start()
            while not query.awaitTermination(1):
                if _committed(self.path / "_checkpoint") >= batches:
                    query.stop()
                    return
        except StreamingQueryException as error:
            raise WarrenError(reason(str(error))) from error

    def _how_far(self, batches: int) -> tuple[float, float, str]:
        done = _committed(self.path / "_checkpoint")
        return float(done), float(batches), f"batch {done:,} of {batches:,}"


def _committed(checkpoint: Path) -> int:
    """How many batches Spark has written down as done."""
    names = [one.name for one in (checkpoint / "commits").glob("*") if one.name.isdigit()]
    return max((int(name) + 1 for name in names), default=0)


def choose(spark: SparkSession, path: Path, where: str | None) -> DataFrame:
    """The rows of an archive that were chosen. Raises WarrenError."""
    try:
        data = path / "data"
        places = delta.files_of(data) if delta.is_delta(data) else [str(data)]
        rows = read_files(spark, data, places)
        return rows.where(where) if where else rows
    except ParseException as error:
        raise WarrenError(f"--where cannot be read: {str(error).splitlines()[0]}") from error
    except AnalysisException as error:
        raise WarrenError(
            f"{path} cannot be read: {str(error).splitlines()[0]}; name the directory that "
            "'warren pipeline archive --to' wrote, and its columns in --where"
        ) from error
    except PySparkException as error:
        raise WarrenError(f"{path} cannot be read: {reason(str(error))}") from error


def log_of(planned: DataFrame) -> DataFrame:
    """How many rows of which queue each batch holds, from where to where."""
    found = planned.groupBy("batch", "from_queue").agg(
        F.count("*").alias("rows"),
        F.min("from_seq").alias("first_seq"),
        F.max("from_seq").alias("last_seq"),
    )
    return shaped(found, LOG).orderBy("batch", "from_queue")
