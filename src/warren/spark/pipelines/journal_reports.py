"""What the reports on event journals have in common."""

from __future__ import annotations

import datetime
from pathlib import Path

from pyspark.sql import DataFrame

from warren.spark.pipelines import latency, report
from warren.spark.pipelines.output import SHOWN_ROWS, say


def html_table(table: DataFrame, limit: int = SHOWN_ROWS) -> str:
    return report.table(table.columns, [tuple(row) for row in table.limit(limit).collect()])


def write_report(path: Path, title: str, text: str, good: bool, parts: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    made = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    path.write_text(report.page(title, f"Made {made} by warren pipeline.", text, good, parts))
    say(f"report: {path}")


def rates_plot(events: DataFrame) -> str:
    """Messages a second, with a mark where a queue has got another master."""
    rows = latency.per_second(events).collect()
    labels = [row["second"].strftime("%H:%M:%S") for row in rows]
    names = ("publish", "confirm", "deliver", "ack")
    promoted = events.where("event = 'promote'").select("at", "node").collect()
    places = {row["second"].replace(microsecond=0): i for i, row in enumerate(rows)}
    marks = []
    for row in promoted:
        at = places.get(row["at"].replace(microsecond=0))
        if at is not None:
            marks.append((at, f"{row['node'].partition('@')[0]} is master"))
    return report.lines(names, labels, [[float(row[n]) for row in rows] for n in names], marks)
