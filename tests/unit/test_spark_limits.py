"""How much a batch has: by rows, by bytes, or by both."""

from __future__ import annotations

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from warren.spark.options import read_options
from warren.spark.stream_reader import BYTES_MAX, ROWS_MAX, WarrenStreamReader

GIVEN = {"endpoints": "http://h:15672", "queues": "orders", "cursor": "c"}


def reader(**options: str) -> WarrenStreamReader:
    return WarrenStreamReader(read_options({**GIVEN, **options}))


def test_a_batch_is_limited_whatever_is_given() -> None:
    """Without a limit of one's own a backlog of any length, and of any bodies, goes by pieces."""
    usual = reader()
    assert usual.getDefaultReadLimit() == ReadMaxRows(ROWS_MAX)
    assert usual.limits(ReadMaxRows(ROWS_MAX)) == (ROWS_MAX, BYTES_MAX)


def test_what_is_given_is_all_there_is() -> None:
    rows = reader(maxOffsetsPerTrigger="7")
    assert rows.getDefaultReadLimit() == ReadMaxRows(7)
    assert rows.limits(ReadMaxRows(7)) == (7, 2**62)
    size = reader(maxBytesPerTrigger="9")
    assert size.getDefaultReadLimit() == ReadMaxBytes(9)
    assert size.limits(ReadMaxBytes(9)) == (2**62, 9)
    both = reader(maxOffsetsPerTrigger="7", maxBytesPerTrigger="9")
    assert both.limits(both.getDefaultReadLimit()) == (7, 9)
    assert both.limits(ReadAllAvailable()) == (2**62, 2**62)
