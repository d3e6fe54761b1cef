"""The lag of mirrors, the rates and the hottest queues and keys, as a job."""

from __future__ import annotations

import argparse
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from warren.spark.pipelines import lag, latency, progress, report
from warren.spark.pipelines.events import read_events
from warren.spark.pipelines.jobs import BAD, GOOD
from warren.spark.pipelines.journal_reports import (
    Span,
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
from warren.spark.pipelines.replay import choose

#: Plots of so many queues are drawn, the worst first.
PLOTTED = 12
#: Bars of a plot.
BARS = 20


def run_lag_job(spark: SparkSession, given: argparse.Namespace) -> int:
    with read_events(spark, [local_path(one) for one in given.journal]) as events:
        progress.phase("reading the journal")
        samples = lag.samples(events).cache()
        tables = {
            "lag_mirror": lag.per_mirror(samples).cache(),
            "repl_lag_10s": lag.lag_10s(samples).cache(),
            "copy": lag.copies(events).cache(),
            "rates_10s": lag.rates_10s(events).cache(),
            "hot_queue": lag.hot_queues(events).cache(),
        }
        if given.archive:
            rows = choose(spark, local_path(given.archive), given.where)
            tables["hot_key"] = lag.hot_keys(rows).cache()
        show("Mirrors, those that were furthest behind first", tables["lag_mirror"])
        show("Copies to mirrors", tables["copy"])
        show("The busiest queues", tables["hot_queue"], limit=given.show)
        if given.archive:
            show("The busiest keys", tables["hot_key"], limit=given.show)
        mirrors = [row.asDict() for row in tables["lag_mirror"].collect()]
        good, text = lag_verdict(mirrors, given.fail_over_ms)
        say(f"\n{text}")
        if given.out:
            progress.phase("writing tables")
            out = local_path(given.out)
            write_tables(out, tables)
            progress.phase("drawing the report")
            seconds = seconds_of(events)
            parts = _parts(events, seconds, tables, samples)
            figures = _tiles(mirrors, tables, good)
            path = out / "lag.html"
            write_report(path, "Replication lag", text, good, parts, figures, covered(seconds))
    return GOOD if good else BAD


def lag_verdict(mirrors: list[dict[str, Any]], limit_ms: int | None) -> tuple[bool, str]:
    """Whether all is well, and the sentence that says so."""
    if not mirrors:
        return True, "no master has noted a mirror: is any of the queues mirrored?"
    worst = max(mirrors, key=lambda row: row["max_in_sync_ms"])
    lag_ms = worst["max_in_sync_ms"]
    good = limit_ms is None or lag_ms <= limit_ms
    text = (
        f"of the mirrors in sync {worst['mirror']} was furthest behind, {lag_ms:,.0f} ms in queue "
        f"'{worst['queue']}'"
    )
    if lag_ms == 0:
        text = "no mirror in sync was ever seen behind its master"
    if limit_ms is not None:
        text += f"; {'within' if good else 'MORE THAN'} the limit of {limit_ms:,} ms"
    out = sum(1 for row in mirrors if row["not_in_sync"])
    if out:
        text += f"; {out:,} of {len(mirrors):,} mirrors were not in sync for a while"
    return good, text


def _tiles(mirrors: list[dict[str, Any]], tables: dict[str, DataFrame], good: bool) -> str:
    worst_ms = max((row["max_in_sync_ms"] for row in mirrors), default=0.0)
    worst = max((row["max_operations"] for row in mirrors), default=0)
    hot = tables["hot_queue"].agg({"published": "sum", "mean_per_second": "sum"}).collect()[0]
    return report.tiles(
        [
            ("furthest behind, in sync", f"{worst_ms:,.0f} ms", "right" if good else "wrong"),
            ("furthest behind, operations", f"{worst:,}", ""),
            ("mirrors of queues", f"{len(mirrors):,}", ""),
            ("copies to mirrors", f"{tables['copy'].count():,}", ""),
            ("messages published", f"{hot['sum(published)'] or 0:,}", ""),
            ("a second, in the mean", f"{hot['sum(mean_per_second)'] or 0:,.0f}", ""),
        ]
    )


def _parts(
    events: DataFrame, seconds: DataFrame, tables: dict[str, DataFrame], samples: DataFrame
) -> list[str]:
    parts = [
        report.section("Messages a second", "All queues together.", rates_plot(events, seconds)),
        *_lag_plots(tables, samples),
        report.section(
            "Mirrors",
            "Operations that a mirror did not have on its disk yet, and how long before its master "
            "had been as far. Not in sync: notes in which commits did not wait for it.",
            html_table(tables["lag_mirror"], 200),
        ),
        report.section("Copies to mirrors", "Of what they lacked.", html_table(tables["copy"])),
        report.section("Published by node", "To queues that it serves.", _by_node(events, seconds)),
        report.section(
            "The busiest queues", "Messages published to them.", _bars(tables["hot_queue"], "queue")
        ),
        report.section("In numbers", "The first twenty.", html_table(tables["hot_queue"])),
    ]
    if "hot_key" in tables:
        parts.append(
            report.section(
                "The busiest keys", "Of the archive.", _bars(tables["hot_key"], "routing_key")
            )
        )
        parts.append(
            report.section("In numbers", "The first twenty.", html_table(tables["hot_key"]))
        )
    return parts


def _bars(table: DataFrame, name: str) -> str:
    rows = table.limit(BARS).collect()
    size = "published" if "published" in table.columns else "n"
    return report.bars([str(row[name]) for row in rows], [float(row[size]) for row in rows])


def _by_node(events: DataFrame, seconds: DataFrame) -> str:
    span = span_of(seconds)
    if span is None:
        return report.lines((), (), ())
    step_s = step_for(span)
    rows = (
        events.where("event = 'publish'")
        .groupBy(latency.beginning(F.col("at"), step_s).alias("start"), "node")
        .agg(F.sum("count").alias("n"))
        .collect()
    )
    points = [(row["start"], str(row["node"]), row["n"] / step_s) for row in rows]
    return _lines(points, step_s, "messages a second")


def _lag_plots(tables: dict[str, DataFrame], samples: DataFrame) -> list[str]:
    """For each queue a line for each mirror, in operations and in time."""
    (whole,) = samples.selectExpr("min(at) AS a", "max(at) AS b").collect()
    if whole["a"] is None:
        return []
    worst = tables["lag_mirror"].select("vhost", "queue", "max_ms").collect()
    far: dict[tuple[str, str], float] = {}
    for row in worst:
        key = (row["vhost"], row["queue"])
        far[key] = max(far.get(key, 0.0), row["max_ms"])
    step_s = step_for((whole["a"], whole["b"]))
    copied = tables["copy"].collect()
    parts = []
    for vhost, queue in sorted(far, key=lambda key: -far[key])[:PLOTTED]:
        own = lag.worst(
            samples.where((F.col("vhost") == vhost) & (F.col("queue") == queue)), step_s
        )
        rows = own.collect()
        bands = [
            (row["from_at"] or row["to_at"], row["to_at"], f"copy to {row['mirror']}")
            for row in copied
            if (row["vhost"], row["queue"]) == (vhost, queue)
        ]
        for column, unit in (("lag_ms", "ms"), ("lag_operations", "operations")):
            points = [(row["window"], str(row["mirror"]), float(row[column])) for row in rows]
            parts.append(
                report.section(
                    f"{queue}: behind by {unit}",
                    f"Virtual host {vhost}; the worst of every {step_s:,} s; red while a mirror "
                    "was copied to.",
                    _lines(points, step_s, unit, bands),
                )
            )
    return [report.side_by_side(parts)]


def _lines(
    points: list[tuple[Any, str, float]],
    step_s: int,
    unit: str,
    bands: list[tuple[Any, Any, str]] | None = None,
) -> str:
    """Points (time, name, value) as a line for each name.

    Where nobody has noted anything, nobody was behind, and nothing was counted.
    """
    if not points:
        return report.lines((), (), ())
    span: Span = (min(at for at, _, _ in points), max(at for at, _, _ in points))
    times = spaced(span, step_s)
    names = sorted({name for _, name, _ in points})
    values = {(at, name): value for at, name, value in points}
    series = [[values.get((at, name), 0.0) for at in times] for name in names]
    shaded = [
        (place_of(a, times, step_s), place_of(b, times, step_s), text)
        for a, b, text in bands or []
        if a <= span[1] and b >= span[0]
    ]
    return report.lines(
        [short_node(name) for name in names], times, series, bands=shaded, unit=unit
    )


def short_node(name: str) -> str:
    return name.removesuffix("@localhost")
