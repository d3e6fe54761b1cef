"""What the reports on event journals have in common."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from warren.spark.errors import WarrenError
from warren.spark.pipelines import latency, report
from warren.spark.pipelines.output import SHOWN_ROWS, say

#: Points of a plot over time, at most.
POINTS = 600
_STEPS_S = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
Span = tuple[datetime.datetime, datetime.datetime]


def html_table(table: DataFrame, limit: int = SHOWN_ROWS) -> str:
    return report.table(table.columns, [tuple(row) for row in table.limit(limit).collect()])


def write_report(
    path: Path,
    title: str,
    text: str,
    good: bool,
    parts: list[str],
    figures: str = "",
    about: str = "",
) -> None:
    """Under its name only when it is whole. Raises WarrenError when there is no room for it."""
    made = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    note = f"{about} Made {made} by warren pipeline.".strip()
    part = path.with_suffix(".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(report.page(title, note, text, good, parts, figures))
        part.rename(path)
    except OSError as error:
        raise WarrenError(
            f"the report cannot be written to {path}: {error.strerror}; choose another place "
            "with --out"
        ) from error
    say(f"report: {path}")


# -- time ------------------------------------------------------------------------------------------


def seconds_of(events: DataFrame) -> DataFrame:
    """What each second had: one pass over the journal, for all that a report says of time."""
    return latency.per_second(events).cache()


def span_of(seconds: DataFrame) -> Span | None:
    """From the first to the last of them."""
    (row,) = seconds.agg(F.min("second").alias("a"), F.max("second").alias("b")).collect()
    return None if row["a"] is None else (row["a"], row["b"])


def covered(seconds: DataFrame) -> str:
    """What a journal is about, as a sentence."""
    span = span_of(seconds)
    if span is None:
        return ""
    begin, end = span
    form = "%H:%M:%S" if begin.date() == end.date() else "%Y-%m-%d %H:%M:%S"
    length_s = (end - begin).total_seconds() + 1
    long = f"{length_s:,.0f} s" if length_s < 600 else f"{length_s / 60:,.0f} minutes"
    return f"{begin:%Y-%m-%d %H:%M:%S} to {end.strftime(form)} UTC, {long}."


def step_for(span: Span) -> int:
    """Seconds between two points, so that a plot has not too many."""
    length_s = (span[1] - span[0]).total_seconds()
    return next((s for s in _STEPS_S if length_s / s <= POINTS), 86_400)


def spaced(span: Span, step_s: int) -> list[datetime.datetime]:
    """Every step of a span: a plot has to show also when nothing happened."""
    first, last = (int(at.timestamp()) // step_s * step_s for at in span)
    zone = span[0].tzinfo
    return [datetime.datetime.fromtimestamp(at, zone) for at in range(first, last + step_s, step_s)]


def place_of(at: datetime.datetime, times: Sequence[datetime.datetime], step_s: int) -> float:
    """Where a time stands among the points of a plot."""
    place = (at - times[0]).total_seconds() / step_s - 0.5
    return min(max(place, -0.5), len(times) - 0.5)


def rates_plot(
    events: DataFrame,
    seconds: DataFrame,
    bands: Sequence[tuple[datetime.datetime, datetime.datetime, str]] = (),
) -> str:
    """Messages a second, with a mark where a queue has got another master."""
    promoted = events.where("event = 'promote'").groupBy("at", "node").agg(F.count("*").alias("n"))
    marks = []
    for row in promoted.orderBy("at").collect():
        queues = "" if row["n"] == 1 else f" of {row['n']:,} queues"
        marks.append((row["at"], f"{row['node'].partition('@')[0]} becomes master{queues}"))
    return seconds_plot(seconds, ("publish", "confirm", "deliver", "ack"), marks, bands)


def seconds_plot(
    seconds: DataFrame,
    names: Sequence[str],
    marks: Sequence[tuple[datetime.datetime, str]] = (),
    bands: Sequence[tuple[datetime.datetime, datetime.datetime, str]] = (),
) -> str:
    """Columns of a table that has a row for each second, as so many messages a second."""
    span = span_of(seconds)
    if span is None:
        return report.lines((), (), ())
    step_s = step_for(span)
    times = spaced(span, step_s)
    start = latency.beginning(F.col("second"), step_s).alias("start")
    summed = seconds.groupBy(start).agg(*[F.sum(name).alias(name) for name in names])
    rows = {row["start"]: row for row in summed.collect()}
    series = [
        [float(rows[at][name]) / step_s if at in rows else 0.0 for at in times] for name in names
    ]

    def place(at: datetime.datetime) -> float:
        return place_of(at, times, step_s)

    shown = [(place(at), text) for at, text in marks if span[0] <= at <= span[1]]
    shaded = [(place(begin), place(end), text) for begin, end, text in bands]
    return report.lines(names, times, series, shown, bands=shaded, unit="messages a second")
