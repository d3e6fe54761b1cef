"""The streaming source: what the driver asks, and what tasks read.

Spark keeps only the end of each batch, asks for the very first start again after a crash, and tells
of a finished batch one batch late. So the start is the broker's to remember (a cursor decides it
once), ranges of positions read the same however often, and only what is committed is trimmed.
An error in any of these calls ends the query: each waits out a failover by itself.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from warren.spark.client import Client
from warren.spark.errors import Refused, WarrenError, hint, loss
from warren.spark.options import Options
from warren.spark.queues import Cursors, Queues
from warren.spark.ranges import Range, cut, read_range
from warren.spark.trimming import Trims

if TYPE_CHECKING:
    import pyarrow as pa

#: How often the broker hears of a query that has nothing else to say, in seconds.
HEARTBEAT_S = 3.0
#: Rows of a batch, and bytes of their bodies, when neither is limited: some seconds of work, to
#: which what Spark takes for a batch, whatever its size, adds little. A batch is never in memory.
ROWS_MAX, BYTES_MAX = 5_000_000, 1 << 30
_NO_LIMIT = 2**62
#: By queue: {"inc": incarnation, "seq": position, "token": of the cursor}.
Offset = dict[str, dict[str, Any]]


class WarrenStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See the module's text. One object on the driver for a run; tasks get copies."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.client = Client(options)
        self.queues = Queues(self.client, options)
        self.rows = options.number("maxOffsetsPerTrigger", 0)
        self.bytes = options.number("maxBytesPerTrigger", 0)
        if not self.rows and not self.bytes:
            self.rows, self.bytes = ROWS_MAX, BYTES_MAX
        self.wait_ms = options.number("pollTimeoutMs", 500)
        self.fail_on_loss = options.flag("failOnDataLoss", True)
        options.text("cursor")
        options.check_reading(is_stream=True)
        self._cursors: Cursors | None = None
        self._caps: dict[str, int] | None = None
        self._ends: dict[str, dict[str, Any]] = {}
        self._trims: Trims | None = None

    # -- the run -----------------------------------------------------------------------------------

    @property
    def cursors(self) -> Cursors:
        """Made at the driver's first question: copies for tasks have none."""
        if self._cursors is None:
            self._cursors = Cursors(self.client, self.options)
            _release_when_terminated(self._cursors)
            beat = threading.Thread(target=_heartbeat, args=(self._cursors,), daemon=True)
            beat.start()
        return self._cursors

    @property
    def trims(self) -> Trims:
        if self._trims is None:
            self._trims = Trims(self.cursors, self.fail_on_loss)
        return self._trims

    def _opened(self, queue: str, token: str = "", start: Any = None) -> dict[str, Any]:
        held = self.cursors.held.get(queue)
        if held is None or (token and token != held["token"]):
            held = self.cursors.open(queue, token, start)
        return held

    # -- offsets -----------------------------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802
        names = self.queues.names(fresh=True)
        if not names and not self.queues.is_pattern:
            raise WarrenError("the option 'queues' names no queue")
        found: Offset = {}
        for queue in names:
            held = self._opened(queue)
            found[queue] = _point(held, held["start"])
        return _sorted(found)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self.rows) if self.rows else ReadMaxBytes(self.bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        try:
            self._caps = {
                queue: int(self.client.range_info(queue)["end"])
                for queue in self.queues.names(fresh=True)
            }
        except Refused as error:
            raise Cursors.explained(error) from error

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        rows, size = self.limits(limit)
        # Spark asks for the next batch when the last is in its log of commits: all before `start`
        # is done with. Its own `commit` comes a batch later, and after the last one never.
        self._trim(start)
        points = self._with_new_queues(start)
        if len(points) == 1:
            found = self._one_queue(points, rows, size)
        else:
            found = self._many_queues(points, rows, size)
        if found != start:
            return _sorted(found)
        # There is time, and the query may end here.
        self.trims.finish()
        return start

    def limits(self, limit: ReadLimit) -> tuple[int, int]:
        if isinstance(limit, ReadAllAvailable):
            return _NO_LIMIT, _NO_LIMIT
        rows, size = self.rows or _NO_LIMIT, self.bytes or _NO_LIMIT
        if isinstance(limit, ReadMaxRows):
            rows = min(rows, limit.max_rows)
        elif isinstance(limit, ReadMaxBytes):
            size = min(size, limit.max_bytes)
        return rows, size

    def _with_new_queues(self, start: Offset) -> Offset:
        """Queues that a pattern has found since join at their beginning; lost ones are told."""
        names = self.queues.names()
        points = dict(start)
        for queue in names:
            if queue not in points and (self._caps is None or queue in self._caps):
                held = self._opened(queue, start="earliest")
                points[queue] = _point(held, held["start"])
        return points

    def _one_queue(self, points: Offset, rows: int, size: int) -> Offset:
        ((queue, point),) = points.items()
        wait_ms = 0 if self._caps is not None else self.wait_ms
        told = self._poll(queue, point, rows=rows, bytes=size, wait_ms=wait_ms)
        if told is None:
            return {}
        return {queue: {**point, "seq": self._capped(queue, point, told["admitted"])}}

    def _many_queues(self, points: Offset, rows: int, size: int) -> Offset:
        """Each queue gets the share of the limits that its backlog has of all."""
        lags: dict[str, int] = {}
        found: Offset = {}
        for queue, point in points.items():
            told = self._poll(queue, point, rows=1)
            if told is not None:
                found[queue] = point
                lags[queue] = self._capped(queue, point, told["end"]) - point["seq"]
        total = sum(lags.values())
        if total == 0 and self._caps is None:
            time.sleep(self.options.number("tailCacheMs", 100) / 1000)
        for queue, lag in lags.items():
            if lag <= 0:
                continue
            share = {
                "rows": max(1, rows * lag // total) if rows < _NO_LIMIT else _NO_LIMIT,
                "bytes": max(1, size * lag // total) if size < _NO_LIMIT else _NO_LIMIT,
            }
            told = self._poll(queue, found[queue], **share)
            if told is not None:
                seq = self._capped(queue, found[queue], told["admitted"])
                found[queue] = {**found[queue], "seq": seq}
        return found

    def _capped(self, queue: str, point: dict[str, Any], end: int) -> int:
        if self._caps is not None:
            end = min(end, self._caps.get(queue, 0))
        return max(int(point["seq"]), end)

    def _poll(self, queue: str, point: dict[str, Any], **limits: int) -> dict[str, Any] | None:
        """How far a queue can be read; None when it is lost and that is allowed."""
        held = self._opened_or_lost(queue, point)
        if held is None:
            return None
        if held["incarnation"] != point["inc"]:
            self._lost(f"queue '{queue}' was deleted and declared again")
            return None
        try:
            told = self.cursors.poll(queue, point["token"], point["seq"], **limits)
        except Refused as error:
            if error.word == "trimmed" and not self.fail_on_loss:
                end = self.cursors.open(queue, point["token"])
                return {**end, "admitted": end["position"]}
            if error.word in {"trimmed", "no_queue", "no_cursor"}:
                self._lost(f"queue '{queue}' from position {point['seq']} on: {hint(error)}")
                return None
            raise self.cursors.explained(error) from error
        self._ends[queue] = {**point, "seq": told["end"]}
        return told

    def _opened_or_lost(self, queue: str, point: dict[str, Any]) -> dict[str, Any] | None:
        try:
            return self._opened(queue, point["token"])
        except WarrenError as error:
            cause = error.__cause__
            if isinstance(cause, Refused) and cause.word in {"no_queue", "no_cursor"}:
                self._lost(f"queue '{queue}': {error}")
                return None
            raise

    def _lost(self, what: str) -> None:
        if self.fail_on_loss:
            raise loss(what)

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        return _sorted(self._ends)

    # -- batches -----------------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        ranges = []
        for queue, point in end.items():
            if queue in start:
                first = int(start[queue]["seq"])
            else:
                first = int(self._opened(queue, point["token"])["start"])
            end_seq = int(point["seq"])
            ranges.append(Range(queue, point["inc"], self.cursors.name, first, end_seq))
        return cut(ranges, self.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        return read_range(self.client, self.options, partition)

    def commit(self, end: Offset) -> None:
        self._trim(end)

    def _trim(self, done: Offset) -> None:
        for queue, point in done.items():
            held = self._opened_or_lost(queue, point)
            if held is None or held["incarnation"] != point["inc"]:
                continue
            upto = int(point["seq"])
            if upto > int(held["start"]):
                self.trims.ask(queue, point["token"], upto)

    def stop(self) -> None:
        if self._cursors is not None:
            self._cursors.release_all()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cursors": None, "_trims": None}


def _point(held: dict[str, Any], seq: int) -> dict[str, Any]:
    return {"inc": held["incarnation"], "seq": seq, "token": held["token"]}


def _sorted(offset: Offset) -> Offset:
    """Spark compares offsets as text: the same ones must look the same."""
    return {
        queue: {"inc": point["inc"], "seq": int(point["seq"]), "token": point["token"]}
        for queue, point in sorted(offset.items())
    }


def _heartbeat(cursors: Cursors) -> None:
    """Keeps the cursors while the query waits for its trigger, or computes."""
    while True:
        time.sleep(HEARTBEAT_S)
        for queue, held in list(cursors.held.items()):
            said = {"mode": cursors.mode, "owner": cursors.owner, "token": held["token"]}
            # What is wrong is told by the query's own calls.
            with contextlib.suppress(WarrenError):
                cursors.client.open_cursor(queue, cursors.name, said)


def _release_when_terminated(cursors: Cursors) -> None:
    """Spark ends the process of a stopped query with SIGTERM, without a word before."""

    def end(_number: int, _frame: object) -> None:
        cursors.client.retries = 1
        cursors.release_all()
        raise SystemExit(143)

    # Another thread cannot; then the cursors are free after ten seconds.
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGTERM, end)
