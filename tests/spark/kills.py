"""Drivers killed again and again: nothing is lost, nothing comes twice. `make spark-kills`.

A queue goes into Parquet, or Parquet into a queue, by a driver program that is killed with all its
processes at random moments, the first batch included, and started again on its checkpoint. That an
executor dies by itself, or the master of the queue with the driver: `test_many_processes.py`.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from drivers import Driver
from messages import publish, take_all

from warren.testing import Broker


def count_commits(base: Path) -> int:
    """How many batches Spark has seen through."""
    commits = base / "checkpoint" / "commits"
    return sum(path.name.isdigit() for path in commits.iterdir()) if commits.is_dir() else 0


def archived(base: Path) -> list[tuple[int, int]]:
    """(position, number) of all rows that Spark's own list of files counts, in order."""
    import json

    files: list[str] = []
    for log in sorted(
        (base / "lake" / "_spark_metadata").glob("[0-9]*"), key=lambda path: int(path.stem)
    ):
        lines = log.read_text().splitlines()[1:]
        names = [json.loads(line)["path"] for line in lines if line.strip()]
        files = names if log.suffix == ".compact" else files + names
    rows: list[tuple[int, int]] = []
    for name in files:
        table = pq.read_table(name.removeprefix("file://"), columns=["seq", "body"])
        bodies = table.column("body").to_pylist()
        rows += zip(table.column("seq").to_pylist(), map(int, bodies), strict=True)
    return sorted(rows)


class Kills:
    """One archive and what is done to its driver."""

    def __init__(self, base: Path, seed: int, messages: int, rows: int, mode: str) -> None:
        self.base = base
        self.dice = random.Random(seed)
        self.messages = messages
        self.rows = rows
        self.mode = mode
        self.kills = 0

    def start(self, program: str, broker: Broker) -> Driver:
        return Driver(
            program, self.base, broker.http_url, "q", str(self.base), self.mode, str(self.rows)
        )

    def kill_one(self, program: str, broker: Broker) -> None:
        """Start the driver and kill it: before its first batch, in one, or between two."""
        driver = self.start(program, broker)
        before = count_commits(self.base)
        where = self.dice.choice(("started", "offsets", "batch", "batch"))
        offsets = self.base / "checkpoint" / "offsets"
        if where == "started" or self.kills == 0:
            # Batch 0 is the one whose start Spark does not remember.
            driver.wait_for(lambda: driver.has_said("started"))
        elif where == "offsets":
            logged = len(list(offsets.glob("[0-9]*")))
            driver.wait_for(lambda: len(list(offsets.glob("[0-9]*"))) > logged)
        else:
            driver.wait_for(lambda: count_commits(self.base) > before)
        time.sleep(self.dice.random() * 1.5)
        driver.kill()
        self.kills += 1

    def archive(self, broker: Broker, kills: int) -> None:
        """Raises AssertionError when a message is lost or there twice."""
        publish(broker, "q", 0, self.messages // 2)
        for n in range(kills):
            self.kill_one("queue_to_parquet", broker)
            if n == kills // 2:
                publish(broker, "q", self.messages // 2, self.messages)
        self.start("queue_to_parquet", broker).finish()
        rows = archived(self.base)
        assert [number for _, number in rows] == list(range(self.messages))
        assert [position for position, _ in rows] == list(range(self.messages))
        if self.mode == "drain":
            assert broker.queue("q").ready == 0

    def sink(self, broker: Broker, kills: int) -> None:
        """Raises AssertionError when a message is lost or there twice."""
        publish(broker, "q", 0, 0)
        (self.base / "rows").mkdir()
        step = max(1, self.rows)
        for first in range(0, self.messages, step):
            numbers = range(first, min(first + step, self.messages))
            table = pa.table({"n": list(numbers), "body": [str(n) for n in numbers]})
            pq.write_table(table, self.base / "rows" / f"{first:09}.parquet")
        for _ in range(kills):
            self.kill_one("parquet_to_queue", broker)
        self.start("parquet_to_queue", broker).finish()
        assert sorted(take_all(broker, "q")) == list(range(self.messages))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--only", choices=("follow", "drain", "sink"), help="one of the three")
    given = parser.parse_args()
    runs = {"follow": ("archive", "follow"), "drain": ("archive", "drain"), "sink": ("sink", "-")}
    for what, mode in [runs[given.only]] if given.only else runs.values():
        with tempfile.TemporaryDirectory() as name:
            base = Path(name)
            with Broker(http=True, data_dir=base / "data") as broker:
                rows = given.messages // (given.kills + 5)
                kills = Kills(base, given.seed, given.messages, rows, mode)
                began_s = time.monotonic()
                getattr(kills, what)(broker, given.kills)
                took_s = time.monotonic() - began_s
        print(f"{what}, {mode}: {kills.kills} kills, {given.messages} messages, {took_s:.0f} s: "
              "none lost, none twice")  # fmt: skip


if __name__ == "__main__":
    main()
