"""Reading replicas of mirrored queues, each at its own node, for the scrub.

A cursor keeps what leaves the queue meanwhile, on all replicas alike: so the same range of all of
them must read the same, however busy the queue is.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from warren.spark.blocks import Block, to_batch
from warren.spark.client import Client
from warren.spark.errors import Refused, WarrenError, hint
from warren.spark.options import read_options
from warren.spark.pipelines.scrub import ROWS
from warren.spark.source import constants

#: How long a mirror may take until it has heard of the cursor.
PATIENCE_S = 30.0
#: A scrub that was killed leaves its cursor; the broker drops it after an hour.
CURSOR_EXPIRY_S = 3600
#: Positions that one task reads.
TASK_POSITIONS = 65_536
FETCH_ROWS = 8192


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """A mirrored queue with its replicas in sync, and the range that all of them have."""

    queue: str
    master: str
    replicas: tuple[str, ...]
    #: Mirrors that are not in sync: there is nothing to be expected of them yet.
    learning: tuple[str, ...]
    first: int
    end: int
    cursor: str


@contextmanager
def opened(client: Client, queues: list[str]) -> Iterator[list[Scrubbed]]:
    """Those of the queues that are mirrored; their ranges are kept inside the `with`."""
    name = f"scrub-{uuid.uuid4().hex[:12]}"
    held: list[str] = []
    try:
        found = []
        for queue in queues:
            info = client.queue_info(queue)
            mirrors = info.get("slave_nodes") or []
            if not mirrors:
                continue
            in_sync = sorted(info.get("synchronised_slave_nodes") or [])
            said = {"mode": "follow", "start": "earliest", "expires_s": CURSOR_EXPIRY_S}
            told = client.open_cursor(queue, name, said)
            held.append(queue)
            nodes = (str(info["node"]), *in_sync)
            ends = [_await_cursor(client, queue, node, name) for node in nodes]
            first, end = int(told["start"]), min(int(told["end"]), *ends)
            learning = tuple(sorted(set(mirrors) - set(in_sync)))
            found.append(Scrubbed(queue, nodes[0], nodes, learning, first, end, name))
        yield found
    except Refused as error:
        raise WarrenError(hint(error)) from error
    finally:
        for queue in held:
            try:
                client.drop_cursor(queue, name)
            except Refused:
                continue  # It is gone with its queue.


def _await_cursor(client: Client, queue: str, node: str, cursor: str) -> int:
    """Until a replica keeps its messages too; where it ends."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        info = client.replica_info(queue, node)
        if cursor in info["cursors"]:
            return int(info["end"])
        if time.monotonic() > until_s:
            raise WarrenError(
                f"the replica of queue '{queue}' on {node} has not heard of a cursor for "
                f"{PATIENCE_S:.0f} s: is it in sync?"
            )
        time.sleep(0.05)


def pieces(queue: Scrubbed, buckets: list[tuple[int, int]] | None = None) -> list[tuple[Any, ...]]:
    """(queue, replica, cursor, first, end) of what tasks read: all, or some ranges only."""
    ranges = [(queue.first, queue.end)] if buckets is None else buckets
    return [
        (queue.queue, replica, queue.cursor, first, min(first + TASK_POSITIONS, end, queue.end))
        for begin, end in ranges
        for first in range(max(begin, queue.first), min(end, queue.end), TASK_POSITIONS)
        for replica in queue.replicas
    ]


@dataclass
class Piece(InputPartition):
    """What one task reads."""

    said: dict[str, Any]

    def __init__(self, said: dict[str, Any]) -> None:
        super().__init__(said)
        self.said = said


class ReplicaReader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        said = dict(options)
        self.wanted: list[list[Any]] = json.loads(said.pop("pieces"))
        self.client = Client(read_options(said))

    def partitions(self) -> Sequence[InputPartition]:
        names = ("queue", "replica", "cursor", "first", "end")
        return [Piece(dict(zip(names, one, strict=True))) for one in self.wanted]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Piece):
            # Spark makes up a partition where there are none.
            return iter(())
        return read_piece(self.client, partition.said, to_arrow_schema(ROWS, timezone="UTC"))


class ReplicaSource(DataSource):
    """For the scrub only: the pieces are in an option."""

    @classmethod
    def name(cls) -> str:
        return "warren-replicas"

    def schema(self) -> StructType:
        return ROWS

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        return ReplicaReader(dict(self.options))


def read_replicas(
    spark: SparkSession, options: dict[str, str], wanted: list[tuple[Any, ...]]
) -> DataFrame:
    """The rows of all pieces, read by tasks at the nodes that have them."""
    spark.dataSource.register(ReplicaSource)
    chosen = {name: options[name] for name in options if name not in {"queues", "queuePattern"}}
    read = spark.read.format("warren-replicas").options(**chosen)
    return read.option("pieces", json.dumps(wanted)).load()


def read_piece(
    client: Client, piece: dict[str, Any], columns: pa.Schema
) -> Iterator[pa.RecordBatch]:
    first = piece["first"]
    while first < piece["end"]:
        query = {
            "node": piece["replica"],
            "cursor": piece["cursor"],
            "from": first,
            "to": piece["end"],
            "rows": FETCH_ROWS,
        }
        block = Block(client.read_replica(piece["queue"], query))
        if block.end <= first:
            raise WarrenError(
                f"the replica of queue '{piece['queue']}' on {piece['replica']} ends at {first}, "
                "and was longer before: has it begun anew? Scrub again"
            )
        first = block.end
        if block.rows:
            fixed = {**constants(piece["queue"], block.head), "replica": piece["replica"]}
            yield to_batch(block, columns, fixed)
