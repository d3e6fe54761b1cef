"""Compaction: the same rows in fewer files, whenever it is killed and whatever is half-written."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession
from source_rows import source_rows

from warren.spark.errors import WarrenError
from warren.spark.pipelines import archive
from warren.spark.pipelines.archive import Lake, compact, write_batch
from warren.spark.pipelines.replay import choose


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Lake:
    """Three batches of which Spark has written two down as done."""
    lake = Lake(tmp_path / "archive")
    lake.prepare()
    for batch in range(3):
        rows = [{"queue": f"q{n % 2}", "seq": 10 * batch + n} for n in range(10)]
        write_batch(source_rows(spark, rows), batch, lake)
    for done in ("0", "1"):
        (lake.checkpoint / "commits").mkdir(parents=True, exist_ok=True)
        (lake.checkpoint / "commits" / done).write_text("v1\n{}")
    return lake


def rows_of(lake: Lake) -> list[tuple[str, int]]:
    return duckdb.sql(f"select queue, seq from '{lake.data}/**/*.parquet' order by seq").fetchall()


ALL = [(f"q{n % 2}", n) for n in range(30)]


def test_a_batch_that_may_be_written_again_is_left_alone(spark: SparkSession, place: Lake) -> None:
    compact(spark, place)
    assert rows_of(place) == ALL
    batches = {path.name for path in place.data.glob("dt=*/queue=*/batch=*")}
    assert batches == {"batch=-1", "batch=2"}
    # The driver was killed before it had written batch 2 down: it comes again.
    again = [{"queue": f"q{n % 2}", "seq": 20 + n} for n in range(10)]
    write_batch(source_rows(spark, again), 2, place)
    assert rows_of(place) == ALL
    before, after = compact(spark, place)
    assert (before, after) == (after, before)
    assert rows_of(place) == ALL


@pytest.mark.parametrize("name", ["007", "a b/{x}[1]*=%2F"])
def test_queues_keep_their_names(spark: SparkSession, tmp_path: Path, name: str) -> None:
    lake = Lake(tmp_path / "archive")
    lake.prepare()
    for batch in range(2):
        write_batch(source_rows(spark, [{"queue": name, "seq": batch}]), batch, lake)
        (lake.checkpoint / "commits").mkdir(parents=True, exist_ok=True)
        (lake.checkpoint / "commits" / str(batch)).write_text("v1\n{}")
    assert [queue["queue"] for one in lake.written() for queue in one["queues"]] == [name] * 2
    assert [row["queue"] for row in choose(spark, lake.path, None).collect()] == [name] * 2
    assert compact(spark, lake) == (2, 1)
    assert [row["queue"] for row in choose(spark, lake.path, None).collect()] == [name] * 2


@pytest.mark.parametrize("killed_at", ["rename", "remove", "move"])
def test_a_compaction_that_is_killed_loses_nothing(
    spark: SparkSession, place: Lake, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Killed

    # There are compacted files already, which are replaced like others.
    compact(spark, place)
    (place.checkpoint / "commits" / "2").write_text("v1\n{}")
    if killed_at == "rename":
        monkeypatch.setattr(archive, "finish_exchange", lambda lake: None)
    elif killed_at == "remove":
        monkeypatch.setattr(archive.shutil, "rmtree", _after(shutil.rmtree, 2, die))
    else:
        monkeypatch.setattr(archive.Path, "rename", _after(Path.rename, 2, die))
    if killed_at == "rename":
        archive._compact_day(spark, place, next(place.data.glob("dt=*")), {2})
    else:
        with pytest.raises(Killed):
            compact(spark, place)
    monkeypatch.undo()
    compact(spark, place)
    assert rows_of(place) == ALL
    assert not (place.path / "_compacted").exists()


def _after(real, calls, instead):  # type: ignore[no-untyped-def]
    """The real thing so many times, and then another."""
    left = [calls]

    def call(*given: object, **named: object) -> object:
        left[0] -= 1
        return real(*given, **named) if left[0] >= 0 else instead()

    return call


def test_a_place_without_an_archive_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(WarrenError, match="there is no archive"):
        compact(spark, Lake(tmp_path))
