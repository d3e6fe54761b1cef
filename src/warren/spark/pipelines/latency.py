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
#: So many messages whose publishing began in a second took so many microseconds for a step.
TOOK = StructType(
    [
        *_KEY,
        StructField("step", StringType()),
        StructField("second", TimestampType()),
        StructField("us", LongType()),
        StructField("n", LongType()),
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
#: What is so near to a window in time is looked at.
NEAR_S = 10
#: Windows that every task gets a copy of.
FEW_GAPS = 100_000


def _ms(later: Column, earlier: Column) -> Column:
    return (F.unix_micros(later) - F.unix_micros(earlier)) / 1000.0


def times(events: DataFrame) -> DataFrame:
    """When each message first was published, confirmed, delivered and acknowledged."""
    wanted = ("publish", "confirm", "deliver", "ack")
    about = events.where(F.col("event").isin(*wanted))
    # Of a long journal each message is a row here: a number is a fraction of its queue's names.
    alone = Window.orderBy(*QUEUE)
    names = about.select(*QUEUE).distinct().withColumn("number", F.row_number().over(alone)).cache()
    firsts = [F.min(F.when(F.col("event") == name, F.col("at"))).alias(name) for name in wanted]
    found = (
        by_message(
            about.join(F.broadcast(names), [*QUEUE]).select("number", "event", "at", "seq", "count")
        )
        .groupBy("number", "seq")
        .agg(*firsts)
    )
    return found.join(F.broadcast(names), "number").select(*QUEUE, "seq", *wanted)


def steps(found: DataFrame) -> DataFrame:
    """How many messages of each second of publishing took how long for each step.

    `found` as `times` makes it. Many messages share a microsecond, so all that is asked of them is
    asked of far fewer rows.
    """
    pieces = [
        F.struct(
            F.lit(name).alias("step"),
            (F.unix_micros(F.col(to)) - F.unix_micros(F.col(start))).alias("us"),
        )
        for name, (start, to) in STEPS.items()
    ]
    made = (
        found.where(F.col("publish").isNotNull())
        .select(*QUEUE, beginning(F.col("publish"), 1).alias("second"), F.explode(F.array(*pieces)))
        .select(*QUEUE, "second", "col.step", "col.us")
        .where(F.col("us").isNotNull())
    )
    grouped = made.groupBy(*QUEUE, "step", "second", "us").agg(F.count("*").alias("n"))
    return shaped(grouped, TOOK)


def _points(*shares: float) -> Column:
    """Of `us`, in milliseconds.

    Exact ones: a journal of a day fits, and nobody has to wonder about the digits.
    """
    found = F.percentile("us", F.array(*map(F.lit, shares)), F.col("n"))
    return F.transform(found, lambda us: us / 1000.0)


def percentiles(made: DataFrame, step_s: int) -> DataFrame:
    """Of each step for each queue and so many seconds of publishing; `made` as by `steps`."""
    start = beginning(F.col("second"), step_s).alias("minute")
    grouped = made.groupBy(*QUEUE, "step", start).agg(
        F.sum("n").alias("n"),
        _points(0.5, 0.99, 0.999).alias("p"),
        (F.max("us") / 1000.0).alias("max_ms"),
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
    return _points(0.5, 0.99)


def histogram(made: DataFrame) -> DataFrame:
    """How many messages took how long, in classes from 1, 2 and 5 of each power of ten on."""
    ms = F.greatest(F.col("us") / 1000.0, F.lit(LEAST_MS))
    power = F.floor(F.log10(ms))
    within = ms / F.pow(F.lit(10.0), power)
    place = power * CLASSES + F.when(within < 2, 0).when(within < 5, 1).otherwise(2)
    grouped = made.groupBy("step", place.cast("long").alias("class")).agg(F.sum("n").alias("n"))
    return shaped(grouped, HISTOGRAM).orderBy("step", "class")


def class_from(number: int) -> float:
    """Where a class of the histogram begins, in ms."""
    power, place = divmod(number, CLASSES)
    return float((1, 2, 5)[place] * 10.0**power)


def gaps(events: DataFrame, threshold_ms: int) -> DataFrame:
    """The windows between two confirms of a queue that are longer than this.

    Two confirms of one stretch as long as the threshold are never further apart, so only the first
    and the last of each stretch have to be put in order, and not all confirms of a journal.
    """
    length_us = max(1, threshold_ms * 1000)
    ends = (
        events.where(F.col("event") == "confirm")
        .groupBy(*QUEUE, F.floor(F.unix_micros("at") / length_us).alias("stretch"), "node")
        .agg(F.min("at").alias("first"), F.max("at").alias("last"))
        .groupBy(*QUEUE, "stretch")
        .agg(
            F.min(F.struct("first", "node")).alias("first"),
            F.max(F.struct("last", "node")).alias("last"),
        )
    )
    before = F.lag("last").over(Window.partitionBy(*QUEUE).orderBy("stretch"))
    return (
        ends.withColumn("before", before)
        .select(
            *QUEUE,
            F.col("before.last").alias("from_at"),
            F.col("first.first").alias("to_at"),
            _ms(F.col("first.first"), F.col("before.last")).alias("gap_ms"),
            F.col("before.node").alias("old_node"),
            F.col("first.node").alias("new_node"),
        )
        .where(F.col("gap_ms") > threshold_ms)
    )


def outages(events: DataFrame, threshold_ms: int) -> DataFrame:
    """Those windows without a confirm in which a queue was in use.

    In use: something was published in the window, or the queue has got another master.
    """
    found = gaps(events, threshold_ms).cache()
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

    # By neighbourhoods: a window is compared with what was near it, not with all of its queue.
    first, last = (
        F.floor(F.unix_seconds(at) / NEAR_S)
        for at in (F.col("from_at"), F.col("to_at") + F.expr(f"interval {AFTERMATH_S} seconds"))
    )
    spread = found.withColumn("near", F.explode(F.sequence(first, last)))
    # Few as a rule, which Spark cannot know; then what they are compared with stays where it is.
    spread = F.broadcast(spread) if found.count() <= FEW_GAPS else spread
    used = (
        about.withColumn("near", F.floor(F.unix_seconds("t") / NEAR_S))
        .join(spread, [*QUEUE, "near"])
        .where(inside)
        .groupBy(*found.columns)
        .agg(
            total("publish").alias("published"),
            total("promote").alias("promotions"),
            total("deliver").alias("redelivered"),
            total("refuse").alias("refused"),
        )
        .where((F.col("published") > 0) | (F.col("promotions") > 0))
    )
    return shaped(used, OUTAGES).orderBy(*QUEUE, "from_at")


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
