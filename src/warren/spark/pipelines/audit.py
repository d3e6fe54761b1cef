"""The audit: was anything lost that had been confirmed, and did anything come twice unannounced?

First pass, cheap: for each block of 65,536 positions, three sums of what was published, confirmed,
of what left and is still held. Where they agree, every position that was confirmed has left once or
is there. Only blocks where they do not are looked at message by message.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    BooleanType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
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
        StructField("confirmed_at", TimestampType()),
        StructField("confirmed_by", StringType()),
    ]
)
#: Notes of what queues hold; only the newest counts.
NOTES = ("held", "snapshot")
#: Of more suspicious blocks than this, all files are read.
NEAR_BLOCKS = 256
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


# -- one pass over everything ----------------------------------------------------------------------


def digest(events: DataFrame) -> DataFrame:
    """One row for each queue, block and kind of event: all that the first pass has to know.

    Number, sum and sum of squares of the positions in their block. Notes of what queues hold stay
    apart by when and by whom they were made. It is the only pass over the whole journal, and what
    it makes is small.
    """
    kind = F.col("event")
    is_note = kind.isin(*NOTES)
    n = F.col("count").cast("long")
    o = F.col("seq").bitwiseAND(F.lit(BLOCK - 1))
    between = n * (n - 1)
    # Every other of two neighbours is even, and of three one can be divided by three.
    total = n * o + F.shiftright(between, 1)
    squares = n * o * o + o * between + F.call_function("div", between * (2 * n - 1), F.lit(6))
    return (
        events.where(~kind.isin(*[one for one in NO_MESSAGE if one != "delete"]))
        .groupBy(
            *QUEUE,
            block_of(F.col("seq")).alias("block"),
            "event",
            "redelivered",
            "no_ack",
            F.when(is_note, F.col("node")).alias("noted_by"),
            F.when(is_note, F.col("at")).alias("noted_at"),
        )
        .agg(
            F.sum(n).alias("n"),
            F.sum(total).alias("s"),
            F.sum(squares).alias("q"),
            F.max("epoch").alias("epoch"),
            F.max("seq").alias("seq"),
        )
    )


def snapshots(sums: DataFrame) -> DataFrame:
    """The newest snapshot of each level of each queue: what was below `next` was judged by it."""
    rows = sums.where(F.col("event") == "snapshot").withColumn("level", level_of(F.col("seq")))
    newest = F.max(F.struct("epoch", "noted_at", "noted_by", "seq")).alias("s")
    return (
        rows.groupBy(*QUEUE, "level")
        .agg(newest)
        .select(
            *QUEUE,
            "level",
            F.col("s.epoch").alias("snap_epoch"),
            F.col("s.noted_at").alias("snap_at"),
            F.col("s.noted_by").alias("snap_node"),
            F.col("s.seq").alias("next"),
        )
    )


def _of_the_newest(rows: DataFrame, newest: DataFrame, by: str, at: str) -> DataFrame:
    """Without what queues held at earlier times; `by` and `at` say who noted a row, and when."""
    known = rows.withColumn("level", level_of(F.col("seq"))).join(
        F.broadcast(newest), [*QUEUE, "level"], "left"
    )
    is_newest = (F.col(by) == F.col("snap_node")) & (F.col(at) == F.col("snap_at"))
    return known.where((F.col("event") != "held") | F.coalesce(is_newest, F.lit(False))).select(
        *rows.columns
    )


# -- the cheap pass --------------------------------------------------------------------------------


def blocks(sums: DataFrame, newest: DataFrame) -> DataFrame:
    """One row for each block of positions; `sums` as `digest` makes them."""
    kind = F.col("event")
    first = (kind == "deliver") & ~F.col("redelivered")
    kinds = {
        "p": F.when(kind == "publish", 1),
        "c": F.when(kind == "confirm", 1),
        "a": F.when(kind == "adopt", 1),
        "g": F.when(is_gone(), 1),
        "h": F.when(kind == "held", 1),
        "d": F.when(first, 1).when(kind == "take-back", -1),
    }
    added = [
        F.sum(F.coalesce(sign, F.lit(0)) * F.col(letter)).alias(f"{name}_{letter}")
        for name, sign in kinds.items()
        for letter in "nsq"
    ]
    about = sums.where(~kind.isin("snapshot", "delete"))
    kept = _of_the_newest(about, newest, "noted_by", "noted_at")
    summed = kept.groupBy(*QUEUE, "block").agg(*added)
    # What a new master vouches for may have been confirmed before or not: that needs a look.
    agrees = F.col("a_n") == 0
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


def around(events: DataFrame, suspicious: DataFrame) -> DataFrame:
    """Events near blocks: what files need not be read is said in a way that they understand.

    Segments know the least and the greatest of their positions, so most of them are not opened.
    """
    found = suspicious.select("queue", "block").limit(NEAR_BLOCKS + 1).collect()
    if len(found) > NEAR_BLOCKS:
        return events
    near = F.lit(False)
    for row in found:
        first = row["block"] * BLOCK
        near |= (F.col("queue") == row["queue"]) & F.col("seq").between(first, first + BLOCK - 1)
    return events.where(near)


def messages(
    events: DataFrame,
    newest: DataFrame,
    suspicious: DataFrame,
    deleted: DataFrame,
    since: datetime.datetime | None = None,
) -> DataFrame:
    """What became of each message of the blocks that are suspicious.

    Events of before `since` may be gone: what was confirmed by then may have been settled in there.
    """
    kind = F.col("event")
    about = events.where(~kind.isin(*NO_MESSAGE, "snapshot"))
    keyed = about.withColumn("block", block_of(F.col("seq")))
    near = keyed.join(F.broadcast(suspicious), [*QUEUE, "block"], "left_semi").drop("block")
    chosen = _of_the_newest(near, newest, "node", "at")
    flagged = F.col("redelivered")
    vouched = kind.isin("confirm", "adopt")
    count = F.count_if
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
    known = facts.join(F.broadcast(newest), [*QUEUE, "level"], "left").join(
        F.broadcast(deleted), [*QUEUE], "left"
    )
    is_whole = F.lit(True) if since is None else F.col("confirm.at") >= F.lit(since)
    return shaped(_judged(known, is_whole), MESSAGES)


def _judged(known: DataFrame, is_whole: Column) -> DataFrame:
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
        .when(left | ~is_whole, None)
        .when(below, "missing")
        .when(newer, "cut off")
    )
    return known.withColumns(
        {
            "lost": lost,
            "confirmed_at": F.col("confirm.at"),
            "confirmed_by": F.col("confirm.node"),
            "duplicate": F.col("gone") > 1,
            "unflagged": F.col("plain") > 1,
            "judged": left | (below & is_whole) | lost.isNotNull() | (F.col("confirmed") == 0),
        }
    )


# -- the verdict -----------------------------------------------------------------------------------


def per_queue(sums: DataFrame, found: DataFrame, judged: DataFrame) -> DataFrame:
    """One row for each queue, of the blocks and of the messages that were looked at."""
    flagged = (F.col("event") == "deliver") & F.col("redelivered")
    again = sums.where(flagged).groupBy(*QUEUE).agg(F.sum("n").alias("redelivered"))
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


def audit(events: DataFrame, every: bool = False, since: datetime.datetime | None = None) -> Audit:
    """`every`: look at every message, whatever the sums say; `since`: see `messages`."""
    sums = digest(events).cache()
    newest = snapshots(sums).cache()
    found = blocks(sums, newest).cache()
    chosen = found if every else found.where(~F.col("agrees"))
    suspicious = chosen.select(*QUEUE, "block")
    deleted = sums.where(F.col("event") == "delete").select(*QUEUE).distinct()
    judged = messages(
        events if every else around(events, suspicious),
        newest,
        suspicious,
        deleted.withColumn("del", F.lit(True)),
        since,
    ).cache()
    return Audit(per_queue(sums, found, judged).cache(), found, judged)


__all__ = [
    "BLOCKS", "MESSAGES", "QUEUES", "Audit", "audit", "blocks", "digest", "messages", "per_queue",
]  # fmt: skip
