"""The sinks. Tasks stage their rows at the broker; the driver commits the batch, all or nothing.

The broker remembers the last batch of each producer in every queue: a batch that Spark runs again,
because it never heard that it was committed, is published to no queue twice. With
`delivery=at-least-once` each task commits its own rows, under a name that nobody uses again.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from warren.spark.blocks import from_batch
from warren.spark.client import Client
from warren.spark.errors import OptionError, Refused, WarrenError, hint
from warren.spark.options import Options

#: A staged block has no more bytes than this, or one row: the API takes 20 MB.
BLOCK_BYTES_MAX = 4 << 20
BLOCK_ROWS_MAX = 16_384
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"


@dataclass
class Part(WriterCommitMessage):
    """What a task has staged: how many messages at which node."""

    producer: str
    batch: int
    part: str
    attempt: str
    counts: dict[str, int] = field(default_factory=dict)


class Publisher:
    """What both sinks share."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.client = Client(options)
        self.delivery = options.one_of("delivery", EXACTLY_ONCE, EXACTLY_ONCE, AT_LEAST_ONCE)
        self.on_unroutable = options.one_of("onUnroutable", "fail", "fail", "drop")
        self.fixed = {
            column: options.given[name.lower()]
            for column, name in (("exchange", "exchange"), ("routing_key", "routingKey"))
            if name.lower() in options.given
        }

    def stage(self, batches: Iterator[pa.RecordBatch], producer: str, batch: int) -> Part:
        """In a task: all its rows are staged, or published if nobody is to commit them."""
        context = TaskContext.get()
        part = str(context.partitionId()) if context is not None else "0"
        attempt = str(context.taskAttemptId()) if context is not None else "0"
        if self.delivery == AT_LEAST_ONCE:
            producer = f"{producer}-{uuid.uuid4().hex}"
        staged = Part(producer, batch, part, attempt)
        counts: Counter[str] = Counter()
        try:
            pieces = (piece for rows in batches for piece in _pieces(self._completed(rows)))
            for number, piece in enumerate(pieces):
                block = from_batch(piece)
                told = self.client.stage(producer, batch, part, attempt, block, number)
                counts.update(told["staged"])
            staged.counts = dict(counts)
            if self.delivery == AT_LEAST_ONCE:
                self._finish(producer, batch, [staged])
        except Refused as error:
            raise _explained(error) from error
        return staged

    def _completed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        for column, value in self.fixed.items():
            if rows.schema.get_field_index(column) < 0:
                rows = rows.append_column(column, pa.repeat(value, rows.num_rows))
        return rows

    def commit(self, messages: list[Any]) -> None:
        """On the driver: the batch is published, once."""
        parts = [one for one in messages if isinstance(one, Part) and one.counts]
        if self.delivery == AT_LEAST_ONCE or not parts:
            return
        try:
            self._finish(parts[0].producer, parts[0].batch, parts)
        except Refused as error:
            raise _explained(error) from error

    def _finish(self, producer: str, batch: int, parts: list[Part]) -> None:
        told = self.client.commit(
            producer, batch, [[one.part, one.attempt, one.counts] for one in parts]
        )
        if told["refused"]:
            raise WarrenError(
                f"{told['refused']} messages of batch {batch} were refused by a queue that is full "
                "(x-overflow=reject-publish); the others are published"
            )
        if told["unroutable"] and self.on_unroutable == "fail":
            raise WarrenError(
                f"{told['unroutable']} messages of batch {batch} have no queue to go to; bind one, "
                "or set the option 'onUnroutable' to 'drop'. The others are published"
            )

    def abort(self, messages: list[Any]) -> None:
        for one in messages:
            if isinstance(one, Part) and self.delivery == EXACTLY_ONCE:
                self.client.abort(one.producer, one.batch)
                return


def _explained(error: Refused) -> WarrenError:
    if error.word == "bad_block":
        return WarrenError(f"{error}; nothing of the batch is published")
    return WarrenError(hint(error))


def _pieces(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows in blocks that the broker takes."""
    if rows.num_rows == 0:
        return
    size = rows.nbytes
    parts = max(-(-size // BLOCK_BYTES_MAX), -(-rows.num_rows // BLOCK_ROWS_MAX))
    step = max(1, -(-rows.num_rows // parts))
    for first in range(0, rows.num_rows, step):
        yield rows.slice(first, step)


class WarrenStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("warren")`."""

    def __init__(self, options: Options, _overwrite: bool) -> None:
        self.publisher = Publisher(options)
        self.producer = _producer(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        number = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
        if number is None:
            raise WarrenError("Spark does not tell the number of the batch; it needs PySpark 4.2")
        return self.publisher.stage(iterator, self.producer, int(number))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        self.publisher.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        self.publisher.abort(messages)


def _producer(options: Options) -> str:
    """A name that is the same after a restart: given, or made of the checkpoint's place."""
    if options.has("producer"):
        return options.text("producer")
    if options.has("checkpointLocation"):
        place = options.text("checkpointLocation")
        return "spark-" + hashlib.sha256(place.encode()).hexdigest()[:24]
    if options.text("delivery", EXACTLY_ONCE) == AT_LEAST_ONCE:
        return "spark"
    raise OptionError("option 'producer' is required: a name that is the same after a restart")


class WarrenWriter(DataSourceArrowWriter):
    """`df.write.format("warren")`: one batch, published when the job has succeeded."""

    def __init__(self, options: Options, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("messages cannot be overwritten: use mode('append')")
        self.publisher = Publisher(options)
        self.producer = options.text("producer", f"spark-{uuid.uuid4().hex}")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.publisher.stage(iterator, self.producer, 0)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.publisher.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.publisher.abort(messages)
