"""The audit as a job, with its report."""

from __future__ import annotations

import argparse
import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from warren.spark.pipelines import progress, report
from warren.spark.pipelines.audit import Audit, audit
from warren.spark.pipelines.events import BLOCK, LEVEL_SHIFT, QUEUE, read_events, whole_since
from warren.spark.pipelines.firehose_job import run_firehose_audit
from warren.spark.pipelines.jobs import BAD, GOOD, connection_options
from warren.spark.pipelines.journal_reports import (
    covered,
    html_table,
    rates_plot,
    seconds_of,
    write_report,
)
from warren.spark.pipelines.output import SHOWN_ROWS, say, show, write_tables
from warren.spark.pipelines.places import local_path

#: Squares of a queue's row; of more blocks, several share one.
SQUARES = 600
#: Queues whose blocks are drawn, those that were looked into first.
DRAWN_QUEUES = 40
#: What a report tells of a message that is wrong.
_TOLD = (
    *("vhost", "queue", "incarnation", "seq", "lost", "duplicate", "unflagged", "confirmed"),
    *("gone", "held", "delivered", "redelivered", "confirmed_at", "confirmed_by"),
)
_TONES = {
    "ok": "well: the sums agree",
    "seen": "looked at message by message, and well",
    "odd": "settled twice, or not to be judged (too new, or of a time that is gone)",
    "lost": "something is lost, or came again without a flag",
}


def run_audit_job(spark: SparkSession, given: argparse.Namespace) -> int:
    if not given.journal:
        return run_firehose_audit(spark, given, connection_options(given))
    journals = [local_path(one) for one in given.journal]
    since = whole_since(journals)
    with read_events(spark, journals) as events:
        progress.phase("adding up")
        found = audit(events, every=given.every, since=since)
        queues = [row.asDict() for row in show("Queues", found.queues, limit=200)]
        total = totals(found.queues)
        if total["lost"]:
            show("Lost", found.lost.select(*_TOLD))
        if total["unflagged"]:
            show("Came again without a flag", found.unflagged.select(*_TOLD))
        good, text = audit_verdict(total, since)
        note = gone_note(since)
        say(f"{note}\n{text}" if note else f"\n{text}")
        if given.out:
            _write_audit(local_path(given.out), found, events, (good, text), total, queues, note)
    return GOOD if good else BAD


def gone_note(since: datetime.datetime | None) -> str:
    """What a reader has to know of segments that made room for others; empty: none did."""
    if since is None:
        return ""
    return (
        f"Segments of before {since:%Y-%m-%d %H:%M:%S} UTC were removed to make room "
        "(journal.max_bytes): what was confirmed by then and is not known to have left may have "
        "done so in there, and is not judged."
    )


def totals(queues: DataFrame) -> dict[str, int]:
    """Of all queues, also of those that are too many to be printed."""
    names = (
        *("published", "confirmed", "gone", "held", "unjudged", "redelivered", "duplicates"),
        *("unflagged", "lost", "blocks", "looked_into"),
    )
    (row,) = queues.agg(
        *[F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in names]
    ).collect()
    return {name: int(row[name]) for name in names}


def audit_verdict(
    total: dict[str, int], since: datetime.datetime | None = None
) -> tuple[bool, str]:
    """Whether all is well, and the sentence that says so; before `since` events may be gone."""
    good = not total["lost"] and not total["unflagged"]
    seen = f"{total['confirmed']:,} confirmed"
    if total["unflagged"]:
        rest = f"{total['unflagged']:,} came again WITHOUT A FLAG, "
    else:
        flagged = ", all of them flagged" if total["redelivered"] else ""
        rest = f"{total['redelivered']:,} redelivered{flagged}, "
    old = ""
    if since is not None:
        old = f", or confirmed before {since:%Y-%m-%d %H:%M:%S} UTC"
    later = f"{total['unjudged']:,} too new to be judged{old}, " if total["unjudged"] else ""
    twice = f"{total['duplicates']:,} settled twice"
    lost = "nothing confirmed was lost" if not total["lost"] else f"{total['lost']:,} LOST"
    return good, f"{lost}: {seen}, {total['held']:,} still queued, {rest}{later}{twice}"


def _write_audit(
    out: Path,
    found: Audit,
    events: DataFrame,
    verdict: tuple[bool, str],
    total: dict[str, int],
    queues: list[dict[str, Any]],
    note: str,
) -> None:
    tables = {
        "audit_queue": found.queues,
        "audit_block": found.blocks,
        "audit_lost": found.lost,
        "audit_duplicate": found.duplicates,
        "audit_unflagged": found.unflagged,
    }
    progress.phase("writing tables")
    write_tables(out, tables)
    progress.phase("drawing the report")
    seconds = seconds_of(events)
    parts = [
        report.section(
            "Messages a second",
            "All queues together, by the clocks of the nodes.",
            rates_plot(events, seconds),
        ),
        report.section(
            "Every message, block by block",
            "A square is 65,536 positions of a queue, from the oldest on. Where what was "
            "published, confirmed, delivered, settled and is still held adds up to the same "
            "positions, nothing more has to be looked at.",
            blocks_picture(found, queues),
        ),
        report.section(
            "Queues",
            "Gone: acknowledged, expired, dropped or purged. Held: still there. Looked into: "
            "blocks whose messages were looked at one by one.",
            html_table(found.queues, 200),
        ),
    ]
    wrong = (
        ("lost", "Lost", "Confirmed, and then neither settled nor there.", found.lost),
        ("unflagged", "Came again without a flag", "Never legal.", found.unflagged),
        (
            "duplicates",
            "Settled twice",
            "Legal after a failover: the settlement had not reached the other replicas.",
            found.duplicates,
        ),
    )
    for name, title, said, table in wrong:
        if total[name]:
            few = "" if total[name] <= SHOWN_ROWS else f" The first of {total[name]:,}."
            rows = html_table(table.select(*_TOLD))
            parts.append(report.section(title, f"{said}{few}", rows))
    good, text = verdict
    about = f"{covered(seconds)} {note}".strip()
    write_report(out / "audit.html", "Delivery audit", text, good, parts, _tiles(total), about)


def _tiles(total: dict[str, int]) -> str:
    def tone(name: str) -> str:
        return "wrong" if total[name] else "right"

    return report.tiles(
        [
            ("published", f"{total['published']:,}", ""),
            ("confirmed", f"{total['confirmed']:,}", ""),
            ("confirmed and lost", f"{total['lost']:,}", tone("lost")),
            ("again without a flag", f"{total['unflagged']:,}", tone("unflagged")),
            ("redelivered, flagged", f"{total['redelivered']:,}", ""),
            ("still queued", f"{total['held']:,}", ""),
            ("blocks looked into", f"{total['looked_into']:,} of {total['blocks']:,}", ""),
        ]
    )


def blocks_picture(found: Audit, queues: list[dict[str, Any]]) -> str:
    """The blocks of each queue as squares."""
    wrong = found.messages.withColumn("block", F.shiftright("seq", 16))
    marked = wrong.groupBy(*QUEUE, "block").agg(
        F.count_if(F.col("lost").isNotNull() | F.col("unflagged")).alias("lost"),
        F.count_if(F.col("duplicate") | ~F.col("judged")).alias("odd"),
    )
    order = {
        tuple(row[name] for name in QUEUE): (-row["lost"] - row["unflagged"], -row["looked_into"])
        for row in queues
    }
    chosen = sorted(order, key=lambda key: (order[key], key))[:DRAWN_QUEUES]
    squares: dict[tuple[Any, ...], list[tuple[str, str]]] = {key: [] for key in chosen}
    rows = found.blocks.join(marked, [*QUEUE, "block"], "left").na.fill(0, ["lost", "odd"])
    for row in rows.orderBy(*QUEUE, "block").toLocalIterator():
        key = tuple(row[name] for name in QUEUE)
        if key in squares:
            squares[key].append(_square(row))
    shown = [(str(key[1]), _fewer(squares[key])) for key in sorted(chosen)]
    return report.cells(shown, _TONES)


def _square(row: Any) -> tuple[str, str]:
    level, first = divmod(row["block"] * BLOCK, 1 << LEVEL_SHIFT)
    where = f"from {first:,}" + (f" of priority {level}" if level else "")
    text = f"{where}: {row['published']:,} published, {row['confirmed']:,} confirmed"
    if row["agrees"]:
        return "ok", text
    if row["lost"]:
        return "lost", f"{text}; {row['lost']:,} wrong"
    return ("odd", f"{text}; {row['odd']:,} of them") if row["odd"] else ("seen", text)


def _fewer(squares: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """So many that they can be seen: of several that share a square the worst."""
    each = max(1, -(-len(squares) // SQUARES))
    worst = list(_TONES).index
    return [
        max(squares[i : i + each], key=lambda one: worst(one[0]))
        for i in range(0, len(squares), each)
    ]
