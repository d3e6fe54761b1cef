"""What a pipeline prints and writes: tables as text, and as Parquet for programs."""

from __future__ import annotations

import datetime
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from warren.spark.errors import WarrenError
from warren.spark.pipelines import progress
from warren.spark.pipelines.problems import explained

#: So many rows of a long table are printed.
SHOWN_ROWS = 20


def say(text: str = "") -> None:
    progress.clear()
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def as_text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    return str(value)


def text_table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    cells = [list(names), *[[as_text(value) for value in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(names))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in cells]
    return "\n".join(line.rstrip() for line in lines)


def show(title: str, table: DataFrame, limit: int = SHOWN_ROWS) -> list[Any]:
    """Print a table's first rows; those rows."""
    rows = table.limit(limit + 1).collect()
    say(f"\n{title}")
    if not rows:
        say("  none")
        return []
    say(text_table(table.columns, rows[:limit]))
    if len(rows) > limit:
        say("  ... and more; all are in the table that --out writes")
    return rows


def write_tables(out: Path, tables: dict[str, DataFrame]) -> None:
    """Each as Parquet in a directory of its name, in place of an earlier one.

    It has its name when it is whole; where it cannot be written, the earlier one stays. Raises
    WarrenError.
    """
    for name, table in tables.items():
        part, place = out / f".{name}.part", out / name
        try:
            table.coalesce(1).write.mode("overwrite").parquet(str(part))
            shutil.rmtree(place, ignore_errors=True)
            part.rename(place)
        except Exception as error:
            shutil.rmtree(part, ignore_errors=True)
            told = explained(error)
            if told is None:
                raise
            raise WarrenError(f"table {name} is not written to {out}: {told}") from error
