"""The archive: every message once, whatever is run again; errors that leave the queue alone."""

from __future__ import annotations

import argparse
import datetime
from pathlib import Path

import duckdb
import pytest
from messages import client_of, publish
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual, assertSchemaEqual
from source_rows import source_rows

from warren.spark.errors import WarrenError
from warren.spark.pipelines.archive import (
    COUNTS,
    Lake,
    archived,
    compact,
    counted,
    run_archive,
)
from warren.spark.pipelines.main import main, make_parser
from warren.testing import Broker


def archive(spark: SparkSession, broker: Broker, queue: str, lake: Lake) -> int:
    options = {
        "endpoints": broker.http_url,
        "queues": queue,
        "cursor": "archive",
        "mode": "drain",
        "maxOffsetsPerTrigger": "40",
        "retries": "3",
    }
    return run_archive(spark, options, lake, follow=False, interval_s=1)


def bodies_of(lake: Lake, queue: str) -> list[int]:
    """What another program finds there."""
    found = duckdb.sql(
        f"select decode(body) from read_parquet('{lake.data}/*/queue={queue}/*/*.parquet')"
    )
    return sorted(int(one) for (one,) in found.fetchall())


def test_rows_have_their_day_and_queues_their_counts(spark: SparkSession) -> None:
    midnight = datetime.datetime(2026, 11, 19, tzinfo=datetime.UTC)
    second = datetime.timedelta(seconds=1)
    rows = source_rows(
        spark,
        [
            {"queue": "a", "seq": 3, "body": b"123", "enqueued_at": midnight - second},
            {"queue": "a", "seq": 9, "body": b"", "enqueued_at": midnight},
            {"queue": "a", "seq": 0, "body": b"1", "incarnation": "j"},
            # The broker does not know when they came; the second one's publisher does not either.
            {"queue": "b", "seq": 5, "enqueued_at": None, "published_at": midnight + second},
            {"queue": "b", "seq": 6, "enqueued_at": None, "body": None},
        ],
    )
    made = archived(rows)
    assert made.columns == [*rows.columns, "dt"]
    days = made.select("queue", "seq", "dt")
    expected = [
        ("a", 3, "2026-11-18"),
        ("a", 9, "2026-11-19"),
        ("a", 0, "2026-11-18"),
        ("b", 5, "2026-11-19"),
        ("b", 6, "1970-01-01"),
    ]
    assertDataFrameEqual(days, spark.createDataFrame(expected, "queue string, seq long, dt string"))
    counts = counted(rows)
    assertSchemaEqual(counts.schema, COUNTS)
    sums = [("a", "i", 2, 3, 9, 3), ("a", "j", 1, 0, 0, 1), ("b", "i", 2, 5, 6, 0)]
    assertDataFrameEqual(counts, spark.createDataFrame(sums, COUNTS), checkRowOrder=True)


def fail(*_: object, **__: object) -> None:
    raise WarrenError("the power is gone")


def test_each_message_is_archived_once(
    spark: SparkSession, broker: Broker, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Lake(lake / "archive")
    publish(broker, "a.once", 0, 100)
    assert archive(spark, broker, "a.once", place) == 100
    publish(broker, "a.once", 100, 130)
    # As if the driver had died when the files were written and nobody had been told.
    monkeypatch.setattr(Lake, "note", fail)
    monkeypatch.setattr(Lake, "forget", lambda *_: None)
    with pytest.raises(WarrenError, match="the power is gone"):
        archive(spark, broker, "a.once", place)
    monkeypatch.undo()
    (place.data / "_temporary" / "0").mkdir(parents=True)
    archive(spark, broker, "a.once", place)
    assert bodies_of(place, "a.once") == list(range(130))
    assert sum(one["rows"] for one in place.written()) == 130
    before, after = compact(spark, place)
    assert after < before
    assert bodies_of(place, "a.once") == list(range(130))
    publish(broker, "a.once", 130, 135)
    assert archive(spark, broker, "a.once", place) == 5
    assert bodies_of(place, "a.once") == list(range(135))
    assert spark.read.parquet(str(place.data)).count() == 135
    assert client_of(broker).range_info("a.once", None)["end"] == 135


def test_a_place_that_cannot_be_written_takes_nothing(
    spark: SparkSession, broker: Broker, lake: Path
) -> None:
    publish(broker, "a.nowhere", 0, 5)
    (lake / "file").write_text("")
    with pytest.raises(WarrenError, match="cannot be written"):
        archive(spark, broker, "a.nowhere", Lake(lake / "file" / "archive"))
    assert archive(spark, broker, "a.nowhere", Lake(lake / "archive")) == 5


def test_a_queue_that_is_not_there_is_named(
    spark: SparkSession, broker: Broker, lake: Path
) -> None:
    with pytest.raises(WarrenError, match=r"a\.missing"):
        archive(spark, broker, "a.missing", Lake(lake / "archive"))


def test_help_names_every_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        make_parser().parse_args(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert all(name in said for name in ("archive", "audit", "latency"))
    given = make_parser().parse_args(["audit", "--journal", "x", "y"])
    assert isinstance(given, argparse.Namespace)
    with pytest.raises(SystemExit) as wrong:
        main(["archive", "--to", "somewhere"])
    assert wrong.value.code == 2
