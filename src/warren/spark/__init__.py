"""The Spark connector: queues into Spark and back, exactly once.

It runs on drivers and executors where the broker is not installed: it meets it through its HTTP API
only. `spark.read.format("warren")` works by itself where this package is installed; where it came
with `--py-files`, call `register(spark)` first. The options are in docs/spark.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make `format("warren")` known to a session."""
    from warren.spark.source import WarrenDataSource

    spark.dataSource.register(WarrenDataSource)
