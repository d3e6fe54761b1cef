"""The registry of types: which messages are of which type, and the columns that each has.

A JSON file that people write by hand, so everything that is wrong with it is told by name:

    {"types": [
      {"name": "order", "queue": "orders\\..*", "format": "json",
       "schema": "id bigint not null, total decimal(10,2)"},
      {"name": "click", "queue": "clicks", "format": "avro", "id": 17, "schema": {…}}
    ]}
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.errors import ParseException
from pyspark.sql.types import StructField, StructType

from warren.spark.errors import WarrenError
from warren.spark.pipelines.avro import AvroSchema, read_schema

FORMATS = ("json", "avro")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_KEYS = {
    "name", "version", "format", "schema", "queue", "routing_key", "content_type", "headers", "id",
}  # fmt: skip
#: Columns that the tables have of their own.
RESERVED = ("dt", "batch")


@dataclass(frozen=True, slots=True)
class Kind:
    """One entry: a version of a type, and the messages that it is for."""

    name: str
    version: int
    format: str
    columns: StructType
    avro: AvroSchema | None = None
    #: Patterns that the whole value must match; None: any.
    queue: str | None = None
    routing_key: str | None = None
    content_type: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    #: Bodies begin with a zero and this number in four octets.
    id: int | None = None

    @property
    def required(self) -> list[str]:
        return [one.name for one in self.columns.fields if not one.nullable]


@dataclass(frozen=True, slots=True)
class Registry:
    """All entries; of those that fit a message the first counts."""

    kinds: tuple[Kind, ...]

    def table_columns(self, name: str) -> StructType:
        """The columns of a type's table: those of all its versions."""
        merged = StructType()
        for kind in self.kinds:
            if kind.name == name:
                merged = merge(merged, kind.columns, f"type '{name}', version {kind.version}")
        return merged

    @property
    def names(self) -> list[str]:
        return sorted({kind.name for kind in self.kinds})


def merge(old: StructType, new: StructType, what: str) -> StructType:
    """All columns of both, each one nullable. Raises WarrenError when one has changed its type."""
    found = {one.name: one.dataType for one in old.fields}
    for one in new.fields:
        if found.setdefault(one.name, one.dataType) != one.dataType:
            raise WarrenError(
                f"{what}: column '{one.name}' is {one.dataType.simpleString()} now, and was "
                f"{found[one.name].simpleString()}; give the type another name, or the column"
            )
    return StructType([StructField(name, kind) for name, kind in found.items()])


def load_registry(path: Path) -> Registry:
    """Raises WarrenError. A session must be there: it reads the columns."""
    try:
        text = path.read_text()
    except OSError as error:
        raise WarrenError(f"the registry {path} cannot be read: {error.strerror}") from error
    try:
        entries = json.loads(text)["types"]
    except (ValueError, KeyError, TypeError) as error:
        raise WarrenError(f'the registry {path} is no JSON object with "types": {error}') from error
    if not isinstance(entries, list) or not entries:
        raise WarrenError(f'"types" of the registry {path} must be a list of types')
    kinds = [_kind(entry, f"{path}, type {number + 1}") for number, entry in enumerate(entries)]
    registry = Registry(tuple(kinds))
    for name in registry.names:
        registry.table_columns(name)
    return registry


def _kind(entry: Any, where: str) -> Kind:
    if not isinstance(entry, dict):
        raise WarrenError(f"{where} must be an object")
    unknown = sorted(set(entry) - _KEYS)
    if unknown:
        raise WarrenError(f"{where}: there is no key '{unknown[0]}'; keys are {sorted(_KEYS)}")
    name, kind_format = entry.get("name"), entry.get("format", "json")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise WarrenError(f"{where}: the name must be letters, digits, _ and -, not {name!r}")
    where = f"{where} ('{name}')"
    if kind_format not in FORMATS:
        raise WarrenError(f"{where}: the format must be json or avro, not {kind_format!r}")
    avro = None
    if kind_format == "avro":
        avro = read_schema(entry.get("schema"), where)
        columns = avro.columns
    else:
        columns = _ddl(entry.get("schema"), where)
    for column in columns.fields:
        if column.name.lower() in RESERVED or column.name.startswith("_"):
            raise WarrenError(f"{where}: the name of column '{column.name}' is the table's own")
    headers = entry.get("headers", {})
    if not isinstance(headers, dict):
        raise WarrenError(f"{where}: headers must be an object of names and values")
    return Kind(
        name=name,
        version=_number(entry, "version", 1, where) or 1,
        format=kind_format,
        columns=columns,
        avro=avro,
        queue=_pattern(entry, "queue", where),
        routing_key=_pattern(entry, "routing_key", where),
        content_type=_pattern(entry, "content_type", where),
        headers={str(key): str(value) for key, value in headers.items()},
        id=_number(entry, "id", None, where),
    )


def _number(entry: dict[str, Any], key: str, default: int | None, where: str) -> int | None:
    value = entry.get(key, default)
    if value is None or (type(value) is int and 0 <= value < 2**31):
        return value
    raise WarrenError(f"{where}: {key} must be a number, not {value!r}")


def _pattern(entry: dict[str, Any], key: str, where: str) -> str | None:
    value = entry.get(key)
    if value is None:
        return None
    try:
        re.compile(value)
    except (re.error, TypeError) as error:
        raise WarrenError(f"{where}: {key} must be a regular expression: {error}") from error
    return str(value)


def _ddl(text: Any, where: str) -> StructType:
    if not isinstance(text, str):
        raise WarrenError(
            f"{where}: the schema must be columns such as 'id bigint not null, name string'"
        )
    try:
        columns = StructType.fromDDL(text)
    except ParseException as error:
        told = str(error).strip().splitlines()[0]
        raise WarrenError(f"{where}: the schema cannot be read: {told}") from error
    if not isinstance(columns, StructType) or not columns.fields:
        raise WarrenError(f"{where}: the schema has no columns")
    return columns
