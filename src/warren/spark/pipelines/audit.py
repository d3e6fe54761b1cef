"""The audit: was anything lost that had been confirmed, and did anything come twice unannounced?

First pass, cheap: for each block of 65,536 positions, three sums of what was published, confirmed,
of what left and is still held. Where they agree, every position that was confirmed has left once or
is there. Only blocks where they do not are looked at message by message.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    BooleanType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from warren.spark.pipelines.events import (
    BLOCK,
    NO_MESSAGE,
    QUEUE,
    block_of,
    by_message,
    is_gone,
    level_of,
)

_KEY = [
    StructField("vhost", StringType()),
    StructField("queue", StringType()),
    StructField("incarnation", LongType()),
]
BLOCKS = StructType(
    [
        *_KEY,
        StructField("block", LongType()),
        StructField("published", LongType()),
        StructField("confirmed", LongType()),
        StructField("gone", LongType()),
        StructField("held", LongType()),
        StructField("agrees", BooleanType()),
    ]
)
MESSAGES = StructType(
    [
        *_KEY,
        StructField("seq", LongType()),
        StructField("published", LongType()),
        StructField("confirmed", LongType()),
        StructField("gone", LongType()),
        StructField("held", BooleanType()),
        StructField("delivered", LongType()),
        StructField("redelivered", LongType()),
        StructField("adopted", BooleanType()),
        StructField("lost", StringType()),
        StructField("duplicate", BooleanType()),
        StructField("unflagged", BooleanType()),
        StructField("judged", BooleanType()),
    ]
)
QUEUES = StructType(
    [
        *_KEY,
        StructField("published", LongType()),
        StructField("confirmed", LongType()),
        StructField("gone", LongType()),
        StructField("held", LongType()),
        StructField("unjudged", LongType()),
        StructField("redelivered", LongType()),
        StructField("duplicates", LongType()),
        StructField("unflagged", LongType()),
        StructField("lost", LongType()),
        StructField("blocks", LongType()),
        StructField("looked_into", LongType()),
    ]
)


def shaped(table: DataFrame, schema: StructType) -> DataFrame:
    """The columns of a schema, in its order and types."""
    return table.select(*[F.col(f.name).cast(f.dataType).alias(f.name) for f in schema.fields])


# -- what queues hold ------------------------------------------------------------------------------


def snapshots(events: DataFrame) -> DataFrame:
    """The newest snapshot of each level of each queue: what was below `next` was judged by it."""
    rows = events.where(F.col("event") == "snapshot").withColumn("level", level_of(F.col("seq")))
    newest = F.max(F.struct("epoch", "at", "node", "seq")).alias("s")
    return (
        rows.groupBy(*QUEUE, "level")
        .agg(newest)
        .select(
            *QUEUE,
            "level",
            F.col("s.epoch").alias("snap_epoch"),
            F.col("s.at").alias("snap_at"),
            F.col("s.node").alias("snap_node"),
            F.col("s.seq").alias("next"),
        )
    )


def with_held(events: DataFrame, newest: DataFrame) -> DataFrame:
    """All events; of what queues held at some time, only what the newest snapshot says."""
    held = events.where(F.col("event") == "held").withColumn("level", level_of(F.col("seq")))
    noted = held.withColumns({"snap_node": F.col("node"), "snap_at": F.col("at")})
    same = [*QUEUE, "level", "snap_node", "snap_at"]
    kept = noted.join(F.broadcast(newest), same, "left_semi").select(*events.columns)
    return events.where(~F.col("event").isin("held", "snapshot")).unionByName(kept)


# -- the cheap pass --------------------------------------------------------------------------------


def _sums(name: str, which: Column, sign: Column | None = None) -> list[Column]:
    """Number, sum and sum of squares of the positions in their block, of rows of a kind."""
    n = F.col("count").cast("long")
    o = F.col("seq") % BLOCK
    values = {
        "n": n,
        "s": n * o + n * (n - 1) / 2,
        "q": n * o * o + o * n * (n - 1) + (n - 1) * n * (2 * n - 1) / 6,
    }
    factor = F.lit(1) if sign is None else sign
    return [
        F.sum(F.when(which, F.round(value).cast("long") * factor).otherwise(0)).alias(
            f"{name}_{letter}"
        )
        for letter, value in values.items()
    ]


def blocks(events: DataFrame) -> DataFrame:
    """One row for each block of positions; `events` as `with_held` makes them."""
    kind = F.col("event")
    unflagged = (kind == "deliver") & ~F.col("redelivered")
    sign = F.when(kind == "take-back", -1).otherwise(1)
    summed = (
        events.where(~F.col("event").isin(*NO_MESSAGE))
        .groupBy(*QUEUE, block_of(F.col("seq")).alias("block"))
        .agg(
            *_sums("p", kind == "publish"),
            *_sums("c", kind == "confirm"),
            F.count_if(kind == "adopt").alias("adopted"),
            *_sums("g", is_gone()),
            *_sums("h", kind == "held"),
            *_sums("d", unflagged | (kind == "take-back"), sign),
        )
    )
    # What a new master vouches for may have been confirmed before or not: that needs a look.
    agrees = F.col("adopted") == 0
    for letter in "nsq":
        left = F.col(f"g_{letter}") + F.col(f"h_{letter}")
        agrees &= (F.col(f"p_{letter}") == F.col(f"c_{letter}")) & (F.col(f"c_{letter}") == left)
        agrees &= F.col(f"d_{letter}") == F.col(f"p_{letter}")
    named = summed.withColumns(
        {
            "published": F.col("p_n"),
            "confirmed": F.col("c_n"),
            "gone": F.col("g_n"),
            "held": F.col("h_n"),
            "agrees": agrees,
        }
    )
    return shaped(named.where(F.col("p_n") + F.col("c_n") + F.col("g_n") > 0), BLOCKS)


# -- message by message ----------------------------------------------------------------------------


def messages(events: DataFrame, newest: DataFrame, suspicious: DataFrame) -> DataFrame:
    """What became of each message of the blocks that are suspicious."""
    about = events.where(~F.col("event").isin(*NO_MESSAGE))
    keyed = about.withColumn("block", block_of(F.col("seq")))
    chosen = keyed.join(F.broadcast(suspicious), [*QUEUE, "block"], "left_semi").drop("block")
    kind = F.col("event")
    flagged = F.col("redelivered")
    vouched = kind.isin("confirm", "adopt")

    def count(which: Column) -> Column:
        return F.count_if(which)

    facts = (
        by_message(chosen)
        .groupBy(*QUEUE, "seq")
        .agg(
            count(kind == "publish").alias("published"),
            F.greatest(count(kind == "confirm"), (count(kind == "adopt") > 0).cast("long")).alias(
                "confirmed"
            ),
            count(is_gone()).alias("gone"),
            (count(kind == "held") > 0).alias("held"),
            ((count(kind == "adopt") > 0) & (count(kind == "confirm") == 0)).alias("adopted"),
            count(kind == "deliver").alias("delivered"),
            count((kind == "deliver") & flagged).alias("redelivered"),
            (count((kind == "deliver") & ~flagged) - count(kind == "take-back")).alias("plain"),
            F.max(F.when(kind == "publish", F.col("epoch"))).alias("publish_epoch"),
            F.min(F.when(vouched, F.col("epoch"))).alias("confirm_epoch"),
            F.max(F.when(vouched, F.struct("at", "node"))).alias("confirm"),
        )
        .withColumn("level", level_of(F.col("seq")))
    )
    deleted = (
        events.where(kind == "delete").select(*QUEUE).distinct().withColumn("del", F.lit(True))
    )
    known = facts.join(F.broadcast(newest), [*QUEUE, "level"], "left").join(
        F.broadcast(deleted), [*QUEUE], "left"
    )
    return shaped(_judged(known), MESSAGES)


def _judged(known: DataFrame) -> DataFrame:
    """`lost` says how: missing, overwritten, or cut off; null: it is not."""
    below = F.coalesce(F.col("seq") < F.col("next"), F.lit(False))
    left = (F.col("gone") > 0) | F.col("held") | F.coalesce(F.col("del"), F.lit(False))
    again = (F.col("confirmed") > 1) | (
        (F.col("published") > 1) & (F.col("publish_epoch") > F.col("confirm_epoch"))
    )
    newer = (F.col("snap_epoch") > F.col("confirm_epoch")) | (
        (F.col("snap_node") == F.col("confirm.node")) & (F.col("snap_at") > F.col("confirm.at"))
    )
    lost = (
        F.when(F.col("confirmed") == 0, None)
        .when(again, "overwritten")
        .when(left, None)
        .when(below, "missing")
        .when(newer, "cut off")
    )
    return known.withColumns(
        {
            "lost": lost,
            "duplicate": F.col("gone") > 1,
            "unflagged": F.col("plain") > 1,
            "judged": left | below | lost.isNotNull() | (F.col("confirmed") == 0),
        }
    )


# -- the verdict -----------------------------------------------------------------------------------


def per_queue(events: DataFrame, found: DataFrame, judged: DataFrame) -> DataFrame:
    """One row for each queue, of the blocks and of the messages that were looked at."""
    flagged = (F.col("event") == "deliver") & F.col("redelivered")
    again = (
        events.where(flagged).groupBy(*QUEUE).agg(F.sum("count").cast("long").alias("redelivered"))
    )
    wide = found.groupBy(*QUEUE).agg(
        *[F.sum(name).alias(name) for name in ("published", "confirmed", "gone", "held")],
        F.count("*").alias("blocks"),
        F.count_if(~F.col("agrees")).alias("looked_into"),
    )
    narrow = judged.groupBy(*QUEUE).agg(
        F.count_if("adopted").alias("adopted"),
        F.count_if(~F.col("judged")).alias("unjudged"),
        F.count_if("duplicate").alias("duplicates"),
        F.count_if("unflagged").alias("unflagged"),
        F.count_if(F.col("lost").isNotNull()).alias("lost"),
    )
    joined = wide.join(narrow, [*QUEUE], "left").join(again, [*QUEUE], "left")
    whole = joined.na.fill(0).withColumn("confirmed", F.col("confirmed") + F.col("adopted"))
    return shaped(whole, QUEUES).orderBy(*QUEUE)


@dataclass(frozen=True, slots=True)
class Audit:
    """All tables of an audit."""

    queues: DataFrame
    blocks: DataFrame
    messages: DataFrame

    @property
    def lost(self) -> DataFrame:
        return self.messages.where(F.col("lost").isNotNull()).orderBy(*QUEUE, "seq")

    @property
    def duplicates(self) -> DataFrame:
        return self.messages.where("duplicate").orderBy(*QUEUE, "seq")

    @property
    def unflagged(self) -> DataFrame:
        return self.messages.where("unflagged").orderBy(*QUEUE, "seq")


def audit(events: DataFrame, every: bool = False) -> Audit:
    """`every`: look at every message, whatever the sums say."""
    newest = snapshots(events).cache()
    whole = with_held(events, newest)
    found = blocks(whole).cache()
    chosen = found if every else found.where(~F.col("agrees"))
    judged = messages(whole, newest, chosen.select(*QUEUE, "block")).cache()
    return Audit(per_queue(events, found, judged), found, judged)


__all__ = ["BLOCKS", "MESSAGES", "QUEUES", "Audit", "audit", "blocks", "messages", "per_queue"]
