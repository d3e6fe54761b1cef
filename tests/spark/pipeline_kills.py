"""Archives and replays whose drivers and broker nodes are killed: `make pipeline-kills`.

The pipelines run as `warren pipeline` does, as processes of their own. Drivers are killed with all
that they started, nodes by SIGKILL, at random moments: before the first batch, in one, between two.
An archive reads a mirrored queue of three nodes. A replay publishes into one whose masters are
killed, or into a plain queue whose only node is killed and comes back. In the end every message is
there once, and in order.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pika
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from warren.spark.schema import COLUMNS
from warren.testing import Cluster

sys.path.insert(0, str(Path(__file__).parent.parent / "cluster"))

from rings import await_ring, mirror, ring_of

QUEUE, TARGET = "ha.orders", "ha.again"
START_S, RUN_S = 240.0, 600.0
KEPT = pika.BasicProperties(delivery_mode=2)


class Pipeline:
    """One run of `warren pipeline`, in a session of its own so that all of it can be killed."""

    def __init__(self, base: Path, words: list[str]) -> None:
        self.output = base / f"{words[0]}-{time.monotonic_ns()}.log"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "warren", "pipeline", "--memory", "512m", *words],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self.output.read_text(errors="replace")

    def wait_for(self, is_so: Callable[[], bool]) -> None:
        """Until something is so, or the program has ended."""
        until_s = time.monotonic() + START_S
        while not is_so() and self.process.poll() is None:
            assert time.monotonic() < until_s, self.said[-4000:]
            time.sleep(0.02)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)

    def finish(self) -> None:
        self.process.wait(RUN_S)
        assert self.process.returncode == 0, self.said[-4000:]


class Kills:
    """What is done to one pipeline; `seed` tells when."""

    def __init__(self, base: Path, cluster: Cluster, seed: int, again: float = 1.0) -> None:
        self.base = base
        self.cluster = cluster
        self.dice = random.Random(seed)
        #: How likely it is run again in the end.
        self.again = again
        self.done: list[str] = []
        #: Whose master is killed.
        self.queue = QUEUE

    def run(self, words: list[str], checkpoint: Path, kills: int) -> None:
        """Driver and nodes in turn, beginning with the driver in its first batch."""
        commits, offsets = checkpoint / "commits", checkpoint / "offsets"
        running: Pipeline | None = None
        for number in range(kills):
            running = running or Pipeline(self.base, words)
            before = _count(commits)
            if number == 0 or self.dice.random() < 0.3:
                logged = _count(offsets)
                running.wait_for(lambda logged=logged: _count(offsets) > logged)  # type: ignore[misc]
            else:
                running.wait_for(lambda before=before: _count(commits) > before)  # type: ignore[misc]
            time.sleep(self.dice.random() * 0.5)
            what = ("driver", "node", "both")[number % 3]
            if what != "node":
                running.kill()
                running = None
            if what != "driver":
                self.kill_node()
            self.done.append(what)
        (running or Pipeline(self.base, words)).finish()
        if self.dice.random() < self.again:
            # Once more, with nothing left to do.
            Pipeline(self.base, words).finish()

    def kill_node(self) -> None:
        """The queue's master, or of a plain queue its only node; it comes back."""
        ring = ring_of(self.cluster, self.queue)
        names = self.cluster.nodes
        n = 1 if ring is None or ring.master not in names else names.index(ring.master) + 1
        self.cluster.kill(n)
        time.sleep(self.dice.random())
        self.cluster.start(n)
        if len(names) > 1:
            await_ring(self.cluster, self.queue, synchronised=(1, 2, 3))

    @property
    def endpoints(self) -> str:
        return ",".join(self.cluster.management_url(n) for n in self.cluster.numbers)

    def mirror(self) -> None:
        mirror(self.cluster, r"^ha\.", {"ha-mode": "all", "ha-sync-mode": "automatic"})

    # -- archive -----------------------------------------------------------------------------------

    def archive(self, messages: int, kills: int, mode: str) -> None:
        """Raises AssertionError when a message is missing in the archive or there twice."""
        self.mirror()
        publish(self.cluster.url(1), QUEUE, range(messages))
        await_ring(self.cluster, QUEUE, synchronised=(1, 2, 3))
        lake = self.base / "lake"
        rows = max(1, messages // (kills + 6))
        words = ["archive", "--endpoints", self.endpoints, "--queues", QUEUE, "--to", str(lake)]
        words += ["--mode", mode, "--batch-rows", str(rows)]
        self.run(words, lake / "_checkpoint", kills)
        found = duckdb.sql(
            f"select seq, decode(body) from '{lake}/data/**/*.parquet' order by seq, body"
        ).fetchall()
        assert found == [(n, str(n)) for n in range(messages)]
        assert not list(lake.rglob("_temporary"))
        if mode == "drain":
            assert count(self.cluster.url(1), QUEUE) == 0

    # -- replay ------------------------------------------------------------------------------------

    def replay(self, messages: int, kills: int) -> None:
        """Raises AssertionError when a message is not published, or twice, or out of order."""
        self.queue = TARGET
        if len(self.cluster.nodes) > 1:
            self.mirror()
        publish(self.cluster.url(1), TARGET, range(0))
        write_archive(self.base / "archived", messages)
        run = self.base / "run"
        words = ["replay", "--endpoints", self.endpoints]
        words += ["--archive", str(self.base / "archived"), "--run", str(run), "--exchange", ""]
        words += ["--routing-key", TARGET, "--batch-rows", str(max(1, messages // (kills + 6)))]
        self.run(words, run / "_checkpoint", kills)
        assert take_all(self.cluster.url(1), TARGET) == list(range(messages))


def _count(log: Path) -> int:
    """Entries of one of Spark's two logs."""
    return sum(one.name.isdigit() for one in log.iterdir()) if log.is_dir() else 0


def publish(url: str, queue: str, numbers: range) -> None:
    """All are confirmed when it returns."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_declare(queue, durable=True)
    channel.tx_select()
    for number in numbers:
        channel.basic_publish("", queue, b"%d" % number, KEPT)
    channel.tx_commit()
    connection.close()


def count(url: str, queue: str) -> int:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    told = connection.channel().queue_declare(queue, passive=True)
    connection.close()
    return int(told.method.message_count)


def take_all(url: str, queue: str) -> list[int]:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    found = []
    for method, _, body in channel.consume(queue, auto_ack=True, inactivity_timeout=2):
        if method is None:
            break
        found.append(int(body))
    connection.close()
    return found


def write_archive(place: Path, messages: int) -> None:
    """As an archive of one queue has it, without Spark."""
    schema = StructType([StructField(name, kind) for name, kind in COLUMNS if name != "queue"])
    came = datetime.datetime(2026, 11, 18, 12, 0, tzinfo=datetime.UTC)
    values = {"incarnation": "1", "exchange": "", "routing_key": "orders", "enqueued_at": came}
    rows = [{"seq": n, "body": b"%d" % n, "headers": [], **values} for n in range(messages)]
    folder = place / "data" / "dt=2026-11-18" / "queue=orders" / "batch=0"
    folder.mkdir(parents=True)
    table = pa.Table.from_pylist(rows, to_arrow_schema(schema, timezone="UTC"))
    pq.write_table(table, folder / "part-0.parquet")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--messages", type=int, default=60_000)
    given = parser.parse_args()
    for what, nodes in (
        ("archive, follow", 3),
        ("archive, drain", 3),
        ("replay", 3),
        ("replay", 1),
    ):
        name, _, mode = what.partition(", ")
        began_s = time.monotonic()
        with (
            tempfile.TemporaryDirectory(prefix="kills") as base,
            Cluster(nodes) as cluster,
        ):
            kills = Kills(Path(base), cluster, given.seed)
            getattr(kills, name)(given.messages, given.kills, *([mode] if mode else []))
        took_s = time.monotonic() - began_s
        print(
            f"{what}, {nodes} nodes: killed {', '.join(kills.done)}; "
            f"{given.messages:,} messages, {took_s:.0f} s: none lost, none twice",
            flush=True,
        )


if __name__ == "__main__":
    main()
