"""How far mirrors were behind, rates of nodes and queues, and the hottest of them."""

from __future__ import annotations

import datetime
from pathlib import Path

import duckdb
import pytest
from journal_rows import BEGAN, Row, row
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual, assertSchemaEqual

from warren.spark.pipelines import lag
from warren.spark.pipelines.events import EVENTS
from warren.spark.pipelines.lag_job import lag_verdict

KEY = ("/", "orders", 7)


def at(ms: float) -> datetime.datetime:
    return BEGAN + datetime.timedelta(milliseconds=ms)


def place(peer: str, seq: int, last: int, at_ms: float, in_sync: bool = True) -> Row:
    return row("position", seq, at_ms=at_ms, peer=peer, size=last, in_sync=in_sync)


def test_lag_is_told_in_operations_and_in_time(spark: SparkSession) -> None:
    rows = [
        place("b", 100, 100, 1000),
        place("b", 150, 200, 2000),
        # The master goes on evenly from 200 to 400 in this second; b was as far a half before.
        place("b", 300, 400, 3000),
        # It stands still, and the master too.
        place("b", 300, 400, 4000),
        # A rest of a minute: what came then came in its last second.
        place("b", 400, 400, 5000),
        place("b", 450, 500, 65_000),
        # A mirror that was never as far as the first note.
        place("c", 0, 500, 65_000, in_sync=False),
    ]
    result = lag.samples(spark.createDataFrame(rows, EVENTS))
    assertSchemaEqual(result.schema, lag.SAMPLES)
    expected = [
        (*KEY, "b", "a", at(1000), True, 0, 0.0),
        (*KEY, "b", "a", at(2000), True, 50, 500.0),
        (*KEY, "b", "a", at(3000), True, 100, 500.0),
        (*KEY, "b", "a", at(4000), True, 100, 1500.0),
        (*KEY, "b", "a", at(5000), True, 0, 0.0),
        (*KEY, "b", "a", at(65_000), True, 50, 500.0),
        (*KEY, "c", "a", at(65_000), False, 500, 64_000.0),
    ]
    assertDataFrameEqual(result, spark.createDataFrame(expected, lag.SAMPLES))
    mirrors = lag.per_mirror(result)
    assertSchemaEqual(mirrors.schema, lag.MIRRORS)
    worst, other = mirrors.collect()
    assert (worst["mirror"], worst["max_ms"], worst["not_in_sync"]) == ("c", 64_000.0, 1)
    assert worst["max_in_sync_ms"] == 0.0
    assert (other["mirror"], other["samples"], other["max_operations"]) == ("b", 6, 100)
    windows = lag.lag_10s(result)
    expected = [
        (*KEY, "b", at(0), 5, 100, 1500.0, True),
        (*KEY, "b", at(60_000), 1, 50, 500.0, True),
        (*KEY, "c", at(60_000), 1, 500, 64_000.0, False),
    ]
    assertDataFrameEqual(windows, spark.createDataFrame(expected, lag.LAGS))


def test_copies_have_their_beginning_and_end(spark: SparkSession) -> None:
    rows = [
        row("copy", 0, at_ms=0, peer="b"),
        row("sync", 0, at_ms=700, peer="b", size=9000),
        row("copy", 0, at_ms=1000, peer="b"),
        row("copy", 0, at_ms=1100, peer="c"),
        row("sync", 0, at_ms=3000, peer="b", size=5000, in_sync=True),
        # Its beginning is in a segment that is gone.
        row("sync", 0, at_ms=5000, peer="d", size=1, in_sync=True),
    ]
    result = lag.copies(spark.createDataFrame(rows, EVENTS))
    expected = [
        (*KEY, "b", at(0), at(700), 700.0, 9000, False),
        (*KEY, "b", at(1000), at(3000), 2000.0, 5000, True),
        (*KEY, "d", None, at(5000), None, 1, True),
    ]
    assertDataFrameEqual(result, spark.createDataFrame(expected, lag.COPIES))


def busy_queues() -> list[Row]:
    rows = []
    for i in range(3000):
        queue = ("orders", "orders", "mail", "log")[i % 4]
        node = "ab"[i % 2]
        about = {"at_ms": i * 17.0, "queue": queue, "node": node}
        rows.append(row("publish", i, 1 + i % 5, size=100 * (1 + i % 5), **about))  # type: ignore[arg-type]
        rows.append(row("confirm", i, 1 + i % 5, **about))  # type: ignore[arg-type]
        rows.append(row("deliver", i, 1, redelivered=i % 10 == 0, **about))  # type: ignore[arg-type]
    rows.append(place("b", 1, 2, 100))
    return rows


def test_rates_and_hot_queues_are_those_of_duckdb(spark: SparkSession, tmp_path: Path) -> None:
    events = spark.createDataFrame(busy_queues(), EVENTS)
    events.write.parquet(str(tmp_path / "events"))
    files = f"read_parquet('{tmp_path}/events/*.parquet')"
    rates = lag.rates_10s(events)
    assertSchemaEqual(rates.schema, lag.RATES)
    mine = [
        (r["s"], r["node"], r["queue"], r["event"], r["n"], r["bytes"], r["per_second"])
        for r in rates.selectExpr("*", "unix_seconds(window) AS s").collect()
    ]
    theirs = duckdb.sql(f"""
        select epoch_us("at") // 10000000 * 10, node, queue, event, sum(count)::bigint,
               sum(bytes)::bigint, sum(count) / 10.0
        from {files} where event <> 'position' group by all order by 1, 2, 3, 4
    """).fetchall()
    assert sorted(mine) == theirs
    hot = lag.hot_queues(events)
    assertSchemaEqual(hot.schema, lag.HOT_QUEUES)
    mine_hot = [
        tuple(r[name] for name in ("queue", "published", "bytes", "peak_per_second", "redelivered"))
        for r in hot.collect()
    ]
    theirs_hot = duckdb.sql(f"""
        with s as (
            select queue, epoch_us("at") // 1000000 as second,
                   coalesce(sum(count) filter (event = 'publish'), 0)::bigint n,
                   coalesce(sum(bytes) filter (event = 'publish'), 0)::bigint bytes,
                   coalesce(sum(count) filter (event = 'deliver' and redelivered), 0)::bigint again
            from {files} where event in ('publish', 'deliver') group by all)
        select queue, sum(n)::bigint, sum(bytes)::bigint, max(n)::double, sum(again)::bigint
        from s group by queue order by 2 desc, 1
    """).fetchall()
    assert mine_hot == theirs_hot
    assert sum(r["share_percent"] for r in hot.collect()) == pytest.approx(100.0)


def test_samples_are_those_of_duckdb(spark: SparkSession, tmp_path: Path) -> None:
    rows = []
    last = 0
    for i in range(200):
        last += i * 7919 % 101
        for number, peer in enumerate("bcd"):
            behind = (i * 31 + number * 17) % 60 if number else 0
            rows.append(place(peer, max(0, last - behind), last, 1000 * i, in_sync=number < 2))
    events = spark.createDataFrame(rows, EVENTS)
    events.write.parquet(str(tmp_path / "events"))
    mine = sorted(
        (r["mirror"], r["us"], r["lag_operations"], round(r["lag_ms"], 6))
        for r in lag.samples(events).selectExpr("*", "unix_micros(at) us").collect()
    )
    theirs = duckdb.sql(f"""
        with p as (select peer, epoch_us("at") us, seq, bytes as last
                   from read_parquet('{tmp_path}/events/*.parquet')),
             m as (select last, min(us) us, max(us) until from p group by last),
             j as (select p.*,
                     (select max(last) from m where m.last <= p.seq) as b,
                     (select min(last) from m where m.last > p.seq) as a,
                     (select min(us) from m) as began from p),
             k as (select j.*, mb.until b_us, ma.us a_us from j
                   left join m mb on mb.last = j.b left join m ma on ma.last = j.a)
        select peer, us, last - seq,
               round(case when last <= seq then 0.0
                    when b is null then (us - began) / 1000.0
                    else greatest(0.0, us / 1000.0 - (greatest(b_us, a_us - 1000000) / 1000.0
                      + (seq - b) / (a - b)
                      * (a_us - greatest(b_us, a_us - 1000000)) / 1000.0)) end, 6)
        from k order by 1, 2
    """).fetchall()
    assert len(mine) == 600
    assert [one[:3] for one in mine] == [one[:3] for one in theirs]
    assert [one[3] for one in mine] == pytest.approx([float(one[3]) for one in theirs], abs=1e-2)


def test_hot_keys_of_an_archive(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [("orders", "shop", "new", b"abc")] * 3 + [("orders", "shop", "gone", b"a")],
        "queue string, exchange string, routing_key string, body binary",
    )
    expected = [
        ("orders", "shop", "new", 3, 9, 75.0),
        ("orders", "shop", "gone", 1, 1, 25.0),
    ]
    found = lag.hot_keys(rows)
    assertDataFrameEqual(found, spark.createDataFrame(expected, lag.HOT_KEYS), checkRowOrder=True)


def test_the_verdict_counts_mirrors_in_sync() -> None:
    mirrors = [
        {"mirror": "b", "queue": "orders", "max_in_sync_ms": 900.0, "not_in_sync": 0},
        {"mirror": "c", "queue": "orders", "max_in_sync_ms": 0.0, "not_in_sync": 5},
    ]
    assert lag_verdict(mirrors, 1000) == (
        True,
        "of the mirrors in sync b was furthest behind, 900 ms in queue 'orders'; within the limit "
        "of 1,000 ms; 1 of 2 mirrors were not in sync for a while",
    )
    assert lag_verdict(mirrors, 899)[0] is False
    assert lag_verdict([], 1) == (
        True,
        "no master has noted a mirror: is any of the queues mirrored?",
    )
