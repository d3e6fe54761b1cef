"""How long messages took, minute by minute, and the windows in which nothing was confirmed."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from warren.spark.pipelines.audit import shaped
from warren.spark.pipelines.events import QUEUE, by_message

_KEY = [
    StructField("vhost", StringType()),
    StructField("queue", StringType()),
    StructField("incarnation", LongType()),
]
MINUTES = StructType(
    [
        *_KEY,
        StructField("step", StringType()),
        StructField("minute", TimestampType()),
        StructField("n", LongType()),
        *[StructField(name, DoubleType()) for name in ("p50_ms", "p99_ms", "p999_ms", "max_ms")],
    ]
)
OUTAGES = StructType(
    [
        *_KEY,
        StructField("from_at", TimestampType()),
        StructField("to_at", TimestampType()),
        StructField("gap_ms", DoubleType()),
        StructField("old_node", StringType()),
        StructField("new_node", StringType()),
        StructField("promotions", LongType()),
        StructField("redelivered", LongType()),
        StructField("refused", LongType()),
    ]
)
HISTOGRAM = StructType(
    [
        StructField("step", StringType()),
        StructField("class", LongType()),
        StructField("n", LongType()),
    ]
)
#: Classes of a histogram for each power of ten; what took less than this is in its first.
CLASSES = 3
LEAST_MS = 0.01
#: Name of a step -> the events that it goes from and to.
STEPS = {
    "publish to confirm": ("publish", "confirm"),
    "publish to deliver": ("publish", "deliver"),
    "deliver to ack": ("deliver", "ack"),
}
#: So long after an outage what comes again still belongs to it.
AFTERMATH_S = 5


def _ms(later: Column, earlier: Column) -> Column:
    return (F.unix_micros(later) - F.unix_micros(earlier)) / 1000.0


def times(events: DataFrame) -> DataFrame:
    """When each message first was published, confirmed, delivered and acknowledged."""
    wanted = ("publish", "confirm", "deliver", "ack")
    firsts = [F.min(F.when(F.col("event") == name, F.col("at"))).alias(name) for name in wanted]
    return (
        by_message(events.where(F.col("event").isin(*wanted))).groupBy(*QUEUE, "seq").agg(*firsts)
    )


def steps(found: DataFrame) -> DataFrame:
    """A row for each step that a message has made; `found` as `times` makes it."""
    pieces = [
        F.struct(F.lit(name).alias("step"), _ms(F.col(to), F.col(start)).alias("ms"))
        for name, (start, to) in STEPS.items()
    ]
    return (
        found.select(*QUEUE, "publish", F.explode(F.array(*pieces)).alias("it"))
        .select(*QUEUE, "publish", "it.step", "it.ms")
        .where(F.col("ms").isNotNull() & F.col("publish").isNotNull())
    )


def percentiles(made: DataFrame, step_s: int) -> DataFrame:
    """Of each step for each queue and so many seconds of publishing; `made` as by `steps`."""
    # Exact ones: a journal of a day fits, and nobody has to wonder about the digits.
    points = F.percentile("ms", F.array(F.lit(0.5), F.lit(0.99), F.lit(0.999)))
    grouped = made.groupBy(*QUEUE, "step", beginning(F.col("publish"), step_s).alias("minute")).agg(
        F.count("*").alias("n"), points.alias("p"), F.max("ms").alias("max_ms")
    )
    named = grouped.withColumns(
        {"p50_ms": F.col("p")[0], "p99_ms": F.col("p")[1], "p999_ms": F.col("p")[2]}
    )
    return shaped(named, MINUTES).orderBy(*QUEUE, "step", "minute")


def per_minute(events: DataFrame) -> DataFrame:
    """Percentiles of each step for each queue and minute of publishing."""
    return percentiles(steps(times(events)), 60)


def overall() -> Column:
    """The median and p99 of a group of `steps`."""
    return F.percentile("ms", F.array(F.lit(0.5), F.lit(0.99)))


def histogram(made: DataFrame) -> DataFrame:
    """How many messages took how long, in classes from 1, 2 and 5 of each power of ten on."""
    ms = F.greatest(F.col("ms"), F.lit(LEAST_MS))
    power = F.floor(F.log10(ms))
    within = ms / F.pow(F.lit(10.0), power)
    place = power * CLASSES + F.when(within < 2, 0).when(within < 5, 1).otherwise(2)
    grouped = made.groupBy("step", place.cast("long").alias("class")).agg(F.count("*").alias("n"))
    return shaped(grouped, HISTOGRAM).orderBy("step", "class")


def class_from(number: int) -> float:
    """Where a class of the histogram begins, in ms."""
    power, place = divmod(number, CLASSES)
    return float((1, 2, 5)[place] * 10.0**power)


def outages(events: DataFrame, threshold_ms: int) -> DataFrame:
    """Windows between two confirms of a queue that are longer than this, while it was in use.

    In use: something was published in the window, or the queue has got another master.
    """
    in_order = Window.partitionBy(*QUEUE).orderBy("at", "seq")
    gaps = (
        events.where(F.col("event") == "confirm")
        .withColumn("from_at", F.lag("at").over(in_order))
        .withColumn("old_node", F.lag("node").over(in_order))
        .withColumn("gap_ms", _ms(F.col("at"), F.col("from_at")))
        .where(F.col("gap_ms") > threshold_ms)
        .select(
            *QUEUE,
            "from_at",
            F.col("at").alias("to_at"),
            "gap_ms",
            "old_node",
            F.col("node").alias("new_node"),
        )
    )
    about = events.where(
        F.col("event").isin("publish", "promote", "refuse")
        | ((F.col("event") == "deliver") & F.col("redelivered"))
    ).select(*QUEUE, F.col("at").alias("t"), "event", "count")
    end = F.when(
        F.col("event") == "deliver", F.col("to_at") + F.expr(f"interval {AFTERMATH_S} seconds")
    )
    inside = (F.col("t") > F.col("from_at")) & (F.col("t") < F.coalesce(end, F.col("to_at")))

    def total(name: str) -> Column:
        return F.sum(F.when(F.col("event") == name, F.col("count")).otherwise(0))

    found = (
        gaps.join(about, [*QUEUE], "left")
        .where(inside)
        .groupBy(*gaps.columns)
        .agg(
            total("publish").alias("published"),
            total("promote").alias("promotions"),
            total("deliver").alias("redelivered"),
            total("refuse").alias("refused"),
        )
        .where((F.col("published") > 0) | (F.col("promotions") > 0))
    )
    return shaped(found, OUTAGES).orderBy(*QUEUE, "from_at")


def beginning(at: Column, step_s: int) -> Column:
    """Of the stretch of so many seconds that a time lies in."""
    return F.timestamp_seconds((F.floor(F.unix_seconds(at) / step_s) * step_s).cast("long"))


def per_second(events: DataFrame) -> DataFrame:
    """How many messages each kind of event was about, second by second: for the plots."""
    kinds = ("publish", "confirm", "deliver", "ack")
    # First by the name of the event, then side by side: the journal is large, its seconds are few.
    narrow = (
        events.where(F.col("event").isin(*kinds))
        .groupBy(beginning(F.col("at"), 1).alias("second"), "event")
        .agg(F.sum("count").alias("n"))
    )
    sums = [
        F.sum(F.when(F.col("event") == kind, F.col("n")).otherwise(0)).cast("long").alias(kind)
        for kind in kinds
    ]
    return narrow.groupBy("second").agg(*sums).orderBy("second")
