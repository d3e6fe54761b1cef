"""The triage of dead letters: one row for each with its cause, and groups of the same cause.

A cause is the queue in which a message first died and why, what its sender's or consumer's error
header says with all that differs from message to message taken out, and the shape of its body.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from warren.spark.pipelines.audit import shaped

LETTERS = StructType(
    [
        StructField("cause", StringType()),
        StructField("queue", StringType()),
        StructField("seq", LongType()),
        StructField("incarnation", StringType()),
        StructField("died_in", StringType()),
        StructField("reason", StringType()),
        StructField("deaths", LongType()),
        StructField("first_death", TimestampType()),
        StructField("last_death", TimestampType()),
        StructField("error", StringType()),
        StructField("shape", StringType()),
        StructField("routing_key", StringType()),
        StructField("message_id", StringType()),
        StructField("body", BinaryType()),
    ]
)
GROUPS = StructType(
    [
        StructField("cause", StringType()),
        StructField("queue", StringType()),
        StructField("died_in", StringType()),
        StructField("reason", StringType()),
        StructField("error", StringType()),
        StructField("shape", StringType()),
        StructField("messages", LongType()),
        StructField("deaths", LongType()),
        StructField("first_death", TimestampType()),
        StructField("last_death", TimestampType()),
        StructField("sample_seq", LongType()),
        StructField("sample", StringType()),
    ]
)
#: Where applications put what went wrong; the first that is there counts.
ERROR_HEADERS = (
    "x-exception-message", "x-exception", "x-error", "error", "exception", "error-message",
)  # fmt: skip
NEVER_DIED = "never died"
ERROR_LENGTH_MAX, SHAPE_LENGTH_MAX, SAMPLE_LENGTH_MAX = 200, 300, 120
_DEATHS = "array<struct<count: bigint, reason: string, queue: string, time: bigint>>"
#: What differs between errors of one cause, and what stands for it.
_VARIABLE = (
    (r"(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uuid>"),
    (r"(?i)\b0x[0-9a-f]+\b", "<hex>"),
    (r"(?i)\b(?=[0-9a-f]*[0-9])[0-9a-f]{8,}\b", "<hex>"),
    (r"\d+(?:[.,:]\d+)*", "<n>"),
    (r"\s+", " "),
)


def general(text: Column) -> Column:
    """An error without what differs from message to message."""
    for pattern, instead in _VARIABLE:
        text = F.regexp_replace(text, pattern, instead)
    return F.substring(F.trim(text), 1, ERROR_LENGTH_MAX)


def shape_of(body: Column) -> Column:
    """The names and types of JSON, or what else a body is."""
    text = F.when(F.is_valid_utf8(body.cast("string")), body.cast("string"))
    json = F.schema_of_variant(F.try_parse_json(text))
    # How many digits a number has is no difference.
    plain = F.regexp_replace(json, r"DECIMAL\(\d+,\d+\)|DOUBLE|BIGINT", "NUMBER")
    named = (
        F.when(F.length(body) == 0, "empty")
        .when(text.isNull(), "binary")
        .otherwise(F.coalesce(plain, F.lit("text")))
    )
    return F.substring(named, 1, SHAPE_LENGTH_MAX)


def letters(rows: DataFrame, error_headers: Sequence[str] = ERROR_HEADERS) -> DataFrame:
    """One row for each dead letter of rows of the source."""
    headers = F.col("headers")
    deaths = F.from_json(headers["x-death"], _DEATHS)
    oldest = F.try_element_at(deaths, F.lit(-1))
    error = F.coalesce(*[headers[name] for name in error_headers])
    known = rows.withColumns(
        {
            "died_in": F.coalesce(headers["x-first-death-queue"], oldest["queue"], F.lit("")),
            "reason": F.coalesce(
                headers["x-first-death-reason"], oldest["reason"], F.lit(NEVER_DIED)
            ),
            "deaths": F.coalesce(
                F.aggregate(deaths, F.lit(0).cast("long"), lambda sum_, one: sum_ + one["count"]),
                F.lit(0),
            ),
            "first_death": F.timestamp_seconds(F.array_min(deaths["time"])),
            "last_death": F.timestamp_seconds(F.array_max(deaths["time"])),
            "error": F.coalesce(general(error), F.lit("")),
            "shape": shape_of(F.col("body")),
        }
    )
    key = F.concat_ws("\x1f", "queue", "died_in", "reason", "error", "shape")
    return shaped(known.withColumn("cause", F.substring(F.sha2(key, 256), 1, 8)), LETTERS)


def groups(dead: DataFrame) -> DataFrame:
    """What `letters` made, by cause; those of most messages first."""
    return shaped(
        dead.withColumn("body", F.expr(f"substring(body, 1, {SAMPLE_LENGTH_MAX})"))
        .groupBy("cause", "queue", "died_in", "reason", "error", "shape")
        .agg(
            F.count("*").alias("messages"),
            F.max("deaths").alias("deaths"),
            F.min("first_death").alias("first_death"),
            F.max("last_death").alias("last_death"),
            F.min("seq").alias("sample_seq"),
            _readable(F.min_by("body", "seq")).alias("sample"),
        ),
        GROUPS,
    ).orderBy(F.desc("messages"), "cause")


def _readable(body: Column) -> Column:
    """Text on one line, or octets as hexadecimal digits."""
    # A sample may end in the middle of a character.
    text = F.regexp_replace(F.make_valid_utf8(body.cast("string")), r"\s+", " ")
    octets = F.concat(F.lit("0x"), F.lower(F.hex(body)))
    return F.when(F.col("shape") == "binary", octets).otherwise(text)


POSITIONS = StructType(
    [
        StructField("queue", StringType()),
        StructField("incarnation", StringType()),
        StructField("seqs", ArrayType(LongType(), False)),
    ]
)


def positions(dead: DataFrame, causes: Sequence[str]) -> DataFrame:
    """Where the messages of some causes are."""
    chosen = dead.where(F.col("cause").isin(*causes))
    return shaped(
        chosen.groupBy("queue", "incarnation").agg(
            F.array_sort(F.collect_list("seq")).alias("seqs")
        ),
        POSITIONS,
    )
