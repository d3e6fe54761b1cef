"""What pipelines make of files, and what another program makes of the same: it is equal."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import duckdb
import pytest
from journal_rows import Row, row
from messages import publish
from pyspark.sql import SparkSession
from source_rows import source_rows

from warren.spark.pipelines import latency
from warren.spark.pipelines.archive import Lake, write_batch
from warren.spark.pipelines.events import EVENTS
from warren.spark.pipelines.main import main
from warren.testing import Broker


def rows_of(sql: str) -> list[tuple[Any, ...]]:
    return duckdb.sql(sql).fetchall()


# -- archive, replay, typed ------------------------------------------------------------------------


def test_what_an_archive_says_it_has(
    spark: SparkSession, broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = tmp_path / "lake"
    words = ["archive", "--endpoints", broker.http_url, "--to", f"file:{lake}"]
    words += ["--queue-pattern", r"d\.(one|two)", "--batch-rows", "40"]
    publish(broker, "d.one", 0, 100)
    publish(broker, "d.two", 0, 7)
    assert main(words, spark=spark) == 0
    publish(broker, "d.two", 7, 12)
    assert main(words, spark=spark) == 0
    assert "5 messages archived" in capsys.readouterr().out
    theirs = rows_of(f"""
        select queue, incarnation, count(*), min(seq), max(seq), sum(octet_length(body))
        from read_parquet('{lake}/data/**/*.parquet') group by all order by 1, 2""")
    mine = rows_of(f"select * from '{lake}/archive_count/*.parquet' order by 1, 2")
    assert mine == theirs
    assert [(one[0], *one[2:5]) for one in mine] == [("d.one", 100, 0, 99), ("d.two", 12, 0, 11)]
    gaps = f"""
        select max(seq) - min(seq) + 1 - count(distinct seq), count(*) - count(distinct seq)
        from read_parquet('{lake}/data/**/*.parquet') group by queue"""
    assert rows_of(gaps) == [(0, 0), (0, 0)]


@pytest.fixture
def archive(spark: SparkSession, tmp_path: Path) -> Path:
    """Bodies of all sorts in three queues, in no order, in two batches."""
    dice = random.Random(11)
    lake = Lake(tmp_path / "archive")
    lake.prepare()
    bodies = (
        lambda n: json.dumps({"id": n, "total": n / 4, "note": f"n{n}"}),
        lambda n: json.dumps({"id": n, "extra": {"deep": [n]}}),
        lambda n: json.dumps({"total": 1.5}),
        lambda n: json.dumps({"id": f"x{n}"}),
        lambda _: "{" * 3,
    )
    rows = [
        {"queue": f"q{n % 3}", "seq": n, "body": dice.choice(bodies)(n).encode()}
        for n in range(200)
    ]
    dice.shuffle(rows)
    for batch, some in enumerate((rows[:90], rows[90:])):
        write_batch(source_rows(spark, some), batch, lake)
    return lake.path


def test_what_a_replay_plans(spark: SparkSession, archive: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["replay", "--archive", str(archive), "--where", "queue <> 'q1' and seq % 5 > 0"]
    words += ["--run", str(run), "--as-published", "--batch-rows", "7", "--plan-only"]
    assert main(words, spark=spark) == 0
    chosen = f"""
        with c as (
            select queue, seq, row_number() over (order by queue, seq) - 1 as n
            from read_parquet('{archive}/data/**/*.parquet')
            where queue <> 'q1' and seq % 5 > 0)"""
    log = "select n // 7, queue, count(*), min(seq), max(seq) from c group by all order by 1, 2"
    mine = rows_of(f"select * from '{run}/replay_log/*.parquet' order by 1, 2")
    assert mine == rows_of(f"{chosen} {log}")
    # The file of each batch has its rows in order.
    planned = [
        (int(path.stem), *one)
        for path in sorted((run / "rows").glob("*.parquet"))
        for one in rows_of(f"select place, from_queue, from_seq from '{path}'")
    ]
    assert planned == rows_of(f"{chosen} select n // 7, n % 7, queue, seq from c order by n")


def test_what_typed_decodes(spark: SparkSession, archive: Path, tmp_path: Path) -> None:
    entry = {"name": "order", "schema": "id bigint not null, total double, note string"}
    (tmp_path / "types.json").write_text(json.dumps({"types": [entry]}))
    words = ["typed", "--archive", str(archive), "--registry", str(tmp_path / "types.json")]
    assert main([*words, "--to", str(tmp_path / "typed")], spark=spark) == 0
    mine = rows_of(
        f"select _seq, id, total, note from '{tmp_path}/typed/tables/order/**/*.parquet' order by 1"
    )
    bodies = f"""
        with b as (select seq, decode(body) as j from read_parquet('{archive}/data/**/*.parquet')),
        v as (select seq, case when json_valid(j) then j end as j from b)"""
    good = "try_cast(j->>'id' as bigint) is not null"
    theirs = f"""{bodies} select seq, (j->>'id')::bigint, (j->>'total')::double, j->>'note'
        from v where {good} order by 1"""
    assert mine == rows_of(theirs)
    assert 0 < len(mine) < 200
    bad = rows_of(f"select seq from '{tmp_path}/typed/quarantine/**/*.parquet' order by 1")
    assert bad == rows_of(
        f"{bodies} select seq from v where not coalesce({good}, false) order by 1"
    )


# -- journals --------------------------------------------------------------------------------------


def spoilt_life(dice: random.Random, queue: str, count: int) -> list[Row]:
    """A queue's journal in which messages are lost, settled twice and delivered again."""
    rows: list[Row] = []
    held = set(dice.sample(range(count), 40))
    lost = set(dice.sample(sorted(set(range(count)) - held), 9))
    for seq in range(count):
        at_ms = seq * 3
        rows.append(row("publish", seq, at_ms=at_ms, queue=queue))
        rows.append(row("confirm", seq, at_ms=at_ms + 1 + dice.random(), queue=queue))
        if seq not in held:
            rows.append(row("deliver", seq, at_ms=at_ms + 2, queue=queue))
            if seq not in lost:
                rows.append(row("ack", seq, at_ms=at_ms + 4, queue=queue))
    for seq in dice.sample(sorted(set(range(count)) - held - lost), 12):
        rows.append(row("ack", seq, at_ms=seq * 3 + 9, queue=queue))
        rows.append(row("deliver", seq, at_ms=seq * 3 + 8, queue=queue, redelivered=seq % 2 == 0))
    end_ms = count * 3 + 100
    rows += [row("held", seq, at_ms=end_ms, queue=queue) for seq in sorted(held)]
    return [*rows, row("snapshot", count, at_ms=end_ms, queue=queue)]


@pytest.fixture
def journal(spark: SparkSession, tmp_path: Path) -> Path:
    dice = random.Random(4)
    rows = [one for n in range(3) for one in spoilt_life(dice, f"q{n}", 2_000)]
    # Half of them in an old snapshot, which does not count.
    rows += [
        row("held", 0, 1_000, at_ms=5, queue="q0"),
        row("snapshot", 1_000, at_ms=5, queue="q0"),
    ]
    dice.shuffle(rows)
    place = tmp_path / "events"
    spark.createDataFrame(rows, EVENTS).coalesce(2).write.parquet(str(place))
    return place


def test_what_an_audit_finds(spark: SparkSession, journal: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["audit", "--journal", str(journal), "--out", str(out)], spark=spark) == 1
    judged = f"""
        with e as (select queue, event, redelivered, "at" as t,
                          unnest(range(seq, seq + count)) as seq
                   from '{journal}/*.parquet'),
        s as (select queue, max(t) as newest from e where event = 'snapshot' group by 1),
        m as (select e.queue, seq, count(*) filter (event = 'confirm') c,
                     count(*) filter (event = 'ack') a,
                     count(*) filter (event = 'deliver' and not redelivered) d,
                     count(*) filter (event = 'held' and t = newest) h
              from e join s using (queue) where event <> 'snapshot' group by all)"""
    for table, wrong in (
        ("audit_lost", "c > 0 and a = 0 and h = 0"),
        ("audit_duplicate", "a > 1"),
        ("audit_unflagged", "d > 1"),
    ):
        mine = rows_of(f"select queue, seq from '{out}/{table}/*.parquet' order by 1, 2")
        theirs = rows_of(f"{judged} select queue, seq from m where {wrong} order by 1, 2")
        assert mine == theirs
        assert len(mine) > 9
    totals = f"""{judged} select queue, sum(c)::bigint, sum(a)::bigint, sum(h)::bigint,
        count(*) filter (c > 0 and a = 0 and h = 0) from m group by 1 order by 1"""
    mine = rows_of(
        f"select queue, confirmed, gone, held, lost from '{out}/audit_queue/*.parquet' order by 1"
    )
    assert mine == rows_of(totals)


def test_windows_without_a_confirm(spark: SparkSession, tmp_path: Path) -> None:
    dice = random.Random(8)
    rows, at_ms = [], 0.0
    for seq in range(400):
        at_ms += 2_500 if dice.random() < 0.04 else dice.random() * 20
        rows.append(row("publish", seq, at_ms=at_ms - 1))
        rows.append(row("confirm", seq, at_ms=at_ms))
    path = tmp_path / "events"
    events = spark.createDataFrame(rows, EVENTS)
    events.coalesce(1).write.parquet(str(path))
    found = latency.outages(events, 1000).selectExpr("unix_micros(to_at)", "gap_ms").collect()
    theirs = f"""
        with c as (select epoch_us("at") as us, lag(epoch_us("at")) over (order by "at", seq) as was
                   from '{path}/*.parquet' where event = 'confirm')
        select us, (us - was) / 1000.0 from c where us - was > 1000000 order by 1"""
    mine = [tuple(one) for one in found]
    assert mine == rows_of(theirs)
    assert len(mine) > 5
