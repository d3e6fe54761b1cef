"""One function for each pipeline: reads, runs the transforms, prints, writes; its exit code."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from warren.spark.pipelines import latency, report
from warren.spark.pipelines.archive import CURSOR, Lake, compact, run_archive
from warren.spark.pipelines.audit import Audit, audit
from warren.spark.pipelines.events import read_events
from warren.spark.pipelines.firehose_job import run_firehose_audit
from warren.spark.pipelines.journal_reports import html_table, rates_plot, write_report
from warren.spark.pipelines.output import say, show, write_tables
from warren.spark.pipelines.replay import Replay, Target, choose, log_of, plan

GOOD, BAD = 0, 1


def connection_options(given: argparse.Namespace) -> dict[str, str]:
    """The connector's options of what was given."""
    options = {
        "endpoints": given.endpoints,
        "vhost": given.vhost,
        "user": given.user,
        "passwordFile": given.password_file,
        "queues": getattr(given, "queues", None),
        "queuePattern": getattr(given, "queue_pattern", None),
    }
    return {name: value for name, value in options.items() if value}


# -- archive ---------------------------------------------------------------------------------------


def run_archive_job(spark: SparkSession, given: argparse.Namespace) -> int:
    lake = Lake(Path(given.to).absolute(), given.format == "delta")
    if given.compact:
        before, after = compact(spark, lake)
        say(f"{lake.path}: {before:,} files are now {after:,}")
        return GOOD
    options = {
        **connection_options(given),
        "cursor": given.cursor or CURSOR,
        "mode": given.mode,
        "startingOffsets": given.starting_offsets,
        "maxOffsetsPerTrigger": str(given.batch_rows),
    }
    rows = run_archive(spark, options, lake, given.follow, given.interval)
    say(f"{rows:,} messages archived in {lake.data}; {sum_rows(lake):,} in all")
    return GOOD


def sum_rows(lake: Lake) -> int:
    return sum(int(one["rows"]) for one in lake.written())


# -- replay ----------------------------------------------------------------------------------------


def run_replay_job(spark: SparkSession, given: argparse.Namespace) -> int:
    replay = Replay(Path(given.run).absolute())
    if not replay.is_planned:
        rows = choose(spark, Path(given.archive).absolute(), given.where)
        target = Target() if given.as_published else Target(given.exchange, given.routing_key)
        planned = plan(rows, target, given.batch_rows).cache()
        if planned.isEmpty():
            say("no row of the archive was chosen: nothing to replay")
            return GOOD
        replay.write_plan(planned)
        write_tables(replay.path, {"replay_log": log_of(planned)})
    show("Plan", spark.read.parquet(str(replay.path / "replay_log")).orderBy("batch"))
    if given.plan_only:
        say(f"\nplanned in {replay.rows}; the same command without --plan-only publishes it")
        return GOOD
    options = {name: value for name, value in connection_options(given).items() if value}
    pause_s = given.batch_rows / given.rate if given.rate else 0.0
    replay.publish(spark, {**options, "onUnroutable": given.on_unroutable}, pause_s)
    say(f"\nreplayed: every message of the plan is in its queues, once ({replay.path})")
    return GOOD


# -- audit -----------------------------------------------------------------------------------------


def run_audit_job(spark: SparkSession, given: argparse.Namespace) -> int:
    if not given.journal:
        return run_firehose_audit(spark, given, connection_options(given))
    with read_events(spark, [Path(one) for one in given.journal]) as events:
        found = audit(events, every=given.every)
        queues = [row.asDict() for row in show("Queues", found.queues, limit=200)]
        total = _total(queues)
        if total["lost"]:
            show("Lost", found.lost)
        if total["unflagged"]:
            show("Came again without a flag", found.unflagged)
        good, text = audit_verdict(total)
        say(f"\n{text}")
        if given.out:
            _write_audit(Path(given.out), found, events, good, text)
    return GOOD if good else BAD


def _total(queues: list[dict[str, Any]]) -> dict[str, int]:
    names = ("published", "confirmed", "gone", "held", "unjudged", "redelivered")
    more = ("duplicates", "unflagged", "lost")
    return {name: sum(int(row[name]) for row in queues) for name in (*names, *more)}


def audit_verdict(total: dict[str, int]) -> tuple[bool, str]:
    """Whether all is well, and the sentence that says so."""
    good = not total["lost"] and not total["unflagged"]
    seen = f"{total['confirmed']:,} confirmed"
    if total["unflagged"]:
        rest = f"{total['unflagged']:,} came again WITHOUT A FLAG, "
    else:
        flagged = ", all of them flagged" if total["redelivered"] else ""
        rest = f"{total['redelivered']:,} redelivered{flagged}, "
    later = f"{total['unjudged']:,} too new to be judged, " if total["unjudged"] else ""
    twice = f"{total['duplicates']:,} settled twice"
    lost = "nothing confirmed was lost" if not total["lost"] else f"{total['lost']:,} LOST"
    return good, f"{lost}: {seen}, {total['held']:,} still queued, {rest}{later}{twice}"


def _write_audit(out: Path, found: Audit, events: DataFrame, good: bool, text: str) -> None:
    tables = {
        "audit_queue": found.queues,
        "audit_block": found.blocks,
        "audit_lost": found.lost,
        "audit_duplicate": found.duplicates,
        "audit_unflagged": found.unflagged,
    }
    write_tables(out, tables)
    parts = [
        report.section(
            "Messages a second",
            "All queues together, by the clocks of the nodes.",
            rates_plot(events),
        ),
        report.section(
            "Queues",
            "Gone: acknowledged, expired, dropped or purged. Looked into: blocks of 65,536 "
            "positions whose sums did not agree, so that each message was looked at.",
            html_table(found.queues, 200),
        ),
        report.section(
            "Lost", "Confirmed, and then neither settled nor there.", html_table(found.lost)
        ),
        report.section(
            "Settled twice",
            "Legal after a failover: the settlement had not reached the other replicas.",
            html_table(found.duplicates),
        ),
        report.section("Came again without a flag", "Never legal.", html_table(found.unflagged)),
    ]
    write_report(out / "audit.html", "Delivery audit", text, good, parts)


# -- latency ---------------------------------------------------------------------------------------


def run_latency_job(spark: SparkSession, given: argparse.Namespace) -> int:
    with read_events(spark, [Path(one) for one in given.journal]) as events:
        minutes = latency.per_minute(events).cache()
        windows = latency.outages(events, given.gap_ms).cache()
        show("Latency by minute", minutes, limit=60)
        gaps = show(f"Windows of more than {given.gap_ms:,} ms without a confirm", windows)
        limit = given.fail_over_ms
        longest = max((row["gap_ms"] for row in gaps), default=0.0)
        good = limit is None or longest <= limit
        text = f"the longest window without a confirm took {longest:,.0f} ms"
        if limit is not None:
            text += f"; {'within' if good else 'MORE THAN'} the limit of {limit:,} ms"
        say(f"\n{text}")
        if given.out:
            out = Path(given.out)
            write_tables(out, {"latency_1m": minutes, "outage": windows})
            parts = [
                report.section("Messages a second", "All queues together.", rates_plot(events)),
                *_latency_plots(minutes),
                report.section(
                    "Windows without a confirm",
                    "While messages were published, or the queue got another master.",
                    html_table(windows),
                ),
                report.section("By minute", "Exact percentiles.", html_table(minutes, 500)),
            ]
            write_report(out / "latency.html", "Latency", text, good, parts)
    return GOOD if good else BAD


def _latency_plots(minutes: DataFrame) -> list[str]:
    parts = []
    rows = minutes.collect()
    for key in sorted({(row["vhost"], row["queue"], row["step"]) for row in rows}):
        chosen = [row for row in rows if (row["vhost"], row["queue"], row["step"]) == key]
        labels = [row["minute"].strftime("%H:%M") for row in chosen]
        names = ("p50_ms", "p99_ms", "p999_ms")
        series = [[float(row[name]) for row in chosen] for name in names]
        drawn = report.lines(("p50 ms", "p99 ms", "p99.9 ms"), labels, series)
        parts.append(report.section(f"{key[1]}: {key[2]}", f"Virtual host {key[0]}.", drawn))
    return parts
