"""The lag of mirrors, the rates and the hottest queues and keys, as a job."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from warren.spark.pipelines import lag, report
from warren.spark.pipelines.events import read_events
from warren.spark.pipelines.jobs import BAD, GOOD
from warren.spark.pipelines.journal_reports import html_table, rates_plot, write_report
from warren.spark.pipelines.output import say, show, write_tables
from warren.spark.pipelines.replay import choose

#: Plots of so many queues are drawn, the worst first.
PLOTTED = 12
#: Bars of a plot.
BARS = 20


def run_lag_job(spark: SparkSession, given: argparse.Namespace) -> int:
    with read_events(spark, [Path(one) for one in given.journal]) as events:
        samples = lag.samples(events).cache()
        tables = {
            "lag_mirror": lag.per_mirror(samples).cache(),
            "repl_lag_10s": lag.lag_10s(samples).cache(),
            "copy": lag.copies(events).cache(),
            "rates_10s": lag.rates_10s(events).cache(),
            "hot_queue": lag.hot_queues(events).cache(),
        }
        if given.archive:
            rows = choose(spark, Path(given.archive).absolute(), given.where)
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
            out = Path(given.out)
            write_tables(out, tables)
            write_report(out / "lag.html", "Replication lag", text, good, _parts(events, tables))
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


def _parts(events: DataFrame, tables: dict[str, DataFrame]) -> list[str]:
    parts = [
        report.section("Messages a second", "All queues together.", rates_plot(events)),
        report.section(
            "Published by node", "Messages a second, in steps of ten seconds.", _by_node(tables)
        ),
        *_lag_plots(tables),
        report.section(
            "Mirrors",
            "Operations that a mirror did not have on its disk yet, and how long before its master "
            "had been as far. Not in sync: notes in which commits did not wait for it.",
            html_table(tables["lag_mirror"], 200),
        ),
        report.section("Copies to mirrors", "Of what they lacked.", html_table(tables["copy"])),
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


def _by_node(tables: dict[str, DataFrame]) -> str:
    rows = (
        tables["rates_10s"]
        .where("event = 'publish'")
        .groupBy("window", "node")
        .agg({"per_second": "sum"})
        .collect()
    )
    return _lines([(row[0], str(row[1]), float(row[2])) for row in rows])


def _lag_plots(tables: dict[str, DataFrame]) -> list[str]:
    """For each queue a line for each mirror, in operations and in time."""
    rows = tables["repl_lag_10s"].collect()
    worst: dict[tuple[str, str], float] = {}
    for row in rows:
        key = (row["vhost"], row["queue"])
        worst[key] = max(worst.get(key, 0.0), row["lag_ms"])
    parts = []
    for vhost, queue in sorted(worst, key=lambda key: -worst[key])[:PLOTTED]:
        own = [row for row in rows if (row["vhost"], row["queue"]) == (vhost, queue)]
        for column, unit in (("lag_operations", "operations"), ("lag_ms", "ms")):
            points = [(row["window"], str(row["mirror"]), float(row[column])) for row in own]
            parts.append(
                report.section(
                    f"{queue}: behind by {unit}",
                    f"Virtual host {vhost}; the worst of every ten seconds.",
                    _lines(points),
                )
            )
    return parts


def _lines(points: list[tuple[Any, str, float]]) -> str:
    """Points (time, name, value) as a line for each name; where it has none, it is zero."""
    times = sorted({at for at, _, _ in points})
    names = sorted({name for _, name, _ in points})
    values = {(at, name): value for at, name, value in points}
    series = [[values.get((at, name), 0.0) for at in times] for name in names]
    return report.lines(names, [at.strftime("%H:%M:%S") for at in times], series)
