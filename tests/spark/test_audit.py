"""The audit finds exactly what was lost, came twice, or came again without a flag."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from journal_rows import BEGAN, Row, plain_life, row, without
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual, assertSchemaEqual

from warren.spark.pipelines import audit as auditing
from warren.spark.pipelines.audit_job import audit_verdict
from warren.spark.pipelines.events import BLOCK, EVENTS


@pytest.fixture
def audited(spark: SparkSession):  # type: ignore[no-untyped-def]
    def run(rows: list[Row], every: bool = False, since: Any = None) -> auditing.Audit:
        return auditing.audit(spark.createDataFrame(rows, EVENTS), every, since)

    return run


def numbers(table: DataFrame) -> list[int]:
    return [found["seq"] for found in table.collect()]


def test_a_plain_life_is_settled_by_the_sums_alone(spark: SparkSession, audited: object) -> None:
    count = 70_000
    result = audited(plain_life(count))  # type: ignore[operator]
    assertSchemaEqual(result.queues.schema, auditing.QUEUES)
    assertSchemaEqual(result.messages.schema, auditing.MESSAGES)
    expected = [("/", "orders", 7, count, count, count, 0, 0, 0, 0, 0, 0, 2, 0)]
    assertDataFrameEqual(result.queues, spark.createDataFrame(expected, auditing.QUEUES))
    assert numbers(result.messages) == []


def test_losses_duplicates_and_unflagged_redeliveries_are_found_exactly(audited: object) -> None:
    lost = {5, 66_000, 66_001, 69_999}
    rows = without(plain_life(70_000), "ack", lost)
    rows += [row("ack", 7), row("deliver", 7, redelivered=True)]
    rows += [row("deliver", 68_000), row("deliver", 68_001, redelivered=True)]
    rows += plain_life(1000, queue="other")
    result = audited(rows)  # type: ignore[operator]
    assert numbers(result.lost) == sorted(lost)
    assert {found["lost"] for found in result.lost.collect()} == {"missing"}
    # Where to look: when it was confirmed, and by whom.
    told = result.lost.selectExpr("unix_millis(confirmed_at) AS ms", "confirmed_by").collect()
    began_ms = int(BEGAN.timestamp() * 1000)
    assert [tuple(one) for one in told[:2]] == [(began_ms + 1, "a"), (began_ms + 66_001, "a")]
    assert numbers(result.duplicates) == [7]
    assert numbers(result.unflagged) == [68_000]
    by_queue = {found["queue"]: found for found in result.queues.collect()}
    assert by_queue["orders"]["lost"] == 4
    assert by_queue["orders"]["redelivered"] == 2
    assert by_queue["other"]["lost"] == by_queue["other"]["looked_into"] == 0


@pytest.mark.parametrize(
    ("lost", "twice"), [({7}, {8}), ({10, 13}, {11, 12}), ({66_000, 66_900}, {66_100, 66_800})]
)
def test_losses_that_duplicates_make_up_for_are_found(
    audited: object, lost: set[int], twice: set[int]
) -> None:
    """As many leave as were confirmed, and their positions may add up to the same."""
    rows = [*without(plain_life(70_000), "ack", lost), *[row("ack", seq) for seq in twice]]
    result = audited(rows)  # type: ignore[operator]
    assert numbers(result.lost) == sorted(lost)
    assert numbers(result.duplicates) == sorted(twice)
    assert result.queues.collect()[0]["looked_into"] == 1


def test_what_queues_hold_and_what_is_too_new_is_not_lost(audited: object) -> None:
    rows = [
        row("publish", 0, 10),
        row("confirm", 0, 10),
        row("deliver", 0, 5),
        row("ack", 0, 5),
        # An older snapshot, which does not count, and the newest.
        row("snapshot", 10, at_ms=50),
        row("held", 0, 10, at_ms=50),
        row("snapshot", 8, at_ms=100),
        row("held", 5, 3, at_ms=100),
        row("confirm", 10, 2, at_ms=200),
        row("publish", 10, 2, at_ms=199),
    ]
    result = audited([*rows[:6], row("snapshot", 10, at_ms=100), row("held", 5, 5, at_ms=100)])  # type: ignore[operator]
    assert numbers(result.lost) == []
    judged = audited(rows)  # type: ignore[operator]
    # 8 and 9 were confirmed before a snapshot of the same node that knows nothing of them.
    assert [(r["seq"], r["lost"]) for r in judged.lost.collect()] == [
        (8, "cut off"),
        (9, "cut off"),
    ]
    assert judged.queues.collect()[0]["unjudged"] == 2


def test_a_position_that_was_given_twice_after_a_failover_is_a_loss(audited: object) -> None:
    rows = [
        row("publish", 0, 3, epoch=1),
        row("confirm", 0, 2, epoch=1),
        # The new master has 0 only; it gives 1 and 2 to other messages.
        row("publish", 1, 2, epoch=2, node="b", at_ms=5),
        row("confirm", 1, 2, epoch=2, node="b", at_ms=5),
        row("deliver", 0, 3, node="b", at_ms=6, epoch=2),
        row("ack", 0, 3, node="b", at_ms=7, epoch=2),
        row("snapshot", 3, node="b", at_ms=9, epoch=2),
    ]
    result = audited(rows)  # type: ignore[operator]
    assert [(r["seq"], r["lost"]) for r in result.lost.collect()] == [(1, "overwritten")]


def test_what_may_have_been_settled_in_a_part_that_is_gone_is_not_called_lost(
    audited: object,
) -> None:
    """One node has removed its oldest segments, another still knows what it confirmed by then."""
    rows = without(plain_life(4_000), "ack", {5, 3_005})
    rows += [row("publish", 5, epoch=2, at_ms=4_500), row("confirm", 5, epoch=2, at_ms=4_500)]
    since = BEGAN + datetime.timedelta(milliseconds=2_500)
    result = audited(rows, since=since)  # type: ignore[operator]
    # That a position was given twice is known whatever is gone.
    assert [(r["seq"], r["lost"]) for r in result.lost.orderBy("seq").collect()] == [
        (5, "overwritten"),
        (3_005, "missing"),
    ]
    assert result.queues.collect()[0]["unjudged"] == 0
    result = audited(without(plain_life(4_000), "ack", {5, 3_005}), since=since)  # type: ignore[operator]
    assert numbers(result.lost) == [3_005]
    assert result.queues.collect()[0]["unjudged"] == 1


def test_deliveries_that_were_taken_back_do_not_count(audited: object) -> None:
    rows = [*plain_life(10), row("deliver", 3), row("take-back", 3)]
    result = audited(rows, every=True)  # type: ignore[operator]
    assert numbers(result.unflagged) == []
    assert numbers(result.messages.orderBy("seq")) == list(range(10))


def test_what_a_new_master_vouches_for_is_judged_too(audited: object) -> None:
    rows = [
        row("publish", 0, 4),
        row("confirm", 0, 2),
        row("promote", 0, node="b", epoch=2, at_ms=5),
        row("adopt", 0, 3, node="b", epoch=2, at_ms=5),
        row("deliver", 0, 2, node="b", epoch=2, at_ms=6),
        row("ack", 0, 2, node="b", epoch=2, at_ms=7),
        row("snapshot", 3, node="b", epoch=2, at_ms=9),
    ]
    result = audited(rows)  # type: ignore[operator]
    assert [(r["seq"], r["lost"]) for r in result.lost.collect()] == [(2, "missing")]


@pytest.mark.parametrize("count", [auditing.NEAR_BLOCKS, auditing.NEAR_BLOCKS + 1])
def test_losses_in_many_blocks_are_all_found(audited: object, count: int) -> None:
    """Few blocks are looked for by their positions, many by reading everything."""
    steps = ("publish", "confirm", "deliver")
    places = [n * BLOCK + n for n in range(count)]
    rows = [row(step, seq, at_ms=n) for n, step in enumerate(steps) for seq in places]
    rows += [row(step, 5, at_ms=n, queue="well") for n, step in enumerate((*steps, "ack"))]
    rows += [row("snapshot", count * BLOCK, at_ms=9), row("snapshot", 9, at_ms=9, queue="well")]
    assert numbers(audited(rows).lost) == places  # type: ignore[operator]


def test_duckdb_comes_to_the_same(spark: SparkSession, tmp_path: Path) -> None:
    rows = without(plain_life(5_000), "ack", {1, 2, 4_999})
    rows += [row("ack", 11), row("deliver", 12, redelivered=True)]
    events = spark.createDataFrame(rows, EVENTS)
    events.write.parquet(str(tmp_path / "events"))
    result = auditing.audit(events, every=True)
    mine = sorted(
        (r["seq"], r["confirmed"], r["gone"], r["delivered"]) for r in result.messages.collect()
    )
    theirs = duckdb.sql(f"""
        with one as (
            select event, unnest(range(seq, seq + count)) as seq
            from read_parquet('{tmp_path}/events/*.parquet') where event <> 'snapshot')
        select seq, count(*) filter (event = 'confirm'), count(*) filter (event = 'ack'),
               count(*) filter (event = 'deliver')
        from one group by seq order by seq
    """).fetchall()
    assert mine == theirs
    assert numbers(result.lost) == [1, 2, 4_999]


def test_the_verdict_says_the_numbers() -> None:
    total = dict.fromkeys(
        ("published", "confirmed", "gone", "held", "unjudged", "redelivered", "duplicates"), 0
    )
    good, text = audit_verdict({**total, "confirmed": 1200, "unflagged": 0, "lost": 0})
    assert good
    assert text.startswith("nothing confirmed was lost: 1,200 confirmed")
    some = {**total, "unflagged": 0, "lost": 0, "unjudged": 2}
    assert "2 too new to be judged" in audit_verdict(some)[1]
    text = audit_verdict(some, BEGAN)[1]
    assert "2 too new to be judged, or confirmed before 2026-11-18 12:00:00 UTC" in text
    bad, text = audit_verdict({**total, "unflagged": 0, "lost": 3})
    assert not bad
    assert "3 LOST" in text
