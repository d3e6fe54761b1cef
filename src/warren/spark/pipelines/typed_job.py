"""The typed tables as a job: from queues as a stream, or from an archive at once."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from warren.spark.errors import WarrenError
from warren.spark.pipelines.archive import run_stream
from warren.spark.pipelines.jobs import BAD, GOOD, connection_options
from warren.spark.pipelines.output import say, show, write_tables
from warren.spark.pipelines.places import local_path
from warren.spark.pipelines.registry import load_registry
from warren.spark.pipelines.replay import choose
from warren.spark.pipelines.typed import COUNTS
from warren.spark.pipelines.typed_tables import TypedTables, open_tables

CURSOR = "typed"


def run_typed_job(spark: SparkSession, given: argparse.Namespace) -> int:
    registry = load_registry(Path(given.registry))
    tables = open_tables(local_path(given.to), registry)
    before = {one["batch"] for one in tables.lake.written()}
    if given.archive:
        _from_archive(spark, given, tables, before)
    else:
        options = {
            **connection_options(given),
            "cursor": given.cursor or CURSOR,
            "mode": given.mode,
            "startingOffsets": given.starting_offsets,
            "maxOffsetsPerTrigger": str(given.batch_rows),
        }

        def take(rows: DataFrame, batch: int) -> None:
            tables.write(rows, batch)

        run_stream(spark, options, tables.lake, take, given.follow, given.interval)
    counts = _sum([one for one in tables.lake.written() if one["batch"] not in before])
    return _judge(spark, tables, counts, given.max_quarantined)


def _from_archive(
    spark: SparkSession, given: argparse.Namespace, tables: TypedTables, before: set[int]
) -> None:
    if before:
        raise WarrenError(
            f"{tables.lake.path} has tables already: an archive is decoded as a whole, so choose a "
            "new directory with --to"
        )
    tables.write(choose(spark, local_path(given.archive), given.where), 0)


def _sum(batches: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The counts of several batches together."""
    rows: Counter[tuple[Any, ...]] = Counter()
    drifted: Counter[tuple[Any, ...]] = Counter()
    first: dict[tuple[Any, ...], int] = {}
    for batch in batches:
        for one in batch["counts"]:
            key = (one["type"], one["version"], one["reason"])
            rows[key] += one["rows"]
            drifted[key] += one["drifted"]
            first[key] = min(first.get(key, one["first_seq"]), one["first_seq"])
    in_order = sorted(rows, key=lambda key: tuple(str(part or "") for part in key))
    return [(*key, rows[key], drifted[key], first[key]) for key in in_order]


def _judge(
    spark: SparkSession, tables: TypedTables, counts: list[tuple[Any, ...]], limit: float | None
) -> int:
    table = spark.createDataFrame(counts, COUNTS)
    show("Rows by type", table, limit=200)
    write_tables(tables.lake.path, {"typed_count": table})
    total = sum(one[3] for one in counts)
    bad = sum(one[3] for one in counts if one[2] is not None)
    drifted = sum(one[4] for one in counts)
    say(f"\n{total - bad:,} rows decoded into {tables.lake.path / 'tables'}, {bad:,} in quarantine")
    if drifted:
        say(f"{drifted:,} rows have fields that their schema does not know; they were left out")
    share = 100.0 * bad / total if total else 0.0
    if limit is not None and share > limit:
        say(f"{share:.2f} % in quarantine are MORE THAN the limit of {limit:g} %")
        return BAD
    return GOOD
