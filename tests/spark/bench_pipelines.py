"""How fast the pipelines are, and what the event journal costs: `make bench-spark`.

Audit and latency: a journal of so many events, with known losses, duplicates and unflagged
redeliveries in it; each row is about one message, which is the worst a node can write. Archive: a
queue into its lake. Scrub: a mirrored queue on three nodes. Journal: messages through a broker with
it and without, in turns, so that both have the same machine. Sizes go from 1 M to 30 M in steps
that are even on a logarithmic axis; `--curves` keeps what was measured for `curves.py` to draw. All
of it takes about half an hour on two cores that have nothing else to do; `--only` does a part.
"""

from __future__ import annotations

import argparse
import array
import contextlib
import io
import itertools
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from spark_session import make_session

from warren.spark.journal_files import SCHEMA, write_segment
from warren.spark.pipelines import latency
from warren.spark.pipelines.archive import Lake, run_archive
from warren.spark.pipelines.audit import audit
from warren.spark.pipelines.events import read_events
from warren.spark.pipelines.jobs import GOOD, limits
from warren.spark.pipelines.main import make_parser
from warren.spark.pipelines.scrub_job import run_scrub_job
from warren.testing import Cluster

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent.parent / "cluster"))

from bench.generator import PROGRAM, build
from bench.measure import usage, usage_of
from rings import await_ring, mirror

HERE = Path(__file__).parent
#: Rows of a segment, as nodes write them.
SEGMENT = 131_072
STEPS = ("publish", "confirm", "deliver", "ack")
QUEUES = 4
#: What the steps of a message take more or less, a power of two less one.
JITTER_US = 4_095
#: Even steps of a logarithmic axis, all but.
SIZES = "1000000,3000000,10000000,30000000"
SCRUBBED = "333333,1000000,3333333,10000000"
AUDIT_S = 60.0
EVENTS_OF_BAR = 30_000_000
JOURNAL_PERCENT = 15.0
ROUNDS = 5
FLOW_S = 5
#: What the journal's cost is measured with: neighbours that share a row, and the other extreme.
FLOWS = {
    "one queue, acks of 100": ["--window", "1000", "--prefetch", "1000", "--ack-every", "100"],
    "one queue, single acks": ["--window", "1000", "--prefetch", "1000", "--ack-every", "1"],
    "50 queues, single acks": [
        *("--queues", "50", "--exchange", "direct", "--keys", "cycle"),
        *("--window", "1000", "--prefetch", "100", "--ack-every", "1"),
    ],
}


# -- audit -----------------------------------------------------------------------------------------


def write_journal(place: Path, events: int) -> None:
    """Segments of a journal in which one message is lost, one settled twice, one unflagged."""
    place.mkdir(parents=True)
    per_queue = events // len(STEPS) // QUEUES
    segment = 0
    lost, twice, unflagged = per_queue // 2, per_queue // 3, per_queue // 5
    for queue in range(QUEUES):
        for first in range(0, per_queue, SEGMENT // len(STEPS)):
            n = min(SEGMENT // len(STEPS), per_queue - first)
            tables = [_rows(queue, event, first, n, step) for step, event in enumerate(STEPS)]
            if queue == 1 and first <= lost < first + n:
                keep = [i != lost - first for i in range(n)]
                tables[3] = tables[3].filter(pa.array(keep))
            if queue == 2 and first <= twice < first + n:
                tables.append(_rows(queue, "ack", twice, 1, 4))
            if queue == 3 and first <= unflagged < first + n:
                tables.append(_rows(queue, "deliver", unflagged, 1, 4))
            segment += 1
            write_segment(pa.concat_tables(tables), place / f"1-{segment:06d}.parquet")
        segment += 1
        end = _rows(queue, "snapshot", per_queue, 1, 5)
        write_segment(end, place / f"1-{segment:06d}.parquet")


def numbers(values: range) -> pa.Array:
    return pa.Array.from_buffers(
        pa.int64(), len(values), [None, pa.py_buffer(array.array("q", values))]
    )


def _rows(queue: int, event: str, first: int, n: int, step: int) -> pa.Table:
    began = 1_790_000_000_000_000 + step * (JITTER_US + 1)
    at = numbers(range(began + first * 10, began + (first + n) * 10, 10))
    # No two steps take the same time: alike ones would be counted faster than those of a broker.
    mixed = pc.multiply(numbers(range(first, first + n)), 2_654_435_761 + 97_531 * step)
    at = pc.add(at, pc.bit_wise_and(pc.shift_right(mixed, 15), JITTER_US))

    def same(value: Any, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), n)

    text, flag = pa.string(), pa.bool_()
    columns = {
        "at": at.cast(pa.timestamp("us", "UTC")),
        "node": same("warren1@localhost", text),
        "vhost": same("/", text),
        "queue": same(f"queue-{queue}", text),
        "incarnation": same(queue + 1, pa.int64()),
        "epoch": same(1, pa.int32()),
        "event": same(event, text),
        "seq": numbers(range(first, first + n)),
        "count": same(1, pa.int32()),
        "bytes": same(200 if event == "publish" else 0, pa.int64()),
        "peer": same("", text),
        **{name: same(False, flag) for name in ("redelivered", "no_ack", "dead_lettered")},
        "in_sync": same(False, flag),
    }
    return pa.Table.from_pydict({name: columns[name] for name in SCHEMA.names}, schema=SCHEMA)


def bench_audit(spark: SparkSession, base: Path, events: int) -> float:
    """The passes themselves, in a session that is warm; how many seconds."""
    place, wrong = journal_of(base, events)

    def look() -> None:
        with read_events(spark, [place]) as rows:
            queues = audit(rows).queues.collect()
        found = {name: sum(row[name] for row in queues) for name in wrong}
        assert found == wrong, f"found {found}, and there is {wrong}"

    spent = measured(look, {"CPU": jvm_of(spark)}, events)
    say(f"audit of {events:,} events, Spark running", f"{timed(events, spent.took_s)}; {spent}")
    spark.catalog.clearCache()
    return spent.took_s


def bench_latency(spark: SparkSession, base: Path, events: int) -> float:
    """All that the job computes before it draws."""
    place, _ = journal_of(base, events)

    def look() -> None:
        with read_events(spark, [place]) as rows:
            made = latency.steps(latency.times(rows)).cache()
            minutes = latency.percentiles(made, 60).collect()
            latency.outages(rows, 1000).collect()
        seen = sum(row["n"] for row in minutes if row["step"] == "publish to deliver")
        assert seen == events // len(STEPS) // QUEUES * QUEUES, seen

    spent = measured(look, {"CPU": jvm_of(spark)}, events)
    rate = f"{spent.took_s:.1f} s, {events / spent.took_s / 1000:,.0f} k/s"
    say(f"latency of {events:,} events, Spark running", f"{rate}; {spent}")
    spark.catalog.clearCache()
    return spent.took_s


def say_curve(name: str, took: dict[int, float], what: str, curves: Path | None) -> None:
    """How the time grows with the size: what a million more cost."""
    sizes = sorted(took)
    if curves is not None:
        known = json.loads(curves.read_text()) if curves.exists() else {}
        points = {**known.get(name, {}), **{str(size): round(took[size], 2) for size in sizes}}
        known[name] = {size: points[size] for size in sorted(points, key=int)}
        curves.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")
    if len(sizes) < 2:
        return
    parts = [
        f"{(took[big] - took[small]) / (big - small) * 1e6:.2f} s from {millions(small)} to "
        f"{millions(big)}"
        for small, big in itertools.pairwise(sizes)
    ]
    say(f"{name}, of a million {what} more", ", ".join(parts))


def millions(count: int) -> str:
    return f"{count / 1e6:g} M"


def bench_command(base: Path, events: int) -> float:
    """What a user waits for: Spark's start, the audit, all tables and the report; how long."""
    place, wrong = journal_of(base, events)
    out = base / "out"
    words = [sys.executable, "-m", "warren", "pipeline", "audit"]
    began_s = time.monotonic()
    done = subprocess.run(
        [*words, "--journal", str(place), "--out", str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    took_s = time.monotonic() - began_s
    assert done.returncode == 1, done.stdout + done.stderr
    for name, count in wrong.items():
        table = {"duplicates": "duplicate"}.get(name, name)
        assert pq.read_table(out / f"audit_{table}").num_rows == count, name
    say(f"audit of {events:,} events, the whole command", timed(events, took_s))
    shutil.rmtree(out)
    return took_s


def journal_of(base: Path, events: int) -> tuple[Path, dict[str, int]]:
    """One that an earlier run has made is taken again."""
    place = base / f"journal-{events}"
    wrong = dict.fromkeys(("lost", "duplicates", "unflagged"), 1)
    if not place.exists():
        doing(f"writing a journal of {events:,} events")
        part = place.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        write_journal(part, events)
        part.rename(place)
    return place, wrong


def timed(events: int, took_s: float) -> str:
    bar = ""
    if events >= EVENTS_OF_BAR:
        bar = f"; the bar is {AUDIT_S:.0f} s: {'met' if took_s <= AUDIT_S else 'MISSED'}"
    return f"{took_s:.1f} s, {events / took_s / 1000:,.0f} k/s{bar}"


# -- archive ---------------------------------------------------------------------------------------


def bench_archive(spark: SparkSession, base: Path, rows: int) -> float:
    """Until the last message is in its file and the broker has been told; how many seconds."""
    with broker(base / "archived") as (url, amqp, pid):
        doing(f"filling a queue with {rows:,} messages")
        filled_s = fill(amqp, rows, "archive")
        options = {
            "endpoints": url,
            "queues": "archive-q000000",
            "cursor": "archive",
            "mode": "drain",
            **limits(False, None),
        }
        lake = Lake(base / "lake")
        doing(f"archiving {rows:,} messages")
        pids = {"CPU of Spark": jvm_of(spark), "broker": [pid]}
        spent = measured(lambda: run_archive(spark, options, lake, False, 1), pids, rows)
        assert sum(int(one["rows"]) for one in lake.written()) == rows
    rate = f"{spent.took_s:.1f} s, {rows / spent.took_s / 1000:,.0f} k/s"
    say(f"archive of {rows:,} messages", f"{rate}; {spent} (filled in {filled_s:.0f} s)")
    shutil.rmtree(base / "lake")
    shutil.rmtree(base / "archived")
    return spent.took_s


# -- scrub -----------------------------------------------------------------------------------------


def bench_scrub(spark: SparkSession, base: Path, sizes: list[int]) -> dict[int, float]:
    """Messages of one queue, each read at three replicas; seconds by messages read."""
    took = {}
    for rows in sizes:
        with Cluster(3, directory=base / "nodes") as cluster:
            mirror(cluster, "^scrub", {"ha-mode": "all", "ha-sync-mode": "automatic"})
            doing(f"filling a queue on three nodes with {rows:,} messages")
            filled_s = fill(cluster.url(1), rows, "scrub")
            await_ring(cluster, "scrub-q000000", synchronised=[1, 2, 3])
            urls = ",".join(cluster.management_url(n) for n in (1, 2, 3))
            words = ["scrub", "--endpoints", urls, "--queues", "scrub-q000000"]
            given = make_parser().parse_args(words)
            doing(f"comparing {rows:,} messages at three replicas")
            pids = {
                "CPU of Spark": jvm_of(spark),
                "brokers": [cluster.pid(n) for n in (1, 2, 3)],
            }
            spent = measured(lambda given=given: run_scrub(spark, given), pids, 3 * rows)
        shutil.rmtree(base / "nodes")
        rate = f"{spent.took_s:.1f} s, {3 * rows / spent.took_s / 1000:,.0f} k/s read and compared"
        said = f"{rate}; {spent} (filled in {filled_s:.0f} s)"
        say(f"scrub of {rows:,} messages on three nodes", said)
        took[3 * rows] = spent.took_s
    return took


def run_scrub(spark: SparkSession, given: argparse.Namespace) -> None:
    """Its tables are nobody's business here."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert run_scrub_job(spark, given) == GOOD, said.getvalue()


# -- journal ---------------------------------------------------------------------------------------


def bench_journal(base: Path, rounds: int) -> None:
    """The rates of flows of persistent messages with acknowledgements and confirms."""
    for name, words in FLOWS.items():
        bench_flow(base, name, rounds, [*words, "--persistent", "--size", "200", "--warm", "0"])


def bench_flow(base: Path, name: str, rounds: int, words: list[str]) -> None:
    rates: dict[bool, list[float]] = {False: [], True: []}
    costs: dict[bool, list[float]] = {False: [], True: []}
    for number in range(rounds):
        for is_on in (False, True) if number % 2 else (True, False):
            config = {"journal.enabled": True, "journal.interval": 5} if is_on else {}
            place = base / f"flow-{number}-{is_on}"
            doing(f"journal, {name}: round {number + 1} of {rounds}, {'on' if is_on else 'off'}")
            with broker(place, config) as (_, amqp, pid):
                before_s = usage(pid).cpu_s
                told = load(amqp, [*words, "--seconds", str(FLOW_S)])
                rates[is_on].append(told["consumed_per_s"])
                costs[is_on].append((usage(pid).cpu_s - before_s) / told["consumed"] * 1e6)
            assert not is_on or noted(place / "events") >= told["consumed"]
            shutil.rmtree(place, ignore_errors=True)
    off, on = statistics.median(rates[False]), statistics.median(rates[True])
    cost = 100 * (1 - on / off)
    verdict = "met" if cost <= JOURNAL_PERCENT else "MISSED"
    say(
        f"journal, {name}",
        f"{off / 1000:,.1f} k/s off, {on / 1000:,.1f} k/s on: {cost:.1f} % "
        f"(at most {JOURNAL_PERCENT:.0f}: {verdict}); the broker's CPU for a message "
        f"{statistics.median(costs[False]):.2f} and {statistics.median(costs[True]):.2f} µs",
    )
    spread = [" ".join(f"{rate / 1000:,.0f}" for rate in rates[is_on]) for is_on in (False, True)]
    say("", f"k/s, round by round: off {spread[0]}; on {spread[1]}")


def noted(journal: Path) -> int:
    """How many publishes the segments have."""
    tables = [pq.read_table(one, columns=["event", "count"]) for one in journal.glob("*.parquet")]
    return sum(
        pc.sum(table.filter(pc.equal(table["event"], "publish"))["count"]).as_py() or 0
        for table in tables
    )


# -- what they share -------------------------------------------------------------------------------


def say(what: str, text: str) -> None:
    doing("")
    print(f"  {what:<46}{text}", flush=True)


def doing(what: str) -> None:
    """What is being done, where somebody looks: the line is gone with the next."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[2K{what and f'  ... {what}'}")
        sys.stderr.flush()


@dataclass(frozen=True, slots=True)
class Spent:
    """Of some work: how long, and the CPU for each of so many things, by who has used it."""

    took_s: float
    cpu_us: dict[str, float]

    def __str__(self) -> str:
        return ", ".join(f"{name} {us:.2f} µs" for name, us in self.cpu_us.items()) + " each"


def measured(work: Callable[[], object], pids: dict[str, list[int]], count: int) -> Spent:
    """CPU counts on a busy machine, too, where times say little."""
    before = {name: usage_of(some).cpu_s for name, some in pids.items()}
    began_s = time.monotonic()
    work()
    took_s = time.monotonic() - began_s
    after = {name: usage_of(some).cpu_s for name, some in pids.items()}
    return Spent(took_s, {name: (after[name] - before[name]) / count * 1e6 for name in pids})


def jvm_of(spark: SparkSession) -> list[int]:
    """The process of Spark; its Python workers are below it."""
    assert spark._jvm is not None
    return [int(spark._jvm.java.lang.ProcessHandle.current().pid())]


@contextmanager
def broker(place: Path, config: dict[str, Any] | None = None) -> Iterator[tuple[str, str, int]]:
    """A broker as a process of its own: addresses of its HTTP API and of AMQP, and its number."""
    words = [sys.executable, str(HERE / "bench_broker.py"), str(place), json.dumps(config or {})]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        url, amqp = process.stdout.readline().split()
        yield url, amqp, process.pid
    finally:
        process.stdin.close()
        process.wait(60)


def fill(amqp: str, rows: int, prefix: str) -> float:
    began_s = time.monotonic()
    words = ["--mode", "fill", "--messages", str(rows), "--size", "200", "--persistent"]
    load(amqp, [*words, "--window", "2000", "--prefix", prefix, "--keep"])
    return time.monotonic() - began_s


def load(amqp: str, words: list[str]) -> dict[str, Any]:
    """What the load generator (bench/load) reports."""
    parts = urlsplit(amqp)
    place = f"{parts.hostname}:{parts.port}"
    done = subprocess.run(
        [str(PROGRAM), "--endpoints", place, *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"the load generator failed: {done.stderr.strip()}")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def sizes_of(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


PARTS = ("journal", "audit", "latency", "archive", "scrub")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=sizes_of, default=SIZES, help="events of the journals")
    parser.add_argument("--archived", type=sizes_of, default=SIZES, help="messages of archives")
    parser.add_argument(
        "--scrubbed",
        type=sizes_of,
        default=SCRUBBED,
        help="messages of scrubs; three times as many are read",
    )
    parser.add_argument("--curves", type=Path, metavar="FILE", help="add what was measured to it")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of the journal's cost")
    parser.add_argument("--journals", metavar="DIR", help="keep the journals of events here")
    given = parser.parse_args()
    wanted = PARTS if given.only is None else (given.only,)
    base = Path(tempfile.mkdtemp(prefix="warren-bench"))
    journals = base if given.journals is None else Path(given.journals)
    print("pipelines, on two cores", flush=True)
    began_s = time.monotonic()
    try:
        run(given, wanted, base, journals)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    say("all of it took", f"{(time.monotonic() - began_s) / 60:.1f} minutes")


def run(given: argparse.Namespace, wanted: Sequence[str], base: Path, journals: Path) -> None:
    if {"journal", "archive", "scrub"} & set(wanted):
        build()
    if "journal" in wanted:
        bench_journal(base, given.rounds)
    if "audit" in wanted:
        took = {events: bench_command(journals, events) for events in given.rows}
        say_curve("audit, the whole command", took, "events", given.curves)
    if tuple(wanted) == ("journal",):
        return
    doing("starting Spark")
    spark = make_session("local[2,4]", "2g", java_options="")
    # A session's first job is slow.
    if "audit" in wanted:
        bench_audit(spark, journals, 100_000)
        took = {events: bench_audit(spark, journals, events) for events in given.rows}
        say_curve("audit", took, "events", given.curves)
    if "latency" in wanted:
        bench_latency(spark, journals, 100_000)
        took = {events: bench_latency(spark, journals, events) for events in given.rows}
        say_curve("latency", took, "events", given.curves)
    if "archive" in wanted:
        bench_archive(spark, base, 20_000)
        took = {rows: bench_archive(spark, base, rows) for rows in given.archived}
        say_curve("archive", took, "messages", given.curves)
    if "scrub" in wanted:
        bench_scrub(spark, base, [20_000])
        took = bench_scrub(spark, base, given.scrubbed)
        say_curve("scrub", took, "messages read", given.curves)
    spark.stop()


if __name__ == "__main__":
    main()
