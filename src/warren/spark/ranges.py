"""Ranges of positions: cut into partitions on the driver, read as record batches on executors."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from warren.spark.blocks import BadBlock, Block, to_batch
from warren.spark.client import Client
from warren.spark.errors import Refused, WarrenError, hint, loss
from warren.spark.options import Options
from warren.spark.schema import source_schema

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class Range(InputPartition):
    """Positions of one queue from `first` to before `end`, all read by one task."""

    queue: str
    incarnation: str
    cursor: str
    first: int
    end: int

    def __init__(self, queue: str, incarnation: str, cursor: str, first: int, end: int) -> None:
        super().__init__((queue, incarnation, cursor, first, end))
        self.queue = queue
        self.incarnation = incarnation
        self.cursor = cursor
        self.first = first
        self.end = end


def cut(ranges: list[Range], options: Options) -> list[Range]:
    """The ranges in as many pieces as the options ask for; order within a queue is kept."""
    total = sum(one.end - one.first for one in ranges)
    if total == 0:
        return []
    step = -(-total // options.partitions_min)
    most = options.number("maxRecordsPerPartition", 0)
    if most:
        step = min(step, most)
    pieces = []
    for one in ranges:
        size = one.end - one.first
        parts = max(1, -(-size // step)) if size else 0
        for i in range(parts):
            first = one.first + size * i // parts
            end = one.first + size * (i + 1) // parts
            pieces.append(Range(one.queue, one.incarnation, one.cursor, first, end))
    return pieces


def read_blocks(client: Client, options: Options, wanted: Range) -> Iterator[Block]:
    """The blocks of a range in order; the next one is fetched while one is being used."""
    rows = options.number("fetchRows", 20_000, 1)
    body, headers = options.flag("includeBody", True), options.flag("includeHeaders", True)

    def fetch(first: int) -> Block:
        query: dict[str, Any] = {
            "from": first,
            "to": wanted.end,
            "rows": rows,
            "incarnation": wanted.incarnation,
            "cursor": wanted.cursor,
            "body": str(body).lower(),
            "headers": str(headers).lower(),
            "master": str(options.read_from == "master").lower(),
            "mirror": str(options.read_from == "mirror").lower(),
        }
        return Block(client.read_range(wanted.queue, query))

    with ThreadPoolExecutor(1) as ahead:
        first = wanted.first
        future = ahead.submit(fetch, first)
        while first < wanted.end:
            try:
                block = future.result()
            except Refused as error:
                first = _after_refusal(client, options, wanted, first, error)
                if first < wanted.end:
                    future = ahead.submit(fetch, first)
                continue
            if block.head["missing"] and options.flag("failOnDataLoss", True):
                raise loss(
                    f"{block.head['missing']} messages of queue '{wanted.queue}' between positions "
                    f"{first} and {block.end} cannot be read"
                )
            if block.end <= first:
                raise WarrenError(
                    f"queue '{wanted.queue}' has nothing on its disk from position {first} on, and "
                    f"had up to {wanted.end} before: it was restored from an older state"
                )
            first = block.end
            if first < wanted.end:
                future = ahead.submit(fetch, first)
            yield block


def _after_refusal(
    client: Client, options: Options, wanted: Range, first: int, error: Refused
) -> int:
    """Where to go on when messages are gone and that is allowed. Raises DataLoss, WarrenError."""
    may_lose = not options.flag("failOnDataLoss", True)
    if error.word == "trimmed":
        if not may_lose:
            raise loss(f"queue '{wanted.queue}', from position {first} on: {error}") from error
        return max(first, min(int(client.range_info(wanted.queue)["first"]), wanted.end))
    if error.word in {"no_queue", "no_cursor", "precondition_failed"}:
        if not may_lose:
            raise loss(hint(error)) from error
        return wanted.end
    raise WarrenError(hint(error)) from error


def read_range(client: Client, options: Options, wanted: Range) -> Iterator[pa.RecordBatch]:
    """What a task gives to Spark."""
    from warren.spark.source import constants

    schema = to_arrow_schema(source_schema(options), timezone="UTC")
    try:
        for block in read_blocks(client, options, wanted):
            if block.rows:
                yield to_batch(block, schema, constants(wanted.queue, block.head))
    except BadBlock as error:
        raise WarrenError(
            f"{error}; what the option 'endpoints' names is not a node of Warren, or something "
            "between it and this executor spoils its answers. Nothing of the range is taken"
        ) from error
