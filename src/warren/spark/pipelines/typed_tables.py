"""The directory of typed tables, and the run that fills it, batch by batch.

tables/order/dt=2026-11-18/batch=12/part-….parquet    one directory for each type
quarantine/dt=2026-11-18/batch=12/part-….parquet
_types.json                                           the columns of the tables, as they grow
_batches/12.json, _checkpoint/                        as the archive has them
"""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from warren.spark.errors import WarrenError
from warren.spark.pipelines.archive import Lake, day_of
from warren.spark.pipelines.registry import Registry, merge
from warren.spark.pipelines.typed import counts_of, decode, quarantine_of, table_of


@dataclass(frozen=True, slots=True)
class TypedTables:
    """See the module's text."""

    lake: Lake
    registry: Registry
    #: Of each type's table: all columns that it has or ever had.
    columns: dict[str, StructType]

    def place(self, name: str) -> Path:
        return self.lake.path / "tables" / name

    @property
    def quarantine(self) -> Path:
        return self.lake.path / "quarantine"

    def write(self, rows: DataFrame, batch: int) -> list[dict[str, Any]]:
        """One batch, in place of what an attempt before left of it; what it held, by type."""
        decoded = decode(rows, self.registry).withColumns(
            {"dt": day_of(), "batch": F.lit(batch).cast("long")}
        )
        decoded = decoded.persist()
        try:
            counts = [one.asDict() for one in counts_of(decoded).collect()]
            self._remove(batch)
            here = ("dt", "batch")
            for name in sorted({one["type"] for one in counts if one["reason"] is None}):
                table = table_of(decoded, self.registry, name, self.columns[name], here)
                self._append(table, self.place(name))
            if any(one["reason"] is not None for one in counts):
                self._append(quarantine_of(decoded, here), self.quarantine)
            self.lake.note(batch, sum(one["rows"] for one in counts), counts=counts)
        except Exception:
            # Readers that know nothing of the list of batches are not to find half of one.
            with contextlib.suppress(OSError):
                self._remove(batch)
            raise
        finally:
            decoded.unpersist()
        return counts

    def _remove(self, batch: int) -> None:
        """What there is of a batch that is not whole."""
        for place in [self.quarantine, *self.lake.path.glob("tables/*")]:
            # Tasks that a killed driver left would be taken for this batch's own.
            shutil.rmtree(place / "_temporary", ignore_errors=True)
            for old in place.glob(f"dt=*/batch={batch}"):
                shutil.rmtree(old)
        self.lake.forget(batch)

    def _append(self, table: DataFrame, place: Path) -> None:
        table.write.mode("append").partitionBy("dt", "batch").parquet(str(place))


def open_tables(path: Path, registry: Registry) -> TypedTables:
    """Raises WarrenError when the tables there have other columns, or cannot be written to."""
    lake = Lake(path)
    lake.prepare()
    noted = path / "_types.json"
    known: dict[str, Any] = {}
    if noted.exists():
        try:
            known = json.loads(noted.read_text())
        except ValueError as error:
            raise WarrenError(f"{noted} cannot be read: {error}") from error
    columns = {
        name: merge(
            StructType.fromJson(known[name]) if name in known else StructType(),
            registry.table_columns(name),
            f"the table '{name}' in {path}",
        )
        for name in registry.names
    }
    part = noted.with_suffix(".part")
    said = {**known, **{name: one.jsonValue() for name, one in columns.items()}}
    part.write_text(json.dumps(said, indent=1) + "\n")
    part.rename(noted)
    return TypedTables(lake, registry, columns)
