"""The scrub: the same range of every replica of a mirrored queue, compared by checksums.

First a checksum for each bucket of 4,096 positions and each replica. Only buckets whose checksums
differ are read again and looked at message by message: which replica lacks what, or has another.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    BooleanType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from warren.spark.pipelines.audit import shaped
from warren.spark.pipelines.bucket_sums import BUCKET, CONTENT
from warren.spark.schema import COLUMNS

ROWS = StructType(
    [StructField("replica", StringType()), *[StructField(name, kind) for name, kind in COLUMNS]]
)
#: What is read of each bucket at each replica.
SUMS = StructType(
    [
        StructField("queue", StringType()),
        StructField("replica", StringType()),
        StructField("bucket", LongType()),
        StructField("messages", LongType()),
        StructField("checksum", LongType()),
    ]
)
CHECKSUMS = StructType(
    [
        StructField("queue", StringType()),
        StructField("bucket", LongType()),
        StructField("replica", StringType()),
        StructField("messages", LongType()),
        StructField("checksum", LongType()),
        StructField("agrees", BooleanType()),
    ]
)
DIFFERENCES = StructType(
    [
        StructField("queue", StringType()),
        StructField("seq", LongType()),
        StructField("replica", StringType()),
        StructField("what", StringType()),
    ]
)
REPLICAS = StructType(
    [
        StructField("queue", StringType()),
        StructField("replica", StringType()),
        StructField("first", LongType()),
        StructField("end", LongType()),
        StructField("messages", LongType()),
        StructField("buckets", LongType()),
        StructField("divergent", LongType()),
        StructField("missing", LongType()),
        StructField("other", LongType()),
        StructField("extra", LongType()),
    ]
)
MISSING, OTHER, EXTRA = "missing", "other", "extra"
#: The replicas that are to be compared: (queue, replica, is_master).
COMPARED = StructType(
    [
        StructField("queue", StringType()),
        StructField("replica", StringType()),
        StructField("is_master", BooleanType()),
    ]
)


def hashed(rows: DataFrame) -> DataFrame:
    """`ROWS` with a checksum of each message."""
    headers = F.to_json(F.array_sort(F.map_entries("headers")))
    # A null is skipped by the hash: what is null must count, too.
    parts = [F.col(name) for name in CONTENT]
    nulls = F.concat(*[part.isNull().cast("int").cast("string") for part in parts])
    return rows.select(
        "queue", "replica", "seq", F.xxhash64(*parts, headers, nulls).alias("checksum")
    )


def checksums(found: DataFrame, compared: DataFrame) -> DataFrame:
    """Number and checksum of the messages of each bucket at each replica; whether all are equal.

    `found` has `SUMS`.
    """
    # A replica that has nothing of a bucket counts as well.
    every = (
        found.select("queue", "bucket")
        .distinct()
        .join(F.broadcast(compared.select("queue", "replica")), "queue")
    )
    full = every.join(found, ["queue", "bucket", "replica"], "left").fillna(
        0, ["messages", "checksum"]
    )
    window = Window.partitionBy("queue", "bucket")
    agrees = (F.min("messages").over(window) == F.max("messages").over(window)) & (
        F.min("checksum").over(window) == F.max("checksum").over(window)
    )
    return shaped(full.withColumn("agrees", agrees), CHECKSUMS)


def settled(checks: DataFrame, found: DataFrame) -> DataFrame:
    """Checksums only say where to look: of two buckets without a difference none is wrong."""
    wrong = found.select("queue", F.floor(F.col("seq") / BUCKET).alias("bucket")).distinct()
    marked = checks.join(
        F.broadcast(wrong.withColumn("w", F.lit(True))), ["queue", "bucket"], "left"
    )
    return shaped(marked.withColumn("agrees", F.col("w").isNull()), CHECKSUMS)


def differences(rows: DataFrame, compared: DataFrame) -> DataFrame:
    """What each replica lacks, has besides, or has otherwise.

    Right is what most replicas have; if there are as many of each, what the master has.
    """
    found = hashed(rows)
    every = found.select("queue", "seq").distinct().join(F.broadcast(compared), "queue")
    full = every.join(found, ["queue", "seq", "replica"], "left")
    votes = full.groupBy("queue", "seq", "checksum").agg(
        F.struct(F.count("*").alias("n"), F.max("is_master").alias("m")).alias("votes")
    )
    right = votes.groupBy("queue", "seq").agg(F.max_by("checksum", "votes").alias("right"))
    judged = full.join(right, ["queue", "seq"]).where(~F.col("checksum").eqNullSafe(F.col("right")))
    what = (
        F.when(F.col("checksum").isNull(), MISSING)
        .when(F.col("right").isNull(), EXTRA)
        .otherwise(OTHER)
    )
    return shaped(judged.withColumn("what", what), DIFFERENCES).orderBy("queue", "seq", "replica")


def summary(ranges: DataFrame, checks: DataFrame, found: DataFrame) -> DataFrame:
    """One row for each replica; `ranges` has queue, replica, first and end."""
    key = ["queue", "replica"]
    counted = checks.groupBy(*key).agg(
        F.sum("messages").alias("messages"),
        F.count("*").alias("buckets"),
        F.count_if(~F.col("agrees")).alias("divergent"),
    )
    wrong = found.groupBy(*key).agg(
        *[F.count_if(F.col("what") == what).alias(what) for what in (MISSING, OTHER, EXTRA)]
    )
    joined = ranges.join(counted, key, "left").join(wrong, key, "left").fillna(0)
    return shaped(joined, REPLICAS).orderBy(*key)
