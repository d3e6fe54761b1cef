"""The triage of dead letters as a job, and the way back for those of chosen causes."""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession

from warren.spark.client import Client
from warren.spark.errors import WarrenError
from warren.spark.pipelines import dead_letters
from warren.spark.pipelines.jobs import BAD, GOOD, connection_options
from warren.spark.pipelines.output import say, show, write_tables
from warren.spark.pipelines.places import local_path
from warren.spark.pipelines.queue_rows import queue_rows
from warren.spark.pipelines.replay import choose

#: Positions that are named in one request.
POSITIONS_MAX = 10_000


def run_dead_letters_job(spark: SparkSession, given: argparse.Namespace) -> int:
    headers = [*(given.error_header or []), *dead_letters.ERROR_HEADERS]
    if given.archive:
        rows = choose(spark, local_path(given.archive), given.where)
        return _triage(given, rows, headers)
    with queue_rows(spark, connection_options(given), "dead-letters") as (rows, client):
        return _triage(given, rows, headers, client)


def _triage(
    given: argparse.Namespace,
    rows: DataFrame,
    headers: list[str],
    client: Client | None = None,
) -> int:
    dead = dead_letters.letters(rows, headers).cache()
    causes = dead_letters.groups(dead).cache()
    found = show("Dead letters by cause", causes, limit=given.show)
    total = int(dead.count())
    if given.out:
        write_tables(
            local_path(given.out), {"dead_letter_group": causes, "dead_letter": dead.orderBy("seq")}
        )
    good = given.fail_over is None or total <= given.fail_over
    more = "" if good else f", MORE THAN the limit of {given.fail_over:,}"
    say(f"\n{total:,} dead letters of {causes.count():,} causes{more}")
    if given.republish and client is not None:
        known = {row["cause"] for row in found} | {row["cause"] for row in causes.collect()}
        wanted = [one.strip() for one in given.republish.split(",")]
        unknown = sorted(set(wanted) - known)
        if unknown:
            raise WarrenError(f"there is no cause {', '.join(unknown)}: nothing was republished")
        good &= _republish(client, dead_letters.positions(dead, wanted), given.to)
    return GOOD if good else BAD


def _republish(client: Client, places: DataFrame, to: str | None) -> bool:
    """Whether all have gone back; each leaves its queue when it is safe in the other."""
    moved = kept = 0
    for queue, incarnation, seqs in places.collect():
        for first in range(0, len(seqs), POSITIONS_MAX):
            some = seqs[first : first + POSITIONS_MAX]
            told = client.send_back(queue, incarnation, some, to)
            moved += told["moved"]
            kept += len(some) - told["moved"]
    where = f"to queue '{to}'" if to else "to the queues in which they first died"
    say(f"{moved:,} republished {where}")
    if kept:
        say(
            f"{kept:,} STAYED: their queue is gone, full or on another node (--to names another), "
            "or somebody else has taken them meanwhile"
        )
    return kept == 0
