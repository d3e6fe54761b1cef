"""How far mirrors were behind their masters, how much nodes and queues had to do, and which most.

Masters note five times a second how far each mirror is (`position`): `seq` is the last operation
that the mirror has on its disk, `bytes` the last one of the master's own log.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from warren.spark.pipelines.audit import shaped
from warren.spark.pipelines.events import QUEUE
from warren.spark.pipelines.latency import beginning

_KEY: list[tuple[str, DataType]] = [
    ("vhost", StringType()),
    ("queue", StringType()),
    ("incarnation", LongType()),
]


def _schema(*columns: tuple[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns])


SAMPLES = _schema(
    *_KEY,
    ("mirror", StringType()),
    ("master", StringType()),
    ("at", TimestampType()),
    ("in_sync", BooleanType()),
    ("lag_operations", LongType()),
    ("lag_ms", DoubleType()),
)
LAGS = _schema(
    *_KEY,
    ("mirror", StringType()),
    ("window", TimestampType()),
    ("samples", LongType()),
    ("lag_operations", LongType()),
    ("lag_ms", DoubleType()),
    ("in_sync", BooleanType()),
)
MIRRORS = _schema(
    *_KEY,
    ("mirror", StringType()),
    ("samples", LongType()),
    ("p99_operations", DoubleType()),
    ("max_operations", LongType()),
    ("p99_ms", DoubleType()),
    ("max_ms", DoubleType()),
    ("not_in_sync", LongType()),
    ("max_in_sync_ms", DoubleType()),
)
COPIES = _schema(
    *_KEY,
    ("mirror", StringType()),
    ("from_at", TimestampType()),
    ("to_at", TimestampType()),
    ("took_ms", DoubleType()),
    ("bytes", LongType()),
    ("done", BooleanType()),
)
RATES = _schema(
    ("window", TimestampType()),
    ("node", StringType()),
    *_KEY,
    ("event", StringType()),
    ("n", LongType()),
    ("bytes", LongType()),
    ("per_second", DoubleType()),
)
HOT_QUEUES = _schema(
    *_KEY,
    ("published", LongType()),
    ("bytes", LongType()),
    ("share_percent", DoubleType()),
    ("mean_per_second", DoubleType()),
    ("peak_per_second", DoubleType()),
    ("redelivered", LongType()),
)
HOT_KEYS = _schema(
    ("queue", StringType()),
    ("exchange", StringType()),
    ("routing_key", StringType()),
    ("n", LongType()),
    ("bytes", LongType()),
    ("share_percent", DoubleType()),
)
WINDOW_S = 10
#: So often at least masters note where their mirrors are, if they have not too many queues.
SAMPLE_MS = 1000.0
#: Events that rates are made of: each is about messages of a queue.
RATED = ("publish", "confirm", "deliver", "ack", "requeue", "reject", "expire", "drop", "refuse")


def window_of(at: Column) -> Column:
    return beginning(at, WINDOW_S)


def _millis(at: Column) -> Column:
    return F.unix_micros(at) / 1000.0


def samples(events: DataFrame) -> DataFrame:
    """How far each mirror was behind, whenever its master noted it.

    In operations of the queue's log, and in time: how long before the master was as far as the
    mirror is now. Between two notes it went evenly; what moved after a rest did so since the note
    that would have been before its own.
    """
    notes = events.where(F.col("event") == "position").select(
        *QUEUE,
        F.col("peer").alias("mirror"),
        F.col("node").alias("master"),
        "at",
        "in_sync",
        F.col("seq").alias("place"),
        F.col("bytes").alias("last"),
    )
    theirs = notes.withColumns({"index": F.col("place"), "is_master": F.lit(False)})
    own = notes.groupBy(*QUEUE, "last").agg(F.min("at").alias("at"), F.max("at").alias("until"))
    points = own.withColumns({"index": F.col("last"), "is_master": F.lit(True)})
    both = theirs.unionByName(points, allowMissingColumns=True)
    # Of equal ones the master's is before, going up, and behind it, going down: `next` is further.
    up = Window.partitionBy(*QUEUE).orderBy("index", F.desc("is_master"), "at")
    down = Window.partitionBy(*QUEUE).orderBy(F.desc("index"), "is_master", F.desc("at"))
    mine = F.col("is_master")
    reached = F.when(mine, F.struct("index", "until"))
    further = F.when(mine, F.struct("index", "at"))
    placed = both.withColumns(
        {
            "before": F.last(reached, ignorenulls=True).over(up),
            "after": F.last(further, ignorenulls=True).over(down),
            "began": F.min(F.when(mine, F.col("at"))).over(Window.partitionBy(*QUEUE)),
        }
    ).where(~mine)
    placed = placed.join(F.broadcast(_intervals(notes)), [*QUEUE], "left")
    after_ms = _millis(F.col("after.at"))
    from_ms = F.greatest(_millis(F.col("before.until")), after_ms - F.col("every_ms"))
    share = (F.col("place") - F.col("before.index")) / (
        F.col("after.index") - F.col("before.index")
    )
    reached_ms = F.when(F.col("before").isNull(), _millis(F.col("began"))).otherwise(
        from_ms + share * (after_ms - from_ms)
    )
    behind = F.col("last") > F.col("place")
    return shaped(
        placed.withColumns(
            {
                "lag_operations": F.greatest(F.col("last") - F.col("place"), F.lit(0)),
                "lag_ms": F.when(
                    behind, F.greatest(_millis(F.col("at")) - reached_ms, F.lit(0.0))
                ).otherwise(0.0),
            }
        ),
        SAMPLES,
    )


def _intervals(notes: DataFrame) -> DataFrame:
    """How often each queue was noted when something moved: the least time between two notes."""
    in_order = Window.partitionBy(*QUEUE).orderBy("at")
    times = notes.select(*QUEUE, "at").distinct()
    gap = _millis(F.col("at")) - _millis(F.lag("at").over(in_order))
    return (
        times.withColumn("gap_ms", gap)
        .groupBy(*QUEUE)
        .agg(F.least(F.min("gap_ms"), F.lit(SAMPLE_MS)).alias("every_ms"))
    )


def lag_10s(found: DataFrame) -> DataFrame:
    """The worst of each mirror in every ten seconds; `found` as `samples` makes it."""
    return worst(found, WINDOW_S)


def worst(found: DataFrame, step_s: int) -> DataFrame:
    """The same, of every so many seconds."""
    grouped = found.groupBy(*QUEUE, "mirror", beginning(F.col("at"), step_s).alias("window")).agg(
        F.count("*").alias("samples"),
        F.max("lag_operations").alias("lag_operations"),
        F.max("lag_ms").alias("lag_ms"),
        F.min("in_sync").alias("in_sync"),
    )
    return shaped(grouped, LAGS).orderBy(*QUEUE, "mirror", "window")


def per_mirror(found: DataFrame) -> DataFrame:
    """All samples of a mirror in one row, the worst first."""
    grouped = found.groupBy(*QUEUE, "mirror").agg(
        F.count("*").alias("samples"),
        F.percentile("lag_operations", F.lit(0.99)).alias("p99_operations"),
        F.max("lag_operations").alias("max_operations"),
        F.percentile("lag_ms", F.lit(0.99)).alias("p99_ms"),
        F.max("lag_ms").alias("max_ms"),
        F.count_if(~F.col("in_sync")).alias("not_in_sync"),
        F.coalesce(F.max(F.when(F.col("in_sync"), F.col("lag_ms"))), F.lit(0.0)).alias(
            "max_in_sync_ms"
        ),
    )
    return shaped(grouped, MIRRORS).orderBy(F.desc("max_ms"), *QUEUE, "mirror")


def copies(events: DataFrame) -> DataFrame:
    """Copies to mirrors that lacked something: from when to when, and whether they are in sync."""
    in_order = Window.partitionBy(*QUEUE, "peer").orderBy("at", F.col("event") == "sync")
    both = events.where(F.col("event").isin("copy", "sync"))
    began = F.when(F.lag("event").over(in_order) == "copy", F.lag("at").over(in_order))
    ended = both.withColumn("from_at", began).where(F.col("event") == "sync")
    named = ended.select(
        *QUEUE,
        F.col("peer").alias("mirror"),
        "from_at",
        F.col("at").alias("to_at"),
        (_millis(F.col("at")) - _millis(F.col("from_at"))).alias("took_ms"),
        "bytes",
        F.col("in_sync").alias("done"),
    )
    return shaped(named, COPIES).orderBy(*QUEUE, "mirror", "to_at")


def rates_10s(events: DataFrame) -> DataFrame:
    """Messages and bytes of each kind of event, for each node and queue and ten seconds."""
    grouped = (
        events.where(F.col("event").isin(*RATED))
        .groupBy(window_of(F.col("at")).alias("window"), "node", *QUEUE, "event")
        .agg(F.sum("count").alias("n"), F.sum("bytes").alias("bytes"))
        .withColumn("per_second", F.col("n") / float(WINDOW_S))
    )
    return shaped(grouped, RATES).orderBy("window", "node", *QUEUE, "event")


def hot_queues(events: DataFrame) -> DataFrame:
    """What was published to each queue, the busiest first."""
    rated = events.where(F.col("event").isin("publish", "deliver"))
    span_s = F.greatest((F.unix_micros(F.max("at")) - F.unix_micros(F.min("at"))) / 1e6, F.lit(1.0))
    span = rated.agg(span_s.alias("span_s"))
    is_publish = F.col("event") == "publish"
    again = (F.col("event") == "deliver") & F.col("redelivered")
    seconds = rated.groupBy(*QUEUE, beginning(F.col("at"), 1).alias("second")).agg(
        F.sum(F.when(is_publish, F.col("count")).otherwise(0)).alias("n"),
        F.sum(F.when(is_publish, F.col("bytes")).otherwise(0)).alias("bytes"),
        F.sum(F.when(again, F.col("count")).otherwise(0)).alias("again"),
    )
    grouped = seconds.groupBy(*QUEUE).agg(
        F.sum("n").alias("published"),
        F.sum("bytes").alias("bytes"),
        F.max("n").alias("peak_per_second"),
        F.sum("again").alias("redelivered"),
    )
    named = grouped.crossJoin(F.broadcast(span)).withColumns(
        {
            "share_percent": _percent(F.col("published")),
            "mean_per_second": F.col("published") / F.col("span_s"),
        }
    )
    return shaped(named, HOT_QUEUES).orderBy(F.desc("published"), *QUEUE)


def hot_keys(rows: DataFrame) -> DataFrame:
    """Where messages of an archive were published to, the busiest exchange and key first."""
    grouped = rows.groupBy("queue", "exchange", "routing_key").agg(
        F.count("*").alias("n"), F.sum(F.length("body")).alias("bytes")
    )
    named = grouped.withColumn("share_percent", _percent(F.col("n")))
    return shaped(named, HOT_KEYS).orderBy(F.desc("n"), "queue", "exchange", "routing_key")


def _percent(part: Column) -> Column:
    whole = F.sum(part).over(Window.partitionBy(F.lit(1)))
    return F.when(whole == 0, 0.0).otherwise(100.0 * part / whole)
