"""Spark into queues: exactly once, at least once, and what makes no message."""

from __future__ import annotations

from pathlib import Path

import pytest
from messages import publish, take_all
from pyspark.sql import SparkSession

from warren.testing import Broker


def rows_of(spark: SparkSession, base: Path, first: int, end: int) -> None:
    """One more file for the stream to read."""
    table = spark.range(first, end, numPartitions=1).selectExpr(
        "id AS n", "cast(id AS STRING) body"
    )
    table.write.mode("append").parquet(str(base / "rows"))


def run(spark: SparkSession, broker: Broker, base: Path, queue: str, **options: str) -> None:
    query = (
        spark.readStream.schema("n BIGINT, body STRING")
        .option("maxFilesPerTrigger", "1")
        .parquet(str(base / "rows"))
        .selectExpr("body", "map('n', cast(n AS STRING)) AS headers")
        .writeStream.format("warren")
        .options(endpoints=broker.http_url, exchange="", routingKey=queue, **options)
        .option("checkpointLocation", str(base / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def forget_last_commit(base: Path) -> None:
    """As if the driver had died after the sink's commit and before its own was written."""
    commits = [p for p in (base / "checkpoint" / "commits").iterdir() if p.name.isdigit()]
    max(commits, key=lambda path: int(path.name)).unlink()


def test_a_batch_that_is_run_again_is_published_once(
    spark: SparkSession, broker: Broker, lake: Path
) -> None:
    publish(broker, "sunk", 0, 0)
    rows_of(spark, lake, 0, 100)
    rows_of(spark, lake, 100, 200)
    run(spark, broker, lake, "sunk")
    forget_last_commit(lake)
    run(spark, broker, lake, "sunk")
    assert sorted(take_all(broker, "sunk")) == list(range(200))
    rows_of(spark, lake, 200, 250)
    run(spark, broker, lake, "sunk")
    assert sorted(take_all(broker, "sunk")) == list(range(200, 250))


def test_at_least_once_publishes_again(spark: SparkSession, broker: Broker, lake: Path) -> None:
    publish(broker, "twice", 0, 0)
    rows_of(spark, lake, 0, 50)
    run(spark, broker, lake, "twice", delivery="at-least-once")
    forget_last_commit(lake)
    run(spark, broker, lake, "twice", delivery="at-least-once")
    assert sorted(take_all(broker, "twice")) == sorted([*range(50), *range(50)])


def test_a_table_is_published(spark: SparkSession, broker: Broker) -> None:
    publish(broker, "plain", 0, 0)
    table = spark.range(1000).selectExpr(
        "'' exchange", "'plain' routing_key", "cast(cast(id AS STRING) AS BINARY) body"
    )
    table.write.format("warren").option("endpoints", broker.http_url).mode("append").save()
    assert sorted(take_all(broker, "plain")) == list(range(1000))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (["'' exchange", "'plain' routing_key"], "column 'body'"),
        (["'' exchange", "body"], "routingKey"),
        (["'' exchange", "'plain' routing_key", "body", "1 colour"], "no column 'colour'"),
        (["'' exchange", "'plain' routing_key", "1 body"], "must be binary or string"),
        (["'' exchange", "repeat('x', 300) routing_key", "body"], "255"),
        (["'nowhere' exchange", "'k' routing_key", "body"], "no exchange 'nowhere'"),
        (["'' exchange", "'no such queue' routing_key", "body"], "onUnroutable"),
    ],
)
def test_what_makes_no_message_is_refused(
    spark: SparkSession, broker: Broker, columns: list[str], words: str
) -> None:
    publish(broker, "plain", 0, 0)
    table = spark.range(1).selectExpr("cast(id AS STRING) body").selectExpr(*columns)
    with pytest.raises(Exception, match=words):
        table.write.format("warren").option("endpoints", broker.http_url).mode("append").save()
    assert broker.queue("plain").ready == 0
