"""The archive as a Delta table: every message once, whatever is run again."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable
from messages import publish
from pyspark.sql import SparkSession

from warren.spark.errors import WarrenError
from warren.spark.pipelines.archive import Lake, compact, run_archive, write_batch
from warren.spark.pipelines.replay import choose
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


def bodies(lake: Lake) -> list[int]:
    table = DeltaTable(str(lake.data)).to_pyarrow_table()
    return sorted(int(one) for one in table.column("body").to_pylist())


def test_batches_count_once_in_a_delta_table(
    spark: SparkSession, broker: Broker, lake: Path
) -> None:
    place = Lake(lake / "archive", as_delta=True)
    queue = "delta.a queue/x"
    publish(broker, queue, 0, 100)
    assert archive(spark, broker, queue, place) == 100
    publish(broker, queue, 100, 130)
    assert archive(spark, broker, queue, place) == 30
    assert bodies(place) == list(range(130))
    rows = choose(spark, place.path, None)
    assert {row["queue"] for row in rows.select("queue").collect()} == {queue}
    assert rows.where("seq >= 100").count() == 30
    # A batch that a killed driver runs again is there already.
    newest = max(int(one["batch"]) for one in place.written())
    write_batch(rows.drop("dt", "batch"), newest, place)
    assert bodies(place) == list(range(130))
    before, after = compact(spark, place)
    assert after < before
    assert bodies(place) == list(range(130))
    assert choose(spark, place.path, None).count() == 130


def test_formats_are_not_mixed(spark: SparkSession, broker: Broker, lake: Path) -> None:
    place = lake / "archive"
    publish(broker, "delta.mixed", 0, 10)
    assert archive(spark, broker, "delta.mixed", Lake(place)) == 10
    with pytest.raises(WarrenError, match="other --format"):
        archive(spark, broker, "delta.mixed", Lake(place, as_delta=True))


def test_without_deltalake_it_says_what_to_install(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(WarrenError, match=r"pip install 'warrenmq\[delta\]'"):
        Lake(lake / "archive", as_delta=True).prepare()
