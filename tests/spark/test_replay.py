"""The replay: what was archived goes back in order, once, however often it is begun."""

from __future__ import annotations

import datetime
import time
from pathlib import Path

import pytest
from messages import publish, take_all
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType
from pyspark.testing import assertDataFrameEqual, assertSchemaEqual
from source_rows import source_rows

from warren.spark.errors import WarrenError
from warren.spark.pipelines.archive import Lake, write_batch
from warren.spark.pipelines.main import main
from warren.spark.pipelines.replay import (
    LOG,
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
    log = [(0, "q0", 3, 4, 8), (0, "q1", 1, 5, 5), (1, "q1", 2, 7, 9)]
    assertDataFrameEqual(log_of(planned), spark.createDataFrame(log, LOG), checkRowOrder=True)


def test_a_queue_that_was_declared_anew_comes_after_the_one_before(spark: SparkSession) -> None:
    """Both have a position 0: their messages are not to be mixed."""
    later = CAME + datetime.timedelta(hours=1)
    given = [
        {"queue": "q", "seq": seq, "incarnation": incarnation, "enqueued_at": at, "body": b"x"}
        for seq in range(3)
        for incarnation, at in (("a", later), ("b", CAME))
    ]
    planned = plan(source_rows(spark, given), Target("", "k"), 4).orderBy("batch", "place")
    found = planned.select("from_seq", "place", "batch").collect()
    assert [tuple(one) for one in found] == [
        (0, 0, 0),
        (1, 1, 0),
        (2, 2, 0),
        (0, 3, 0),
        (1, 0, 1),
        (2, 1, 1),
    ]


def test_a_plan_that_cannot_be_written_leaves_nothing(
    spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = plan(choose(spark, archive_of(spark, lake, 20), None), Target("", "k"), 3)
    replay = Replay(lake / "run")
    real, renamed = Path.rename, []

    def full(self: Path, target: Path) -> Path:
        renamed.append(target)
        if len(renamed) == 4:
            raise OSError(28, "No space left on device")
        return real(self, target)

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(OSError, match="No space"):
        replay.write_plan(planned)
    monkeypatch.undo()
    assert len(renamed) == 4
    assert list(replay.path.iterdir()) == []
    assert not replay.is_planned
    replay.write_plan(planned)
    assert len(list(replay.rows.glob("*.parquet"))) == 7
    # Whoever is killed now goes on with it, and prints this.
    assert list((replay.path / "replay_log").glob("*.parquet"))


def test_another_replay_needs_another_directory(
    spark: SparkSession, broker: Broker, lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would say that all is published, and mean the plan that lies there."""
    publish(broker, "r.other", 0, 0)
    words = ["replay", "--endpoints", broker.http_url, "--run", str(lake / "run")]
    words += ["--archive", str(archive_of(spark, lake, 20)), "--exchange", "", "--routing-key"]
    assert main([*words, "r.other", "--where", "seq < 4"], spark=spark) == 0
    # The rate and the nodes may be others: what is published is the same.
    assert main([*words, "r.other", "--where", "seq < 4", "--rate", "1000000"], spark=spark) == 0
    capsys.readouterr()
    for more in (["r.other"], ["r.other", "--where", "seq < 5"], ["r.else", "--where", "seq < 4"]):
        assert main([*words, *more], spark=spark) == 1
        said = capsys.readouterr().err
        assert f"{lake / 'run'} holds the plan of another replay" in said
        assert "--run" in said
    assert sorted(take_all(broker, "r.other")) == [0, 1, 2, 3]


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
