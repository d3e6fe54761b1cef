"""`format("warren")`: what Spark asks first, and who answers the rest."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from warren.spark.options import Options, read_options
from warren.spark.schema import check_sink_schema, check_source_schema, source_schema


class WarrenDataSource(DataSource):
    """See docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "warren"

    @property
    def _options(self) -> Options:
        return read_options(dict(self.options))

    def schema(self) -> StructType:
        return source_schema(self._options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from warren.spark.batch_reader import WarrenReader

        check_source_schema(schema, self._options)
        return WarrenReader(self._options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = self._options
        check_source_schema(schema, options)
        if options.flag("compat", False):
            if options.one_of("queueType", "classic", "classic", "stream") == "stream":
                from warren.spark.compat_stream import StreamQueueReader

                return StreamQueueReader(options)
            from warren.spark.compat import CompatStreamReader

            return CompatStreamReader(options)
        from warren.spark.stream_reader import WarrenStreamReader

        return WarrenStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from warren.spark.writers import WarrenWriter

        check_sink_schema(schema, self._options)
        return WarrenWriter(self._options, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        from warren.spark.writers import WarrenStreamWriter

        check_sink_schema(schema, self._options)
        return WarrenStreamWriter(self._options, overwrite)


def constants(queue: str, head: dict[str, Any]) -> dict[str, Any]:
    """The columns that are the same for all messages of a block."""
    return {
        "queue": queue,
        "incarnation": head["incarnation"] or None,
        "node": head["node"],
        "epoch": head["epoch"],
    }
