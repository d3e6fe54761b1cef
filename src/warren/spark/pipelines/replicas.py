"""Reading replicas of mirrored queues, each at its own node, for the scrub.

A cursor keeps what leaves the queue meanwhile, on all replicas alike: so the same range of all of
them must read the same, however busy the queue is.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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
from warren.spark.errors import Refused, Unreachable, WarrenError, hint
from warren.spark.options import read_options
from warren.spark.pipelines.bucket_sums import CONTENT, HEADERS, BucketSums
from warren.spark.pipelines.scrub import ROWS, SUMS
from warren.spark.source import constants

#: How long a mirror may take until it has heard of the cursor.
PATIENCE_S = 30.0
#: A scrub that was killed leaves its cursor; the broker drops it after an hour.
CURSOR_EXPIRY_S = 3600
#: Positions that one task reads.
TASK_POSITIONS = 131_072
#: Of a block, unless its messages are large.
FETCH_ROWS = 20_000


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
    found = []
    for begin, end in ranges:
        first, last = max(begin, queue.first), min(end, queue.end)
        # A bucket belongs to one task as a whole.
        cuts = range((first // TASK_POSITIONS + 1) * TASK_POSITIONS, last, TASK_POSITIONS)
        points = [first, *cuts, last] if first < last else []
        for start, stop in itertools.pairwise(points):
            found += [
                (queue.queue, replica, queue.cursor, start, stop) for replica in queue.replicas
            ]
    return found


@dataclass
class Piece(InputPartition):
    """What one task reads."""

    said: dict[str, Any]

    def __init__(self, said: dict[str, Any]) -> None:
        super().__init__(said)
        self.said = said


class ReplicaReader(DataSourceReader):
    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        said = dict(options)
        self.wanted: list[list[Any]] = json.loads(said.pop("pieces"))
        self.homes: dict[str, str] = json.loads(said.pop("homes"))
        self.client = Client(read_options(said))
        self.schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        names = ("queue", "replica", "cursor", "first", "end")
        return [Piece(dict(zip(names, one, strict=True))) for one in self.wanted]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Piece):
            # Spark makes up a partition where there are none.
            return iter(())
        piece = partition.said
        client = self.client.preferring(self.homes.get(piece["replica"]))
        columns = to_arrow_schema(ROWS, timezone="UTC")
        if self.schema == ROWS:
            return read_piece(client, piece, columns)
        return sum_piece(client, piece, columns)


class ReplicaSource(DataSource):
    """For the scrub only: the pieces are in an option."""

    @classmethod
    def name(cls) -> str:
        return "warren-replicas"

    def schema(self) -> StructType:
        return ROWS

    def reader(self, schema: StructType) -> DataSourceReader:
        return ReplicaReader(dict(self.options), schema)


def homes_of(client: Client) -> dict[str, str]:
    """Which of the endpoints is which node: a replica is best asked for at its own."""
    found: dict[str, str] = {}
    for endpoint in client.endpoints if len(client.endpoints) > 1 else ():
        alone = client.preferring(endpoint)
        alone.endpoints, alone.retries = [endpoint], 1
        # One that is down, or not to be reached from here, is left to the others.
        with contextlib.suppress(Refused, Unreachable):
            found[str(alone.call("GET", "/overview")["node"])] = endpoint
    return found


def _read(
    spark: SparkSession,
    options: dict[str, str],
    wanted: list[tuple[Any, ...]],
    homes: dict[str, str],
    schema: StructType,
) -> DataFrame:
    spark.dataSource.register(ReplicaSource)
    chosen = {name: options[name] for name in options if name not in {"queues", "queuePattern"}}
    read = spark.read.format("warren-replicas").schema(schema).options(**chosen)
    return read.option("pieces", json.dumps(wanted)).option("homes", json.dumps(homes)).load()


def read_replicas(
    spark: SparkSession,
    options: dict[str, str],
    wanted: list[tuple[Any, ...]],
    homes: dict[str, str],
) -> DataFrame:
    """The rows of all pieces, read by tasks at the nodes that have them."""
    return _read(spark, options, wanted, homes, ROWS)


def read_sums(
    spark: SparkSession,
    options: dict[str, str],
    wanted: list[tuple[Any, ...]],
    homes: dict[str, str],
) -> DataFrame:
    """The checksums of all pieces, `SUMS`: what the messages are stays in the tasks."""
    return _read(spark, options, wanted, homes, SUMS)


def read_blocks(client: Client, piece: dict[str, Any]) -> Iterator[Block]:
    """The blocks of a piece in order; the next one is fetched while one is being used."""

    def fetch(first: int) -> Block:
        query = {
            "node": piece["replica"],
            "cursor": piece["cursor"],
            "from": first,
            "to": piece["end"],
            "rows": FETCH_ROWS,
        }
        return Block(client.read_replica(piece["queue"], query))

    first = piece["first"]
    with ThreadPoolExecutor(1) as ahead:
        future = ahead.submit(fetch, first) if first < piece["end"] else None
        while future is not None:
            block = future.result()
            if block.end <= first:
                raise WarrenError(
                    f"the replica of queue '{piece['queue']}' on {piece['replica']} ends at "
                    f"{first}, and was longer before: has it begun anew? Scrub again"
                )
            first = block.end
            future = ahead.submit(fetch, first) if first < piece["end"] else None
            yield block


def read_piece(
    client: Client, piece: dict[str, Any], columns: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for block in read_blocks(client, piece):
        if block.rows:
            fixed = {**constants(piece["queue"], block.head), "replica": piece["replica"]}
            yield to_batch(block, columns, fixed)


def sum_piece(
    client: Client, piece: dict[str, Any], columns: pa.Schema
) -> Iterator[pa.RecordBatch]:
    names = (*CONTENT, HEADERS)
    content = pa.schema([columns.field(name) for name in names])
    sums = BucketSums()
    for block in read_blocks(client, piece):
        if block.rows:
            sums.add(to_batch(block, content, {}))
    sums.finish()
    rows = [(piece["queue"], piece["replica"], *one) for one in sums.found]
    arrays = [
        pa.array([row[i] for row in rows], kind)
        for i, kind in enumerate((pa.string(), pa.string(), pa.int64(), pa.int64(), pa.int64()))
    ]
    yield pa.RecordBatch.from_arrays(arrays, schema=to_arrow_schema(SUMS, timezone="UTC"))
