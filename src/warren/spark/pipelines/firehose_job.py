"""The audit of a firehose as a job."""

from __future__ import annotations

import argparse
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from warren.spark.client import Client
from warren.spark.errors import Refused, WarrenError
from warren.spark.pipelines import firehose, report
from warren.spark.pipelines.journal_reports import (
    covered,
    html_table,
    seconds_plot,
    write_report,
)
from warren.spark.pipelines.output import say, show, write_tables
from warren.spark.pipelines.places import local_path
from warren.spark.pipelines.queue_rows import queue_rows
from warren.spark.pipelines.replay import choose

GOOD, BAD = 0, 1
#: Queues in a plot.
BARS = 20


def run_firehose_audit(
    spark: SparkSession, given: argparse.Namespace, connection: dict[str, str]
) -> int:
    """From queues that are bound to `amq.rabbitmq.trace`, or from an archive of such."""
    if given.firehose_archive:
        rows = choose(spark, local_path(given.firehose_archive), given.where)
        return _audit(spark, given, rows, None)
    with queue_rows(spark, {**connection, "queues": given.firehose}, "firehose") as (rows, client):
        return _audit(spark, given, rows, client)


def _audit(
    spark: SparkSession, given: argparse.Namespace, rows: DataFrame, client: Client | None
) -> int:
    found = firehose.traces(rows).cache()
    judged = firehose.messages(found).cache()
    names = [tuple(row) for row in judged.select("vhost", "queue").distinct().collect()]
    if not names:
        raise WarrenError(
            "there are no traces: is tracing on (warrenctl trace_on), and is the queue bound to "
            "amq.rabbitmq.trace with the key '#'?"
        )
    held = spark.createDataFrame(_held(client, names), firehose.HELD)
    queues = firehose.per_queue(judged, held).cache()
    told = [row.asDict() for row in show("Queues", queues, limit=200)]
    undelivered = judged.where("undelivered > 0").orderBy("vhost", "queue", "first_at", "message")
    unflagged = judged.where("unflagged > 0").orderBy("vhost", "queue", "first_at", "message")
    good, text = firehose_verdict(told)
    if not good:
        show("Not delivered", undelivered)
        show("Came again without a flag", unflagged)
    say(f"\n{text}")
    if given.out:
        out = local_path(given.out)
        tables = {"firehose_queue": queues, "firehose_undelivered": undelivered}
        write_tables(out, {**tables, "firehose_unflagged": unflagged})
        seconds = firehose.per_second(found.where(F.col("at").isNotNull())).cache()
        parts = _parts(seconds, queues, undelivered, unflagged)
        title, figures = "Delivery audit of a firehose", _tiles(told)
        write_report(out / "audit.html", title, text, good, parts, figures, covered(seconds))
    return GOOD if good else BAD


def _held(client: Client | None, names: list[tuple[Any, ...]]) -> list[tuple[str, str, int]]:
    """How many messages wait in each queue now; of queues that are gone, nothing is known."""
    found = []
    for vhost, queue in names:
        if client is None or vhost != client.vhost:
            continue
        try:
            told = client.queue_info(queue)
        except Refused:
            continue
        found.append((vhost, queue, int(told.get("messages_ready", 0))))
    return found


def firehose_verdict(queues: list[dict[str, Any]]) -> tuple[bool, str]:
    """Whether all is well, and the sentence that says so."""
    total = _totals(queues)
    good = not total["missing"] and not total["unflagged"]
    seen = f"{total['published']:,} published, {total['delivered']:,} delivered"
    if total["missing"]:
        first = f"{total['missing']:,} MISSING, neither delivered nor waiting"
    elif any(row["missing"] is None for row in queues) and total["undelivered"]:
        first = f"{total['undelivered']:,} were not delivered while it was traced"
    else:
        first = "nothing is missing"
    again = f"{total['redelivered']:,} redelivered"
    if total["unflagged"]:
        again = f"{total['unflagged']:,} came again WITHOUT A FLAG"
    return good, f"{first}: {seen}, {again}"


def _totals(queues: list[dict[str, Any]]) -> dict[str, int]:
    return {
        name: sum(int(row[name] or 0) for row in queues)
        for name in ("published", "delivered", "redelivered", "undelivered", "unflagged", "missing")
    }


def _tiles(queues: list[dict[str, Any]]) -> str:
    total = _totals(queues)
    is_known = all(row["missing"] is not None for row in queues)
    missing = ("missing", f"{total['missing']:,}", "wrong" if total["missing"] else "right")
    return report.tiles(
        [
            ("published", f"{total['published']:,}", ""),
            ("delivered", f"{total['delivered']:,}", ""),
            missing if is_known else ("not delivered", f"{total['undelivered']:,}", ""),
            (
                "again without a flag",
                f"{total['unflagged']:,}",
                "wrong" if total["unflagged"] else "right",
            ),
            ("redelivered, flagged", f"{total['redelivered']:,}", ""),
            ("still queued", f"{sum(row['held'] for row in queues):,}" if is_known else "?", ""),
        ]
    )


def _parts(
    seconds: DataFrame, queues: DataFrame, undelivered: DataFrame, unflagged: DataFrame
) -> list[str]:
    drawn = seconds_plot(seconds, ("publish", "deliver"))
    busiest = queues.orderBy(F.desc("published"), "vhost", "queue").limit(BARS).collect()
    bars = report.bars(
        [row["queue"] for row in busiest], [float(row["published"]) for row in busiest]
    )
    return [
        report.section(
            "Messages a second", "Of traces of which the broker knows when they came.", drawn
        ),
        report.section("Published by queue", "Messages that were routed to it.", bars),
        report.section(
            "Queues",
            "Held: what waits in a queue now. Missing: neither delivered nor there; it has "
            "expired, was dropped or purged, or is lost. Unannounced: delivered, and its publish "
            "was not traced.",
            html_table(queues, 200),
        ),
        report.section("Not delivered", "The first twenty.", html_table(undelivered)),
        report.section("Came again without a flag", "Never legal.", html_table(unflagged)),
    ]
