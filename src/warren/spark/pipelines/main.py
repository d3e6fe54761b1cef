"""The command line of the pipelines. It is argparse's, so that it runs where only Spark is."""

from __future__ import annotations

import argparse
import logging
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from warren.spark.pipelines.places import check_endpoints, check_places
from warren.spark.pipelines.problems import explained
from warren.spark.pipelines.sizes import BATCH_ROWS, DELTA_ROWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The exit code; argparse ends with 2 what was asked for wrongly.
FAILED = 1
#: Of a line of help.
WIDTH = 88
_NAMES = {
    "archive": "queues into Parquet files by day and queue, each message once",
    "replay": "rows of an archive back into an exchange, in order per queue, each once",
    "typed": "bodies (JSON, Avro) decoded into a table for each type; bad ones to a quarantine",
    "dead-letters": "why messages died: groups by cause with samples; republish a group",
    "audit": "was anything lost that had been confirmed? From the event journals of all nodes",
    "latency": "how long messages took, minute by minute, and windows without a confirm",
    "lag": "how far replicas were behind, rates of nodes and queues, and the hottest of them",
    "scrub": "are all replicas of mirrored queues equal? The same ranges compared by checksums",
}
#: An example that can be given as it stands, and when the exit code is 1.
_EXAMPLES = {
    "archive": ("--queues orders,invoices --to /lake/shop --follow", "it failed"),
    "replay": (
        '--archive /lake/shop --run /lake/replays/1 --where "seq >= 100" --as-published',
        "it failed, or no queue takes a message (--on-unroutable)",
    ),
    "typed": (
        "--queues orders --registry types.json --to /lake/typed",
        "it failed, or more than --max-quarantined could not be decoded",
    ),
    "dead-letters": (
        "--queues orders.dead --out report",
        "it failed, there are more than --fail-over, or some of a group stayed",
    ),
    "scrub": ("--queues orders --out report", "it failed, or two replicas differ"),
    "audit": (
        "--journal node1/events node2/events node3/events --out report",
        "it failed, something confirmed was lost, or something came again without a flag",
    ),
    "latency": (
        "--journal node1/events node2/events --fail-over-ms 5000 --out report",
        "it failed, or a window without a confirm was longer than --fail-over-ms",
    ),
    "lag": (
        "--journal node1/events node2/events --fail-over-ms 2000 --out report",
        "it failed, or a mirror in sync was further behind than --fail-over-ms",
    ),
}
_JOURNAL = (
    "The journal of a node is the directory 'events' in its data directory; it is written while "
    "journal.enabled is true. Name those of all nodes, also of nodes that have died: what they "
    "noted last is there. Tables go to --out as Parquet, with a report in HTML."
)


def make_parser(prog: str = "warren pipeline") -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Run a pipeline on an embedded Spark. Exit code 1: the verdict is bad, or it "
        "failed; 2: it was asked for wrongly.",
    )
    parser.add_argument("--memory", default="2g", help="of Spark's JVM (default: 2g)")
    parser.add_argument(
        "--partitions", type=_positive, default=8, help="tasks of a shuffle (default: 8)"
    )
    parser.add_argument(
        "--trace", action="store_true", help="when it fails, all that Spark says, not a sentence"
    )
    names = parser.add_subparsers(dest="name", metavar="NAME", required=True)
    _add_archive(names)
    _add_replay(names)
    _add_typed(names)
    _add_dead_letters(names)
    _add_scrub(names)
    _add_audit(names)
    latency = _with_journal(names, "latency")
    latency.add_argument(
        "--gap-ms", type=_positive, default=1000, help="windows from this length on (default: 1000)"
    )
    _add_limit_ms(latency, "exit with 1 if one is longer than this")
    lag = _with_journal(names, "lag")
    _add_limit_ms(lag, "exit with 1 if a mirror in sync was further behind than this")
    lag.add_argument("--archive", metavar="DIR", help="count the routing keys of this archive too")
    _add_where(lag)
    _add_show(lag, "queues and keys")
    return parser


def _positive(text: str) -> int:
    number = _natural(text)
    if not number:
        raise argparse.ArgumentTypeError("it must be 1 at least")
    return number


def _natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is no number")
    return int(text)


def _add(names: argparse._SubParsersAction, name: str, more: str = "") -> argparse.ArgumentParser:  # type: ignore[type-arg]
    example, bad = _EXAMPLES[name]
    parts = [
        textwrap.fill(more, WIDTH),
        f"For example:\n  warren pipeline {name} {example}",
        textwrap.fill(f"Exit code 1: {bad}; 2: it was asked for wrongly.", WIDTH),
        f"More: docs/pipelines/{name}.md",
    ]
    summary = _NAMES[name]
    added: argparse.ArgumentParser = names.add_parser(
        name,
        help=summary,
        description=textwrap.fill(f"{summary[0].upper()}{summary[1:]}.", WIDTH),
        epilog="\n\n".join(parts),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return added


def _add_audit(names: argparse._SubParsersAction) -> None:  # type: ignore[type-arg]
    parser = _add(
        names,
        "audit",
        f"{_JOURNAL} A firehose (warrenctl trace_on, and a queue bound to amq.rabbitmq.trace with "
        "'#') is the other source: it needs no journal, knows of publishes and deliveries only, "
        "and tells messages apart by their message id, or else by what is in them.",
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--journal", nargs="+", metavar="DIR", help="event journals of the nodes")
    where.add_argument("--firehose", metavar="QUEUES", help="with traces, separated by commas")
    where.add_argument("--firehose-archive", metavar="DIR", help="an archive of such queues")
    _add_where(parser)
    _add_connection(parser)
    _add_out(parser, "write tables and the report here")
    parser.add_argument(
        "--every", action="store_true", help="look at every message, whatever the sums say"
    )


def _with_journal(names: argparse._SubParsersAction, name: str) -> argparse.ArgumentParser:  # type: ignore[type-arg]
    parser = _add(names, name, _JOURNAL)
    parser.add_argument(
        "--journal", nargs="+", required=True, metavar="DIR", help="event journals of the nodes"
    )
    _add_out(parser, "write tables and the report here")
    return parser


def _add_connection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--endpoints",
        default="http://127.0.0.1:15672",
        metavar="URLS",
        help="HTTP APIs of the nodes, separated by commas (default: http://127.0.0.1:15672)",
    )
    parser.add_argument("--vhost", default="/", help="of the queues (default: /)")
    parser.add_argument("--user", default="guest", help="of the HTTP API (default: guest)")
    parser.add_argument("--password-file", metavar="FILE", help="else the password is 'guest'")


def _add_queues(
    parser: argparse.ArgumentParser, said: str = "separated by commas", required: bool = False
) -> argparse._MutuallyExclusiveGroup:
    which = parser.add_mutually_exclusive_group(required=required)
    which.add_argument("--queues", metavar="NAMES", help=said)
    which.add_argument("--queue-pattern", metavar="REGEX", help="queues whose whole name matches")
    return which


def _add_queues_or_archive(
    parser: argparse.ArgumentParser, said: str = "separated by commas"
) -> None:
    which = _add_queues(parser, said, required=True)
    which.add_argument("--archive", metavar="DIR", help="rows of an archive, instead of queues")
    _add_where(parser)


def _add_where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--where", metavar="SQL", help="which rows of the archive")


def _add_out(parser: argparse.ArgumentParser, said: str = "write the tables here") -> None:
    parser.add_argument("--out", metavar="DIR", help=said)


def _add_show(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--show", type=_positive, default=20, metavar="N", help=f"{what} printed")


def _add_batch_rows(parser: argparse.ArgumentParser, rows: int, done: str, more: str = "") -> None:
    parser.add_argument(
        "--batch-rows",
        type=_positive,
        metavar="N",
        help=f"messages that are {done} at a time, at most (default: {rows}{more})",
        default=None if more else rows,
    )


def _add_limit_ms(parser: argparse.ArgumentParser, said: str) -> None:
    parser.add_argument("--fail-over-ms", type=_natural, metavar="MS", help=said)


def _add_archive(names: argparse._SubParsersAction) -> None:  # type: ignore[type-arg]
    parser = _add(
        names,
        "archive",
        "Started again with the same --to it goes on where it was, also after a crash. The "
        "archive's cursor keeps messages in the broker until they are written.",
    )
    _add_connection(parser)
    _add_queues(parser)
    parser.add_argument("--to", required=True, metavar="DIR", help="the archive")
    parser.add_argument(
        "--format",
        choices=("parquet", "delta"),
        default="parquet",
        help="delta: a Delta table; it needs pip install 'warrenmq[delta]' (default: parquet)",
    )
    _add_stream(parser, "archive", BATCH_ROWS, f"; with --format delta {DELTA_ROWS}")
    parser.add_argument(
        "--compact", action="store_true", help="make few large files of many small ones, and end"
    )


def _add_stream(
    parser: argparse.ArgumentParser, cursor: str, rows: int = 250_000, more: str = ""
) -> None:
    """How queues are read, batch by batch."""
    parser.add_argument("--cursor", help=f"its name in the broker (default: {cursor})")
    parser.add_argument(
        "--mode",
        choices=("follow", "drain"),
        default="follow",
        help="follow: consumers get the messages too; drain: this job is the only consumer",
    )
    parser.add_argument(
        "--starting-offsets", default="earliest", help="earliest, latest or JSON (first run only)"
    )
    _add_batch_rows(parser, rows, "written", more)
    parser.add_argument("--follow", action="store_true", help="go on until interrupted")
    parser.add_argument(
        "--interval", type=_positive, default=5, metavar="S", help="between batches (default: 5)"
    )


def _add_typed(names: argparse._SubParsersAction) -> None:  # type: ignore[type-arg]
    parser = _add(
        names,
        "typed",
        'The registry is JSON: {"types": [{"name": "order", "version": 1, "format": "json" or '
        '"avro", "schema": columns such as "id bigint not null, name string" or an Avro schema, '
        '"queue", "routing_key", "content_type": patterns, "headers": {name: value}, "id": of a '
        "schema that bodies begin with}]}. Of the entries that fit a message the first counts. "
        "Started again with the same --to it goes on where it was.",
    )
    _add_connection(parser)
    _add_queues_or_archive(parser)
    parser.add_argument("--registry", required=True, metavar="FILE", help="the types")
    parser.add_argument("--to", required=True, metavar="DIR", help="tables and quarantine")
    _add_stream(parser, "typed")
    parser.add_argument(
        "--max-quarantined",
        type=float,
        metavar="PERCENT",
        help="exit with 1 if more than this of the rows of this run could not be decoded",
    )


def _add_dead_letters(names: argparse._SubParsersAction) -> None:  # type: ignore[type-arg]
    parser = _add(
        names,
        "dead-letters",
        "Messages have one cause if they first died in the same queue for the same reason, with "
        "the same error and bodies of the same shape. Nothing is taken out of the queues but what "
        "--republish sends back.",
    )
    _add_connection(parser)
    _add_queues_or_archive(parser, "of dead letters, separated by commas")
    parser.add_argument(
        "--error-header",
        action="append",
        metavar="NAME",
        help="a header in which your consumers say what went wrong (may be given again)",
    )
    _add_show(parser, "causes")
    _add_out(parser)
    parser.add_argument(
        "--republish", metavar="CAUSES", help="send these back, by the first column; with commas"
    )
    parser.add_argument(
        "--to", metavar="QUEUE", help="with --republish: not to where they died, but to this queue"
    )
    parser.add_argument(
        "--fail-over", type=_natural, metavar="N", help="exit with 1 if there are more dead letters"
    )


def _add_scrub(names: argparse._SubParsersAction) -> None:  # type: ignore[type-arg]
    parser = _add(
        names,
        "scrub",
        "A cursor keeps what leaves a queue meanwhile, so queues may be as busy as they like. "
        "Replicas that are not in sync are named and not compared.",
    )
    _add_connection(parser)
    _add_queues(parser, "separated by commas (default: all)")
    _add_out(parser)


def _add_replay(names: argparse._SubParsersAction) -> None:  # type: ignore[type-arg]
    parser = _add(
        names,
        "replay",
        "The first run with a new --run writes the plan; a run that was interrupted goes on with "
        "it, and publishes nothing twice. Each message gets the header x-replayed-from; values of "
        "other headers are text. Columns for --where: docs/pipelines/replay.md.",
    )
    _add_connection(parser)
    parser.add_argument("--archive", required=True, metavar="DIR", help="what 'archive --to' wrote")
    parser.add_argument("--run", required=True, metavar="DIR", help="of this replay: its plan")
    parser.add_argument("--where", metavar="SQL", help="e.g. \"queue = 'orders' and seq >= 100\"")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--exchange", help="publish to this one ('' is the default exchange)")
    where.add_argument(
        "--as-published", action="store_true", help="to the exchange and key of the first time"
    )
    parser.add_argument("--routing-key", help="with --exchange: instead of each message's own")
    parser.add_argument("--rate", type=_positive, metavar="N", help="messages a second at most")
    _add_batch_rows(parser, 10_000, "published")
    parser.add_argument(
        "--on-unroutable",
        choices=("fail", "drop"),
        default="fail",
        help="a message that no queue takes (default: fail)",
    )
    parser.add_argument("--plan-only", action="store_true", help="publish nothing yet")


def main(
    arguments: Sequence[str], prog: str = "warren pipeline", spark: SparkSession | None = None
) -> int:
    """Run what the arguments ask for, in this session or one of its own; the exit code."""
    parser = make_parser(prog)
    given = parser.parse_args(arguments)
    if given.name == "archive" and not given.compact and not (given.queues or given.queue_pattern):
        parser.error("archive: name the queues with --queues or --queue-pattern")
    if given.name == "dead-letters" and given.republish and given.archive:
        parser.error("dead-letters: only messages of queues can be sent back, not an archive's")
    try:
        check_places(given)
        check_endpoints(given)
        return _run(given, spark)
    except KeyboardInterrupt:
        sys.stderr.write(f"{prog} {given.name}: interrupted\n")
        return FAILED
    except Exception as error:
        told = explained(error)
        if told is None or given.trace:
            raise
        sys.stderr.write(f"{prog} {given.name}: {told}\n")
        return FAILED


def _run(given: argparse.Namespace, session: SparkSession | None) -> int:
    from warren.spark.pipelines import progress

    with progress.shown(given.name):
        return _run_shown(given, session)


def _run_shown(given: argparse.Namespace, session: SparkSession | None) -> int:
    from warren.spark.pipelines import progress
    from warren.spark.pipelines.session import open_session

    progress.phase("starting Spark")
    if session is None and not given.trace:
        # An interrupt ends a word to Java in the middle; what Spark's libraries log of it, and then
        # raise, is told in a sentence.
        logging.disable(logging.CRITICAL)
    spark = session or open_session(given.name, given.memory, given.partitions, given.trace)
    from warren.spark.pipelines import (
        audit_job,
        dead_letters_job,
        jobs,
        lag_job,
        latency_job,
        scrub_job,
        typed_job,
    )

    run = {
        "archive": jobs.run_archive_job,
        "replay": jobs.run_replay_job,
        "typed": typed_job.run_typed_job,
        "dead-letters": dead_letters_job.run_dead_letters_job,
        "scrub": scrub_job.run_scrub_job,
        "audit": audit_job.run_audit_job,
        "latency": latency_job.run_latency_job,
        "lag": lag_job.run_lag_job,
    }[given.name]
    progress.measure_by(lambda: progress.tasks_of(spark))
    progress.phase("")
    try:
        return run(spark, given)
    finally:
        if session is None:
            spark.stop()
