"""The audit of a firehose: what went into queues and what came out, message by message.

While tracing is on, each publish and each delivery goes to `amq.rabbitmq.trace` too, as a message
whose headers tell about it. A trace knows no positions and neither confirms nor acknowledgements:
messages are told apart by their message id, or without one by their properties and body.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    BooleanType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from warren.spark.pipelines.audit import shaped

TRACES = StructType(
    [
        StructField("at", TimestampType()),
        StructField("node", StringType()),
        StructField("vhost", StringType()),
        StructField("queue", StringType()),
        StructField("event", StringType()),
        StructField("message", StringType()),
        StructField("redelivered", BooleanType()),
        StructField("user", StringType()),
    ]
)
_COUNTS = ("published", "delivered", "redelivered", "undelivered", "unflagged", "unannounced")
MESSAGES = StructType(
    [
        *[StructField(name, StringType()) for name in ("vhost", "queue", "message")],
        StructField("first_at", TimestampType()),
        *[StructField(name, LongType()) for name in _COUNTS],
    ]
)
HELD = StructType(
    [
        StructField("vhost", StringType()),
        StructField("queue", StringType()),
        StructField("held", LongType()),
    ]
)
QUEUES = StructType(
    [
        StructField("vhost", StringType()),
        StructField("queue", StringType()),
        *[StructField(name, LongType()) for name in _COUNTS],
        StructField("held", LongType()),
        StructField("missing", LongType()),
    ]
)
#: Properties that stay as they are on a message's way; headers may change.
_KEPT = ("content_type", "correlation_id", "reply_to", "timestamp", "type", "app_id", "user_id")
_PROPERTIES = ", ".join(f"{name} string" for name in ("message_id", *_KEPT))


def traces(rows: DataFrame) -> DataFrame:
    """What messages of a firehose tell; a publish has a row for each queue that it went to."""
    headers = F.col("headers")
    properties = F.from_json(headers["properties"], _PROPERTIES)
    marks = [F.coalesce(F.col(f"properties.{name}"), F.lit("")) for name in _KEPT]
    content = F.sha2(F.concat_ws("\x00", *marks, F.hex("body")), 256)
    told = rows.select(
        F.coalesce("enqueued_at", "published_at").alias("at"),
        headers["node"].alias("node"),
        headers["vhost"].alias("vhost"),
        headers["user"].alias("user"),
        F.split_part("routing_key", F.lit("."), F.lit(1)).alias("event"),
        F.expr("substring(routing_key, length('deliver.') + 1)").alias("source"),
        F.from_json(headers["routed_queues"], "array<string>").alias("routed"),
        (F.coalesce(headers["redelivered"], F.lit("0")) == "1").alias("redelivered"),
        properties.alias("properties"),
        "body",
    ).where(F.col("event").isin("publish", "deliver"))
    is_publish = F.col("event") == "publish"
    places = F.when(is_publish, F.coalesce("routed", F.array())).otherwise(F.array("source"))
    named = told.withColumn("message", F.coalesce("properties.message_id", content)).withColumn(
        "queue", F.explode(places)
    )
    return shaped(named, TRACES)


def messages(found: DataFrame) -> DataFrame:
    """What became of each message of each queue; `found` as `traces` makes it."""
    is_publish = F.col("event") == "publish"
    again = (F.col("event") == "deliver") & F.col("redelivered")
    counted = (
        found.where(F.col("queue") != "")
        .groupBy("vhost", "queue", "message")
        .agg(
            F.min("at").alias("first_at"),
            F.count_if(is_publish).alias("published"),
            F.count_if(~is_publish).alias("delivered"),
            F.count_if(again).alias("redelivered"),
        )
    )
    plain = F.col("delivered") - F.col("redelivered")
    none = F.lit(0).cast("long")
    judged = counted.withColumns(
        {
            "undelivered": F.greatest(F.col("published") - F.col("delivered"), none),
            # What was published before tracing began may come once.
            "unflagged": F.greatest(plain - F.greatest("published", none + 1), none),
            "unannounced": F.when(F.col("published") == 0, F.col("delivered")).otherwise(0),
        }
    )
    return shaped(judged, MESSAGES)


def per_queue(judged: DataFrame, held: DataFrame) -> DataFrame:
    """One row for each queue; `held` says how many messages wait in it now (HELD).

    Missing is what was neither delivered nor waits: it has expired, was dropped or purged, or is
    lost. Where nobody knows what waits it is null.
    """
    summed = judged.groupBy("vhost", "queue").agg(*[F.sum(name).alias(name) for name in _COUNTS])
    none = F.lit(0).cast("long")
    # `greatest` passes over a null; an unknown is to stay one.
    left = F.col("undelivered") - F.col("held")
    missing = F.when(left.isNotNull(), F.greatest(left, none))
    joined = summed.join(F.broadcast(held), ["vhost", "queue"], "left")
    return shaped(joined.withColumn("missing", missing), QUEUES).orderBy("vhost", "queue")


def per_second(found: DataFrame) -> DataFrame:
    """Publishes and deliveries second by second: for the plot."""
    return (
        found.groupBy(F.date_trunc("second", "at").alias("second"))
        .agg(
            F.count_if(F.col("event") == "publish").alias("publish"),
            F.count_if(F.col("event") == "deliver").alias("deliver"),
        )
        .orderBy("second")
    )
