"""Archive and replay as jobs: read, run the transforms, print, write; an exit code."""

from __future__ import annotations

import argparse
from typing import Any

from pyspark.sql import SparkSession

from warren.spark.errors import WarrenError
from warren.spark.pipelines.archive import COUNTS, CURSOR, Lake, compact, run_archive, summed
from warren.spark.pipelines.output import say, show, write_tables
from warren.spark.pipelines.places import local_path
from warren.spark.pipelines.replay import Replay, Target, choose, plan
from warren.spark.pipelines.sizes import BATCH_BYTES, BATCH_ROWS, DELTA_BYTES, DELTA_ROWS

GOOD, BAD = 0, 1
#: What a plan of a replay depends on.
PLANNED_BY = ("archive", "where", "exchange", "routing_key", "as_published", "batch_rows")


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
    lake = Lake(local_path(given.to), given.format == "delta")
    if given.compact:
        before, after = compact(spark, lake)
        say(f"{lake.path}: {before:,} files are now {after:,}")
        return GOOD
    options = {
        **connection_options(given),
        "cursor": given.cursor or CURSOR,
        "mode": given.mode,
        "startingOffsets": given.starting_offsets,
        **limits(lake.as_delta, given.batch_rows),
    }
    lake.prepare()
    known = {int(one["batch"]) for one in lake.written()}
    rows = run_archive(spark, options, lake, given.follow, given.interval)
    written = lake.written()
    counts = summed([one for one in written if int(one["batch"]) not in known])
    show("Archived by this run", spark.createDataFrame(counts, COUNTS), limit=200)
    whole = spark.createDataFrame(summed(written), COUNTS)
    write_tables(lake.path, {"archive_count": whole})
    say(f"\n{rows:,} messages archived in {lake.data}; {sum_rows(lake):,} in all")
    return GOOD


def limits(as_delta: bool, rows: int | None) -> dict[str, str]:
    """Of a batch of an archive: so many messages, and fewer when they are large."""
    usual, size = (DELTA_ROWS, DELTA_BYTES) if as_delta else (BATCH_ROWS, BATCH_BYTES)
    return {"maxOffsetsPerTrigger": str(rows or usual), "maxBytesPerTrigger": str(size)}


def sum_rows(lake: Lake) -> int:
    return sum(int(one["rows"]) for one in lake.written())


# -- replay ----------------------------------------------------------------------------------------


def run_replay_job(spark: SparkSession, given: argparse.Namespace) -> int:
    replay = Replay(local_path(given.run))
    asked = {name: getattr(given, name) for name in PLANNED_BY}
    asked["archive"] = str(local_path(given.archive))
    if replay.is_planned:
        _compare(replay, asked)
    else:
        rows = choose(spark, local_path(given.archive), given.where)
        target = Target() if given.as_published else Target(given.exchange, given.routing_key)
        planned = plan(rows, target, given.batch_rows).cache()
        if planned.isEmpty():
            say("no row of the archive was chosen: nothing to replay")
            return GOOD
        replay.write_plan(planned, asked)
    show("Plan", spark.read.parquet(str(replay.path / "replay_log")).orderBy("batch"))
    if given.plan_only:
        say(f"\nplanned in {replay.rows}; the same command without --plan-only publishes it")
        return GOOD
    options = {name: value for name, value in connection_options(given).items() if value}
    pause_s = given.batch_rows / given.rate if given.rate else 0.0
    replay.publish(spark, {**options, "onUnroutable": given.on_unroutable}, pause_s)
    say(f"\nreplayed: every message of the plan is in its queues, once ({replay.path})")
    return GOOD


def _compare(replay: Replay, asked: dict[str, Any]) -> None:
    """Raises WarrenError when the plan that lies there was made of something else."""
    for name, value in replay.asked.items():
        if value != asked[name]:
            option = f"--{name.replace('_', '-')}"
            raise WarrenError(
                f"{replay.path} holds the plan of another replay, whose {option} was {value!r}: "
                "give the same options to go on with it, or choose another directory with --run"
            )
