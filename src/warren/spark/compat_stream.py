"""`compat=true`, `queueType=stream`: a stream queue of RabbitMQ, by offset, over AMQP 0-9-1.

A stream can be read again from any offset, so nothing is staged: a task consumes from the first
offset of its range and stops at the last. What the broker does not remember is where a query began:
that is written to `stagingDir` once, because Spark asks for it again after a crash in its first
batch. How far a stream goes can be told over AMQP only by reading its last chunk.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from warren.spark.amqp_rows import STREAM_OFFSET, batch_of, connect, refused, row_of
from warren.spark.compat import Offset, OneQueueReader
from warren.spark.errors import Unreachable, WarrenError, loss
from warren.spark.options import EARLIEST, LATEST, Options
from warren.spark.ranges import Range, cut

#: A stream that gives nothing for this long after its last message has no more, for now; and one
#: that gives none at all for so long has none.
IDLE_S, EMPTY_S = 0.5, 5.0
#: How long the broker may take to send the first message of a range that is there.
PATIENCE_S = 60.0
#: How long the last chunk of a stream that is being written is followed.
TAIL_S = 2.0
PREFETCH, ACK_EVERY = 2_000, 500
BATCH_ROWS = 5_000


class Stream:
    """One consumer of a stream, from an offset on. Use it as a context."""

    def __init__(self, options: Options, queue: str, begin: Any) -> None:
        self.queue = queue
        self._connection = connect(options)
        self._begin = begin

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        # pika gives back what it has not handed on, which streams refuse: it ends all the same.
        with contextlib.suppress(Exception):
            if self._connection.is_open:
                self._connection.close()

    def messages(self, idle_s: float) -> Iterator[tuple[int, Any, Any, bytes]]:
        """(offset, method, properties, body) until nothing comes for a while.

        Raises WarrenError.
        """
        channel = self._connection.channel()
        channel.basic_qos(prefetch_count=PREFETCH)
        count = 0
        empty_s = time.monotonic() + EMPTY_S
        try:
            for method, properties, body in channel.consume(
                self.queue, inactivity_timeout=idle_s, arguments={STREAM_OFFSET: self._begin}
            ):
                if method is None:
                    if count or time.monotonic() > empty_s:
                        return
                    continue
                offset = (properties.headers or {}).get(STREAM_OFFSET)
                if offset is None:
                    raise WarrenError(
                        f"queue '{self.queue}' is no stream: leave the option 'queueType' out"
                    )
                count += 1
                if count % ACK_EVERY == 0:
                    # An acknowledgement is nothing but credit here.
                    channel.basic_ack(method.delivery_tag, multiple=True)
                yield int(offset), method, properties, body
        except WarrenError:
            raise
        except Exception as error:
            if getattr(error, "reply_code", 0):
                raise refused(self.queue, error) from error
            raise


class StreamQueueReader(OneQueueReader):
    """See the module's text."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.fail_on_loss = options.flag("failOnDataLoss", True)
        self._cap: int | None = None
        self._end = 0

    # -- where it begins and ends ------------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802
        staging = self.staging
        name = f"start-{self.queue.encode().hex()}"
        path = self.path / f"{name}.json"
        if not path.exists():
            staging.note(name, {"seq": self._resolved()})
        return {"seq": int(json.loads(path.read_text())["seq"])}

    def _resolved(self) -> int:
        at_ms = self.options.timestamp_ms("startingTimestamp")
        if at_ms is not None:
            at = datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC)
            found = self._first(at.replace(tzinfo=None))
            return self._last_end() if found is None else found
        given = self.options.offsets("startingOffsets", EARLIEST)
        wanted = given.get(self.queue, EARLIEST) if isinstance(given, dict) else given
        if wanted == LATEST:
            return self._last_end()
        if wanted == EARLIEST:
            return self._first("first") or 0
        return int(wanted)

    def _first(self, begin: Any) -> int | None:
        """The offset of the first message from there on; None: there is none."""
        with Stream(self.options, self.queue, begin) as stream:
            return next((offset for offset, *_ in stream.messages(IDLE_S)), None)

    def _last_end(self) -> int:
        """Behind the last message. Never less than before."""
        deadline_s = time.monotonic() + TAIL_S
        with Stream(self.options, self.queue, "last") as stream:
            for offset, *_ in stream.messages(IDLE_S):
                self._end = max(self._end, offset + 1)
                if time.monotonic() > deadline_s:
                    break
        return self._end

    # -- offsets -----------------------------------------------------------------------------------

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._cap = self._last_end()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        rows = self.rows_of(limit)
        begin = int(start["seq"])
        end = self._cap
        if end is None:
            # What is known to be there is read first.
            end = self._end if self._end > begin else self._last_end()
        return {"seq": max(begin, min(end, begin + rows))}

    # -- batches -----------------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        first = int(start["seq"])
        there = self._first("first")
        if there is None or there > first:
            if self.fail_on_loss:
                gone = "all of it" if there is None else f"all before offset {there}"
                raise loss(f"of stream '{self.queue}' {gone} is gone, and {first} is wanted")
            first = min(int(end["seq"]), first if there is None else there)
        return cut([Range(self.queue, "", "", first, int(end["seq"]))], self.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Offsets have gaps, where the broker keeps notes of its own."""
        assert isinstance(partition, Range)
        rows: list[dict[str, Any]] = []
        reached = partition.first
        with Stream(self.options, self.queue, partition.first) as stream:
            for offset, method, properties, body in stream.messages(PATIENCE_S):
                reached = offset + 1
                if partition.first <= offset < partition.end:
                    rows.append(row_of(self.queue, offset, method, properties, body))
                if len(rows) >= BATCH_ROWS:
                    yield batch_of(self.options, rows)
                    rows = []
                if reached >= partition.end:
                    break
        if rows:
            yield batch_of(self.options, rows)
        if reached < partition.end:
            raise Unreachable(
                f"stream '{self.queue}' has given nothing behind offset {reached} for "
                f"{PATIENCE_S:.0f} s, and had up to {partition.end} before"
            )

    def commit(self, end: Offset) -> None: ...
