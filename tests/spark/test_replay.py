"""The replay: what was archived goes back in order, once, however often it is begun."""

from __future__ import annotations

import datetime
import time
from pathlib import Path

import pytest
from messages import publish, take_all
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType
from pyspark.testing import assertSchemaEqual

from warren.spark.errors import WarrenError
from warren.spark.pipelines.archive import Lake, write_batch
from warren.spark.pipelines.replay import (
    PLANNED,
    REPLAYED_FROM,
    Replay,
    Target,
    choose,
    log_of,
    plan,
)
from warren.spark.schema import COLUMNS
from warren.testing import Broker

CAME = datetime.datetime(2026, 11, 18, 12, 0, tzinfo=datetime.UTC)


def archive_of(spark: SparkSession, base: Path, count: int) -> Path:
    """Two queues of numbered messages, written in another order than theirs."""
    names = [name for name, _ in COLUMNS]
    rows = []
    for number in reversed(range(count)):
        values = {
            "queue": f"q{number % 2}",
            "seq": number,
            "incarnation": "i",
            "exchange": "shop",
            "routing_key": "k",
            "enqueued_at": CAME,
            "expiration": "1",
            "headers": {"a": "b"},
            "body": b"%d" % number,
        }
        rows.append(tuple(values.get(name) for name in names))
    schema = StructType([StructField(name, kind) for name, kind in COLUMNS])
    lake = Lake(base / "archive")
    lake.prepare()
    write_batch(spark.createDataFrame(rows, schema), 0, lake)
    return lake.path


def test_a_plan_is_in_order_and_says_where_messages_come_from(
    spark: SparkSession, lake: Path
) -> None:
    rows = choose(spark, archive_of(spark, lake, 10), "seq >= 4")
    planned = plan(rows, Target("x", "y"), 4)
    assertSchemaEqual(planned.schema, PLANNED)
    found = planned.orderBy("batch", "place").collect()
    assert [(r["from_queue"], r["from_seq"], r["batch"], r["place"]) for r in found] == [
        ("q0", 4, 0, 0),
        ("q0", 6, 0, 1),
        ("q0", 8, 0, 2),
        ("q1", 5, 0, 3),
        ("q1", 7, 1, 0),
        ("q1", 9, 1, 1),
    ]
    assert {(r["exchange"], r["routing_key"]) for r in found} == {("x", "y")}
    assert found[0]["headers"] == {"a": "b", REPLAYED_FROM: "q0/4"}
    log = [tuple(r) for r in log_of(planned).collect()]
    assert log == [(0, "q0", 3, 4, 8), (0, "q1", 1, 5, 5), (1, "q1", 2, 7, 9)]


def test_a_replay_that_is_begun_again_publishes_nothing_twice(
    spark: SparkSession, broker: Broker, lake: Path
) -> None:
    publish(broker, "r.again", 0, 0)
    replay = Replay(lake / "run")
    rows = choose(spark, archive_of(spark, lake, 20), "queue = 'q1'")
    replay.write_plan(plan(rows, Target("", "r.again"), 3))
    options = {"endpoints": broker.http_url}
    replay.publish(spark, options, 0)
    # As if the driver had died when the broker had the last batch and Spark did not know.
    commits = [p for p in (replay.path / "_checkpoint" / "commits").iterdir() if p.name.isdigit()]
    max(commits, key=lambda one: int(one.name)).unlink()
    replay.publish(spark, options, 0)
    assert take_all(broker, "r.again") == list(range(1, 20, 2))


def test_a_rate_is_kept(spark: SparkSession, broker: Broker, lake: Path) -> None:
    publish(broker, "r.slow", 0, 0)
    replay = Replay(lake / "run")
    rows = choose(spark, archive_of(spark, lake, 20), "queue = 'q0'")
    replay.write_plan(plan(rows, Target("", "r.slow"), 2))
    began_s = time.monotonic()
    replay.publish(spark, {"endpoints": broker.http_url}, pause_s=0.8)
    # Five batches: of the four pauses between their beginnings Spark may shorten the first.
    assert time.monotonic() - began_s >= 2.4
    assert take_all(broker, "r.slow") == list(range(0, 20, 2))


def test_a_wrong_choice_is_told(spark: SparkSession, lake: Path) -> None:
    path = archive_of(spark, lake, 2)
    with pytest.raises(WarrenError, match="--where"):
        choose(spark, path, "queue == = 1")
    with pytest.raises(WarrenError, match="cannot be read"):
        choose(spark, path, "nonsense = 1")
    with pytest.raises(WarrenError, match="cannot be read"):
        choose(spark, path / "nowhere", None)
