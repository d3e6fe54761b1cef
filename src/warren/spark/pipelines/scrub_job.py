"""The scrub as a job."""

from __future__ import annotations

import argparse

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from warren.spark.client import Client
from warren.spark.errors import WarrenError
from warren.spark.options import read_options
from warren.spark.pipelines import progress, scrub
from warren.spark.pipelines.bucket_sums import BUCKET
from warren.spark.pipelines.jobs import BAD, GOOD, connection_options
from warren.spark.pipelines.output import say, show, write_tables
from warren.spark.pipelines.places import local_path
from warren.spark.pipelines.problems import reason
from warren.spark.pipelines.replicas import (
    Scrubbed,
    homes_of,
    opened,
    pieces,
    read_replicas,
    read_sums,
)
from warren.spark.queues import Queues


def run_scrub_job(spark: SparkSession, given: argparse.Namespace) -> int:
    options = connection_options(given)
    if not given.queues and not given.queue_pattern:
        options["queuePattern"] = ".*"
    client = Client(read_options(options))
    names = Queues(client, read_options(options)).names(fresh=True)
    try:
        with opened(client, names) as queues:
            if not queues:
                say("none of the queues is mirrored: there is nothing to compare")
                return GOOD
            return _compare(spark, given, options, queues)
    except PySparkException as error:
        raise WarrenError(reason(str(error))) from error


def _compare(
    spark: SparkSession, given: argparse.Namespace, options: dict[str, str], queues: list[Scrubbed]
) -> int:
    places = [
        (one.queue, replica, replica == one.master) for one in queues for replica in one.replicas
    ]
    compared = spark.createDataFrame(places, scrub.COMPARED)
    client = Client(read_options(options))
    homes = homes_of(client)
    first = [piece for one in queues for piece in pieces(one)]
    progress.phase("comparing checksums")
    checks = scrub.checksums(read_sums(spark, options, first, homes), compared).cache()
    bad = checks.where("not agrees").select("queue", "bucket").distinct().collect()
    again = []
    for one in queues:
        numbers = sorted(row["bucket"] for row in bad if row["queue"] == one.queue)
        spans = [(n * BUCKET, (n + 1) * BUCKET) for n in numbers]
        again += pieces(one, spans)
    progress.phase("comparing messages")
    found = scrub.differences(read_replicas(spark, options, again, homes), compared).cache()
    if bad:
        checks = scrub.settled(checks, found).cache()
    ranges = spark.createDataFrame(
        [(one.queue, replica, one.first, one.end) for one in queues for replica in one.replicas],
        "queue string, replica string, first long, end long",
    )
    total = scrub.summary(ranges, checks, found).cache()
    show("Replicas", total, limit=200)
    if bad:
        show("Differences", found)
    for one in queues:
        if one.learning:
            say(f"queue '{one.queue}': {', '.join(one.learning)} not in sync yet, not compared")
    wrong = found.count()
    messages = total.agg({"messages": "sum"}).collect()[0][0] or 0
    text = "all replicas are equal" if not wrong else f"{wrong:,} DIFFERENCES between replicas"
    count = "1 queue" if len(queues) == 1 else f"{len(queues):,} queues"
    say(f"\n{text}: {count}, {messages:,} messages read at all replicas together")
    if given.out:
        tables = {"scrub": checks.orderBy("queue", "bucket", "replica"), "scrub_difference": found}
        write_tables(local_path(given.out), {**tables, "scrub_replica": total})
    return GOOD if not wrong else BAD
