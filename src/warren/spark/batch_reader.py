"""The batch source: `spark.read.format("warren")` reads what there is, between two positions.

What is to be read is kept by a cursor of its own until that expires, so that it can be read again
if a task fails, whatever consumers do meanwhile.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from warren.spark.client import Client
from warren.spark.errors import OptionError, Refused
from warren.spark.options import EARLIEST, LATEST, Options
from warren.spark.queues import Cursors, Queues
from warren.spark.ranges import Range, cut, read_range

if TYPE_CHECKING:
    import pyarrow as pa

#: How long a batch read's own cursor keeps its messages unless the option says otherwise: an hour.
READ_EXPIRY_S = 3600


class WarrenReader(DataSourceReader):
    """See the module's text."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.client = Client(options)
        if options.flag("compat", False):
            raise OptionError("with option 'compat' there is readStream only")
        options.check_reading(is_stream=False)
        self._name = options.text("cursor", f"spark-read-{uuid.uuid4().hex[:12]}")

    def partitions(self) -> Sequence[InputPartition]:
        queues = Queues(self.client, self.options).names(fresh=True)
        return cut([self._range(queue) for queue in queues], self.options)

    def _range(self, queue: str) -> Range:
        try:
            end = self._end(queue)
            said = {
                "mode": "follow",
                "start": self._start(queue),
                "expires_s": self.options.number("cursorExpiry", READ_EXPIRY_S),
            }
            held = self.client.open_cursor(queue, self._name, said)
        except Refused as error:
            raise Cursors.explained(error) from error
        first = min(int(held["start"]), end)
        return Range(queue, held["incarnation"], self._name, first, end)

    def _start(self, queue: str) -> Any:
        at_ms = self.options.timestamp_ms("startingTimestamp")
        if at_ms is not None:
            return {"timestamp": at_ms}
        given = self.options.offsets("startingOffsets", EARLIEST)
        return given.get(queue, EARLIEST) if isinstance(given, dict) else given

    def _end(self, queue: str) -> int:
        at_ms = self.options.timestamp_ms("endingTimestamp")
        info = self.client.range_info(queue, at_ms)
        if at_ms is not None:
            return int(info["at"])
        given = self.options.offsets("endingOffsets", LATEST)
        wanted = given.get(queue, LATEST) if isinstance(given, dict) else given
        if wanted == EARLIEST:
            raise OptionError("option 'endingOffsets' cannot be 'earliest'")
        if wanted == LATEST:
            return int(info["end"])
        if int(wanted) > info["end"]:
            raise OptionError(
                f"option 'endingOffsets': queue '{queue}' ends at {info['end']}, before {wanted}"
            )
        return int(wanted)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Range):
            # Spark makes up a partition where there are none: all queues are empty.
            return iter(())
        return read_range(self.client, self.options, partition)
