"""Spark finds data sources in packages of this name: `format("warren")` needs no registration."""

from warren.spark.source import WarrenDataSource as DefaultSource

__all__ = ["DefaultSource"]
