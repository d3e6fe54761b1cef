"""How results are printed: tab-separated tables, boxes, JSON and CSV."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

FORMATTERS = ("table", "pretty_table", "json", "csv")
#: A table whose columns stand below each other, without lines: for terminals.
ALIGNED = "aligned"

Row = dict[str, Any]


def text_of(value: Any) -> str:
    """A value in a table, as rabbitmqctl writes it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "[" + ", ".join(f'{{"{key}",{_term(item)}}}' for key, item in value.items()) + "]"
    if isinstance(value, list):
        return "[" + ", ".join(text_of(item) for item in value) + "]"
    return str(value)


def _term(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else text_of(value)


def render(
    rows: Sequence[Row], columns: Sequence[str], formatter: str, headers: bool = True
) -> Iterable[str]:
    """The lines of a list of objects."""
    if formatter == "json":
        return _json(rows, columns)
    cells = [[text_of(row.get(column)) for column in columns] for row in rows]
    if formatter == "csv":
        head = [list(columns)] if headers else []
        return [",".join(_quoted(cell) for cell in line) for line in [*head, *cells]]
    if formatter == "pretty_table":
        return _box(columns, cells)
    head = [list(columns)] if headers and rows else []
    if formatter == ALIGNED:
        return _aligned([*head, *([_flat(cell) for cell in line] for line in cells)])
    return ["\t".join(_flat(cell) for cell in line) for line in [*head, *cells]]


def _flat(cell: str) -> str:
    """A tab or a line end in a name must not break the table."""
    return cell.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def _quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"'


def _json(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    lines = ["["]
    for number, row in enumerate(rows):
        picked = {column: row.get(column) for column in columns}
        lines.append(("," if number else "") + json.dumps(picked, ensure_ascii=False))
    return [*lines, "]"]


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    padded = (zip(line, widths, strict=True) for line in lines)
    return ["  ".join(f"{cell:<{width}}" for cell, width in line).rstrip() for line in padded]


def _box(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    lines = [list(columns), *([_flat(cell) for cell in line] for line in cells)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]

    def edge(left: str, middle: str, right: str) -> str:
        return left + middle.join("─" * (width + 2) for width in widths) + right

    def row(line: Sequence[str]) -> str:
        padded = (f" {cell:<{width}} " for cell, width in zip(line, widths, strict=True))
        return "│" + "│".join(padded) + "│"

    body = [row(lines[0])]
    for line in lines[1:]:
        body += [edge("├", "┼", "┤"), row(line)]
    return [edge("┌", "┬", "┐"), *body, edge("└", "┴", "┘")]
