"""The latencies as a job, with their report."""

from __future__ import annotations

import argparse
import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from warren.spark.pipelines import latency, progress, report
from warren.spark.pipelines.events import read_events
from warren.spark.pipelines.jobs import BAD, GOOD
from warren.spark.pipelines.journal_reports import (
    covered,
    html_table,
    place_of,
    rates_plot,
    seconds_of,
    spaced,
    span_of,
    step_for,
    write_report,
)
from warren.spark.pipelines.output import say, show, write_tables
from warren.spark.pipelines.places import local_path

#: Queues that are drawn, those with most messages first.
DRAWN_QUEUES = 12
#: Of windows only some are shown.
LONGEST = (F.desc("gap_ms"), "from_at")
_POINTS = {"p50_ms": "p50", "p99_ms": "p99", "p999_ms": "p99.9"}


def run_latency_job(spark: SparkSession, given: argparse.Namespace) -> int:
    with read_events(spark, [local_path(one) for one in given.journal]) as events:
        progress.phase("times of messages")
        made = latency.steps(latency.times(events)).cache()
        minutes = latency.percentiles(made, 60).cache()
        progress.phase("windows without a confirm")
        windows = latency.outages(events, given.gap_ms).cache()
        show("Latency by minute", minutes, limit=60)
        title = f"Windows of more than {given.gap_ms:,} ms without a confirm"
        # The table that is written goes by time.
        show(f"{title}, the longest first", windows.orderBy(*LONGEST))
        longest = max((row["gap_ms"] for row in windows.collect()), default=0.0)
        good, text = latency_verdict(longest, given.gap_ms, given.fail_over_ms)
        say(f"\n{text}")
        if given.out:
            progress.phase("writing tables")
            out = local_path(given.out)
            write_tables(out, {"latency_1m": minutes, "outage": windows})
            progress.phase("drawing the report")
            seconds = seconds_of(events)
            parts = _parts(events, seconds, made, minutes, windows)
            figures = _tiles(made, longest, given.gap_ms, good)
            path = out / "latency.html"
            write_report(path, "Latency", text, good, parts, figures, covered(seconds))
    return GOOD if good else BAD


def latency_verdict(longest_ms: float, gap_ms: int, limit_ms: int | None) -> tuple[bool, str]:
    """Whether all is well, and the sentence that says so."""
    good = limit_ms is None or longest_ms <= limit_ms
    text = f"the longest window without a confirm took {longest_ms:,.0f} ms"
    if not longest_ms:
        text = f"no window of more than {gap_ms:,} ms without a confirm"
    if limit_ms is not None:
        text += f"; {'within' if good else 'MORE THAN'} the limit of {limit_ms:,} ms"
    return good, text


def _tiles(made: DataFrame, longest_ms: float, gap_ms: int, good: bool) -> str:
    found = {
        row["step"]: row["p"]
        for row in made.groupBy("step").agg(latency.overall().alias("p")).collect()
    }
    figures = []
    for step in latency.STEPS:
        if step in found:
            p50, p99 = found[step]
            figures.append((f"{step}, p50", _ms(p50), ""))
            figures.append((f"{step}, p99", _ms(p99), ""))
    # Shorter windows are not looked for.
    longest = _ms(longest_ms) if longest_ms else f"≤ {gap_ms:,} ms"
    figures.append(("longest without a confirm", longest, "" if good else "wrong"))
    return report.tiles(figures)


def _ms(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1000:,.1f} s"
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.2f} ms"


def _parts(
    events: DataFrame,
    seconds: DataFrame,
    made: DataFrame,
    minutes: DataFrame,
    windows: DataFrame,
) -> list[str]:
    outages = windows.collect()
    return [
        report.section(
            "How long messages took",
            "All queues together. Each class reaches to the next number, in milliseconds.",
            _histogram(made),
        ),
        report.section(
            "Messages a second",
            "All queues together; red where nothing was confirmed.",
            rates_plot(
                events, seconds, [(row["from_at"], row["to_at"], _said(row)) for row in outages]
            ),
        ),
        *_plots(seconds, made, outages),
        report.section(
            "Windows without a confirm",
            "While messages were published, or the queue got another master. The longest first.",
            html_table(windows.orderBy(*LONGEST)),
        ),
        report.section("By minute", "Exact percentiles.", html_table(minutes, 500)),
    ]


def _said(row: Any) -> str:
    return f"{row['queue']}: {row['gap_ms']:,.0f} ms without a confirm"


def _histogram(made: DataFrame) -> str:
    rows = latency.histogram(made).collect()
    if not rows:
        return report.columns([], [], [])
    classes = range(min(row["class"] for row in rows), max(row["class"] for row in rows) + 1)
    counts = {(row["step"], row["class"]): float(row["n"]) for row in rows}
    names = [step for step in latency.STEPS if any(row["step"] == step for row in rows)]
    labels = [f"{latency.class_from(number):g}" for number in classes]
    series = [[counts.get((name, number), 0.0) for number in classes] for name in names]
    return report.columns(labels, names, series)


def _plots(seconds: DataFrame, made: DataFrame, outages: list[Any]) -> list[str]:
    """For each queue and step the percentiles, in steps that suit the time that is covered."""
    span = span_of(seconds)
    if span is None:
        return []
    step_s = step_for(span)
    rows = latency.percentiles(made, step_s).collect()
    busy: dict[tuple[str, str], int] = {}
    for row in rows:
        key = (row["vhost"], row["queue"])
        busy[key] = busy.get(key, 0) + row["n"]
    times = spaced(span, step_s)
    parts = []
    for vhost, queue in sorted(busy, key=lambda key: -busy[key])[:DRAWN_QUEUES]:
        for step in latency.STEPS:
            own = {
                row["minute"]: row
                for row in rows
                if (row["vhost"], row["queue"], row["step"]) == (vhost, queue, step)
            }
            if own:
                parts.append(_plot(f"{queue}: {step}", vhost, own, times, step_s, outages))
    return parts


def _plot(
    title: str,
    vhost: str,
    own: dict[datetime.datetime, Any],
    times: list[datetime.datetime],
    step_s: int,
    outages: list[Any],
) -> str:
    series = [[float(own[at][name]) if at in own else None for at in times] for name in _POINTS]
    queue = title.partition(": ")[0]
    bands = [
        (place_of(row["from_at"], times, step_s), place_of(row["to_at"], times, step_s), _said(row))
        for row in outages
        if (row["vhost"], row["queue"]) == (vhost, queue)
    ]
    every = "minute" if step_s == 60 else "second" if step_s == 1 else f"{step_s:,} seconds"
    return report.section(
        title,
        f"Virtual host {vhost}; of every {every} of publishing.",
        report.lines(
            list(_POINTS.values()), times, series, bands=bands, unit="ms, logarithmic", log=True
        ),
    )
