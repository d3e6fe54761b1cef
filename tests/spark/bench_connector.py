"""How fast queues go into Spark and back: `make bench-spark`.

Prints, for each number of rows: queue into Parquet beside the same rows from memory, the sink, and
what a reader at full speed does to the time from publish to confirm; and how much memory it took.
The driver has 2 GB.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pika
from bench_memory import Memory
from bench_sources import MemorySource, rows_batch
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from spark_session import make_session

from warren.spark.blocks import from_batch
from warren.spark.client import Client
from warren.spark.options import read_options
from warren.spark.stream_reader import ROWS_MAX

HERE = Path(__file__).parent
BLOCK_ROWS = 10_000
BATCH_BLOCKS = 10
PARTS = 2
#: The two cases of a latency take turns, so that both see the same machine.
PROBES, ROUNDS = 1_000, 5


class Bench:
    def __init__(
        self, spark: SparkSession, base: Path, url: str, amqp_url: str, memory: Memory
    ) -> None:
        self.memory = memory
        self.rows_a_batch = [ROWS_MAX]
        self.spark, self.base, self.url, self.amqp_url = spark, base, url, amqp_url
        self.client = Client(read_options({"endpoints": url}))
        self.batch = 0
        self.batches = ""

    def declare(self, queue: str) -> None:
        connection = pika.BlockingConnection(pika.URLParameters(self.amqp_url))
        connection.channel().queue_declare(queue, durable=True)
        connection.close()

    def fill(self, rows: int) -> None:
        """Messages for the queue `bench`, by staged batches: nothing else is as fast."""
        block = from_batch(rows_batch(BLOCK_ROWS))
        for first in range(0, rows, BLOCK_ROWS * BATCH_BLOCKS):
            self.batch += 1
            count = min(BATCH_BLOCKS, (rows - first) // BLOCK_ROWS)
            staged: dict[str, int] = {}
            for number in range(count):
                told = self.client.stage("fill", self.batch, "0", "0", block, number)
                for node, some in told["staged"].items():
                    staged[node] = staged.get(node, 0) + some
            self.client.commit("fill", self.batch, [["0", "0", staged]])

    def timed(self, what: str, rows: int, work: Callable[[], object]) -> float:
        spent, began_s = self.memory.spent(), time.monotonic()
        work()
        rate = rows / (time.monotonic() - began_s)
        print(f"  {what:<52}{rate / 1000:8.0f} k rows/s", flush=True)
        print(f"      {self.memory.spent().since(spent, rows)}{self.batches}", flush=True)
        self.batches = ""
        return rate

    def _note(self, query: StreamingQuery) -> None:
        """Where Spark says that the time of its batches went, for what is told next."""
        spent_ms: Counter[str] = Counter()
        ran = [one for one in query.recentProgress if one["numInputRows"]]
        for one in ran:
            spent_ms.update(one["durationMs"])
        whole = spent_ms.pop("triggerExecution")
        parts = ", ".join(f"{name} {ms}" for name, ms in spent_ms.most_common() if ms)
        self.batches = f"; {len(ran)} batches took {whole} ms: {parts}"

    def from_memory(self, rows: int) -> None:
        table = self.spark.read.format("memory-columns").options(rows=rows, parts=PARTS).load()
        table.write.mode("overwrite").parquet(str(self.base / "memory"))

    def from_memory_streamed(self, rows: int, rows_a_batch: int) -> None:
        """As `from_queue`, without a queue."""
        place = self.base / "streamed"
        query = (
            self.spark.readStream.format("memory-columns")
            .options(rows=rows, parts=PARTS, rows_a_batch=rows_a_batch)
            .load()
            .writeStream.format("parquet")
            .option("path", str(place / "lake"))
            .option("checkpointLocation", str(place / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        self._note(query)
        shutil.rmtree(place)

    def from_queue(self, name: str, rows_a_batch: int) -> None:
        query = (
            self.spark.readStream.format("warren")
            .options(endpoints=self.url, queues="bench", cursor=name, mode="drain")
            .option("maxOffsetsPerTrigger", rows_a_batch)
            .option("minPartitions", PARTS)
            .load()
            .writeStream.format("parquet")
            .option("path", str(self.base / name))
            .option("checkpointLocation", str(self.base / f"{name}-checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        self._note(query)
        self.client.drop_cursor("bench", name)

    def compare(self, rows: int) -> None:
        """A queue into Parquet, and the same without a queue: in one job, and in micro-batches."""
        print(f"{rows} rows, bodies of 200 bytes, two tasks", flush=True)
        self.timed("into the queue, staged batches", rows, lambda: self.fill(rows))
        memory = self.timed("from memory into Parquet", rows, lambda: self.from_memory(rows))
        for size in sorted({min(size, rows) for size in self.rows_a_batch}, reverse=True):
            self._compare_in_batches(rows, size, memory)

    def _compare_in_batches(self, rows: int, size: int, memory: float) -> None:
        print(f"  in batches of {size}:", flush=True)
        if self.client.range_info("bench")["first"] == self.client.range_info("bench")["end"]:
            self.fill(rows)
        streamed = self.timed("  from memory", rows, lambda: self.from_memory_streamed(rows, size))
        name = f"run-{rows}-{size}"
        queue = self.timed("  from the queue (bar: 200)", rows, lambda: self.from_queue(name, size))
        print(
            f"    that is {100 * queue / memory:.0f} % of what Spark does without a broker in one "
            f"job (bar: 70), {100 * queue / streamed:.0f} % of what it does in such batches"
        )
        print(f"    {self.memory.told()}", flush=True)
        shutil.rmtree(self.base / name)

    def sink(self, rows: int) -> None:
        table = self.spark.range(0, rows, numPartitions=PARTS).selectExpr(
            "'' exchange", "'sunk' routing_key", "cast(repeat(hex(id), 12) AS BINARY) body"
        )
        table.write.format("warren").option("endpoints", self.url).mode("append").save()

    def latency(self) -> None:
        """p99 from publish to confirm, with and without a reader that never rests."""
        self.fill(200_000)
        connection = pika.BlockingConnection(pika.URLParameters(self.amqp_url))
        channel = connection.channel()
        channel.confirm_delivery()
        kept = pika.BasicProperties(delivery_mode=2)

        def probe() -> float:
            times = []
            for _ in range(PROBES):
                began_s = time.perf_counter()
                channel.basic_publish("", "sunk", b"x" * 200, kept)
                times.append(time.perf_counter() - began_s)
            return statistics.quantiles(times, n=100)[98] * 1000

        told = self.client.open_cursor("bench", "latency", {})
        command = [sys.executable, str(HERE / "bench_reader.py"), self.url, "bench"]

        def probe_beside() -> float:
            reader = subprocess.Popen(
                [*command, str(told["start"])], stdout=subprocess.PIPE, text=True
            )
            try:
                assert reader.stdout is not None
                reader.stdout.readline()
                return probe()
            finally:
                reader.kill()
                reader.wait()

        rounds = [(probe(), probe_beside()) for _ in range(ROUNDS)]
        self.client.drop_cursor("bench", "latency")
        alone_ms = statistics.median(alone for alone, _ in rounds)
        beside_ms = statistics.median(beside for _, beside in rounds)
        print(
            f"  publish to confirm, p99: {alone_ms:.2f} ms alone, {beside_ms:.2f} ms beside a "
            f"reader at full speed: {beside_ms / alone_ms:.1f} times (bar: 2; median of {ROUNDS})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="1000000,10000000,30000000")
    parser.add_argument("--batch", default=str(ROWS_MAX), help="rows a batch, or several")
    given = parser.parse_args()
    base = Path(tempfile.mkdtemp())
    broker = subprocess.Popen(
        [sys.executable, str(HERE / "bench_broker.py"), str(base / "data")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert broker.stdout is not None
        url, amqp_url = broker.stdout.readline().split()
        # Spark's Python processes are to find the source in memory, too.
        os.environ["PYTHONPATH"] = os.pathsep.join(
            [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
        spark = make_session("local[2,4]", "2g", java_options="")
        spark.dataSource.register(MemorySource)
        bench = Bench(spark, base, url, amqp_url, Memory(broker.pid))
        bench.rows_a_batch = [int(size) for size in given.batch.split(",")]
        bench.declare("bench")
        bench.declare("sunk")
        # The first rows of a session run at a third of its speed.
        bench.fill(200_000)
        bench.from_memory(400_000)
        bench.from_memory_streamed(200_000, 100_000)
        bench.from_queue("warm", 100_000)
        for rows in map(int, given.rows.split(",")):
            bench.compare(rows)
        bench.sink(100_000)
        bench.timed("DataFrame into a queue (bar: 100)", 500_000, lambda: bench.sink(500_000))
        bench.latency()
        spark.stop()
    finally:
        assert broker.stdin is not None
        broker.stdin.close()
        broker.wait(60)
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
