"""An archive as a Delta table: the batch's number is in the table's own log, so each counts once.

No JVM part of Delta is needed: `deltalake` writes the table, from the driver.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from warren.spark.errors import WarrenError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Under this name the table remembers which batches it has.
APPLICATION = "warren-archive"


def is_delta(data: Path) -> bool:
    return (data / "_delta_log").is_dir()


def load_deltalake() -> Any:
    """Raises WarrenError when it is not installed."""
    try:
        import deltalake
    except ImportError:
        raise WarrenError(
            "Delta tables need deltalake: pip install 'warrenmq[delta]'. Nothing was taken out of "
            "the queues"
        ) from None
    return deltalake


def append_batch(table: DataFrame, batch: int, data: Path) -> None:
    """Add the rows of a batch, unless the table has them from an attempt before."""
    deltalake = load_deltalake()
    if is_delta(data):
        newest = deltalake.DeltaTable(str(data)).transaction_version(APPLICATION)
        if newest is not None and newest >= batch:
            return
    mark = deltalake.Transaction(APPLICATION, batch)
    deltalake.write_deltalake(
        str(data),
        table.toArrow(),
        mode="append",
        partition_by=["dt", "queue"],
        commit_properties=deltalake.CommitProperties(app_transactions=[mark]),
    )


def files_of(data: Path) -> list[str]:
    """The files that count; others beside them are of attempts that failed, or were compacted."""
    return [str(one) for one in load_deltalake().DeltaTable(str(data)).file_uris()]


def compact_table(data: Path) -> tuple[int, int]:
    """Files before and after."""
    before = len(files_of(data))
    load_deltalake().DeltaTable(str(data)).optimize.compact()
    return before, len(files_of(data))
