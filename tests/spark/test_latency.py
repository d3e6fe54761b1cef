"""Latency by minute and windows without a confirm."""

from __future__ import annotations

import datetime
from pathlib import Path

import duckdb
import pytest
from journal_rows import BEGAN, row
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual, assertSchemaEqual

from warren.spark.pipelines import latency
from warren.spark.pipelines.events import EVENTS
from warren.spark.pipelines.main import main

STEP = ("publish", "confirm")


def test_percentiles_are_those_of_duckdb(spark: SparkSession, tmp_path: Path) -> None:
    rows = []
    for seq in range(0, 3000, 3):
        at_ms = seq * 50
        rows.append(row("publish", seq, 3, at_ms=at_ms))
        rows.append(row("confirm", seq, 3, at_ms=at_ms + 1 + seq % 17))
        rows.append(row("deliver", seq, 3, at_ms=at_ms + 2 + seq % 23))
        rows.append(row("deliver", seq, 1, at_ms=at_ms + 900, redelivered=True))
    events = spark.createDataFrame(rows, EVENTS)
    events.write.parquet(str(tmp_path / "events"))
    result = latency.per_minute(events)
    assertSchemaEqual(result.schema, latency.MINUTES)
    mine = {
        (r["step"], r["m"] // 60): (
            r["n"],
            *(r[name] for name in ("p50_ms", "p99_ms", "p999_ms", "max_ms")),
        )
        for r in result.selectExpr("*", "unix_timestamp(minute) AS m").collect()
    }
    query = """
        with one as (
            select event, epoch_us("at") as us, unnest(range(seq, seq + count)) as seq
            from read_parquet('{path}/events/*.parquet')),
        t as (select seq, min(us) filter (event = 'publish') p, min(us) filter (event = '{to}') c
              from one group by seq)
        select p // 60000000, count(*), quantile_cont((c - p) / 1000.0, 0.5),
               quantile_cont((c - p) / 1000.0, 0.99), quantile_cont((c - p) / 1000.0, 0.999),
               max((c - p) / 1000.0)
        from t where c is not null group by 1
    """
    seen = 0
    for step, to in (("publish to confirm", "confirm"), ("publish to deliver", "deliver")):
        for minute, *numbers in duckdb.sql(query.format(path=tmp_path, to=to)).fetchall():
            found = mine[step, minute]
            assert list(found) == pytest.approx(numbers)
            seen += 1
    assert seen == 2 * 3 == len(mine)


def test_messages_are_counted_by_how_long_they_took(spark: SparkSession) -> None:
    took_ms = [0.0, 0.5, 1.0, 1.9, 2.0, 49.0, 50.0, 999.0]
    rows = [
        row(event, n, at_ms=n * 1000 + (took if event == "confirm" else 0))
        for n, took in enumerate(took_ms)
        for event in ("publish", "confirm")
    ]
    made = latency.steps(latency.times(spark.createDataFrame(rows, EVENTS)))
    assertSchemaEqual(made.schema, latency.TOOK)
    found = latency.histogram(made)
    assertSchemaEqual(found.schema, latency.HISTOGRAM)
    counted = {latency.class_from(r["class"]): r["n"] for r in found.collect()}
    assert counted == {0.01: 1, 0.5: 1, 1.0: 2, 2.0: 1, 20.0: 1, 50.0: 1, 500.0: 1}


def test_the_longest_window_is_shown_however_many_there_are(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times_ms = [n * 1_500 for n in range(30)] + [29 * 1_500 + 9_000]
    rows = [row(event, n, at_ms=at) for n, at in enumerate(times_ms) for event in STEP]
    # In use all the time.
    rows += [row("publish", 100 + n, at_ms=at + 700) for n, at in enumerate(times_ms)]
    spark.createDataFrame(rows, EVENTS).coalesce(1).write.parquet(str(tmp_path / "events"))
    words = ["latency", "--journal", str(tmp_path / "events"), "--out", str(tmp_path / "out")]
    assert main(words, spark=spark) == 0
    said = capsys.readouterr().out
    assert "the longest window without a confirm took 9,000 ms" in said
    page = (tmp_path / "out" / "latency.html").read_text()
    for text in (said, page):
        assert text.count("9,000.00") == 1
        assert text.count("1,500.00") == 19
    files = f"{tmp_path}/out/outage/*.parquet"
    assert duckdb.sql(f"select count(*), max(gap_ms) from '{files}'").fetchall() == [(30, 9000.0)]


def test_a_failover_is_a_window_with_its_numbers(spark: SparkSession) -> None:
    rows = [
        row("publish", 0, 10, at_ms=0),
        row("confirm", 0, 10, at_ms=1),
        row("publish", 10, 5, at_ms=100),
        row("refuse", 15, 2, at_ms=1400),
        row("promote", 0, at_ms=1500, node="b", epoch=2),
        row("deliver", 3, 4, at_ms=2100, node="b", epoch=2, redelivered=True),
        row("confirm", 10, 5, at_ms=2001, node="b", epoch=2),
        # Nobody published in this one.
        row("publish", 15, 1, at_ms=60_000, node="b", epoch=2),
        row("confirm", 15, 1, at_ms=60_000, node="b", epoch=2),
    ]
    result = latency.outages(spark.createDataFrame(rows, EVENTS), 1000)
    assertSchemaEqual(result.schema, latency.OUTAGES)
    ends = (BEGAN + datetime.timedelta(milliseconds=ms) for ms in (1, 2001))
    expected = [("/", "orders", 7, *ends, 2000.0, "a", "b", 1, 4, 2)]
    assertDataFrameEqual(result, spark.createDataFrame(expected, latency.OUTAGES))
