"""Rows as the connector's source gives them, made up for tests."""

from __future__ import annotations

import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from warren.spark.schema import COLUMNS

CAME = datetime.datetime(2026, 11, 18, 12, 0, tzinfo=datetime.UTC)
SCHEMA = StructType([StructField(name, kind) for name, kind in COLUMNS])
_USUAL = {
    "queue": "q",
    "seq": 0,
    "incarnation": "i",
    "exchange": "shop",
    "routing_key": "k",
    "enqueued_at": CAME,
    "headers": {},
    "body": b"",
}


def source_rows(spark: SparkSession, given: list[dict[str, Any]]) -> DataFrame:
    """What a row does not say is as usual."""
    rows = [tuple({**_USUAL, **one}.get(name) for name, _ in COLUMNS) for one in given]
    return spark.createDataFrame(rows, SCHEMA)
