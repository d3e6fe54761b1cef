"""Avro bodies into columns: a schema's types in Spark's terms, and a decoder for whole batches.

Bodies are single records without a container, as producers send them. A body that is none gives a
row without values and the reason; the others of its batch are not touched by that.
"""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from warren.spark.errors import WarrenError

_PLAIN: dict[str, DataType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
    "enum": StringType(),
    "fixed": BinaryType(),
}
_LOGICAL: dict[str, DataType] = {
    "date": DateType(),
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
}
_NAMED = ("record", "enum", "fixed")
DECIMAL_DIGITS_MAX = 38
#: What is said of a body that cannot be decoded has no more characters.
REASON_LENGTH_MAX = 200
Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A record's schema: as fastavro reads it, and the columns that it makes."""

    text: str
    columns: StructType


def read_schema(given: Any, where: str) -> AvroSchema:
    """Raises WarrenError for what is no schema of a record, or has no columns in Spark."""
    try:
        import fastavro
    except ImportError:
        raise WarrenError(f"{where}: Avro needs fastavro: pip install 'warrenmq[avro]'") from None
    schema = copy.deepcopy(given)
    try:
        if isinstance(schema, str):
            schema = json.loads(schema)
        _forget_times(schema)
        fastavro.parse_schema(copy.deepcopy(schema))
        kind, _, _ = _Types().read(schema)
    except WarrenError as error:
        raise WarrenError(f"{where}: {error}") from error
    except (fastavro.schema.SchemaParseException, ValueError, KeyError, TypeError) as error:
        raise WarrenError(f"{where}: the Avro schema cannot be read: {error}") from error
    if not isinstance(kind, StructType):
        raise WarrenError(f"{where}: the Avro schema must be that of a record")
    return AvroSchema(json.dumps(schema), kind)


def _forget_times(schema: Any) -> None:
    """Logical types that Spark has no column for are what they are made of."""
    if isinstance(schema, list):
        for one in schema:
            _forget_times(one)
    elif isinstance(schema, dict):
        logical = schema.get("logicalType")
        if logical is not None and logical not in _LOGICAL and logical != "decimal":
            del schema["logicalType"]
        for one in schema.values():
            _forget_times(one)


class _Types:
    """Reads a schema; named types may be used again by their names, but not inside themselves."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[DataType, bool, Convert | None]] = {}

    def read(self, schema: Any) -> tuple[DataType, bool, Convert | None]:
        """Spark's type, whether it may be null, and what makes Arrow's value of fastavro's."""
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            if schema in _PLAIN:
                return _PLAIN[schema], False, None
            if schema in self._known:
                return self._known[schema]
            raise WarrenError(
                f"the Avro type '{schema}' is unknown, or uses itself: a table has no such columns"
            )
        found = self._complex(schema)
        if schema["type"] in _NAMED:
            name = str(schema["name"])
            self._known[name] = found
            self._known[f"{schema.get('namespace', '')}.{name}".lstrip(".")] = found
        return found

    def _complex(self, schema: dict[str, Any]) -> tuple[DataType, bool, Convert | None]:
        kind = schema["type"]
        logical = schema.get("logicalType")
        if logical in _LOGICAL:
            return _LOGICAL[logical], False, None
        if logical == "decimal":
            precision = int(schema["precision"])
            if precision > DECIMAL_DIGITS_MAX:
                raise WarrenError(f"a decimal of {precision} digits is too long for a column")
            return DecimalType(precision, int(schema.get("scale", 0))), False, None
        if kind == "record":
            return self._record(schema)
        if kind == "array":
            item, nullable, inner = self.read(schema["items"])
            return ArrayType(item, nullable), False, _array_convert(inner)
        if kind == "map":
            item, nullable, inner = self.read(schema["values"])
            return MapType(StringType(), item, nullable), False, _map_convert(inner)
        if isinstance(kind, dict | list):
            return self.read(kind)
        return self.read(kind) if kind not in _PLAIN else (_PLAIN[kind], False, None)

    def _record(self, schema: dict[str, Any]) -> tuple[DataType, bool, Convert | None]:
        fields, converts = [], {}
        for one in schema["fields"]:
            kind, nullable, convert = self.read(one["type"])
            fields.append(StructField(str(one["name"]), kind, nullable))
            if convert is not None:
                converts[one["name"]] = convert

        def change(value: dict[str, Any]) -> dict[str, Any]:
            return {**value, **{name: convert(value[name]) for name, convert in converts.items()}}

        return StructType(fields), False, change if converts else None

    def _union(self, schema: list[Any]) -> tuple[DataType, bool, Convert | None]:
        others = [one for one in schema if one != "null"]
        if len(others) != 1:
            raise WarrenError("of unions only those of null and one type can be a column")
        kind, _, convert = self.read(others[0])
        if convert is None:
            return kind, True, None
        inner = convert
        return kind, True, lambda value: None if value is None else inner(value)


def _array_convert(inner: Convert | None) -> Convert | None:
    if inner is None:
        return None
    return lambda values: [inner(value) for value in values]


def _map_convert(inner: Convert | None) -> Convert:
    if inner is None:
        return lambda value: list(value.items())
    return lambda value: [(key, inner(one)) for key, one in value.items()]


def make_decoder(schema: AvroSchema, skip: int) -> Callable[[Any], Any]:
    """A function of an Arrow array of bodies; `skip` octets stand before each record."""
    text = schema.text

    def decode(bodies: pa.Array) -> pa.Array:
        import fastavro
        from pyspark.sql.pandas.types import to_arrow_type

        from warren.spark.pipelines.typed import decoded_type

        wanted = to_arrow_type(decoded_type(schema.columns), timezone="UTC")
        parsed = fastavro.parse_schema(json.loads(text))
        _, _, convert = _Types().read(json.loads(text))
        rows: list[dict[str, Any] | None] = []
        for body in bodies:
            if not body.is_valid:
                rows.append(None)
                continue
            rows.append(_decode_one(body.as_py()[skip:], parsed, convert, wanted))
        return pa.array(rows, wanted)

    return decode


def _decode_one(body: bytes, parsed: Any, convert: Convert | None, wanted: Any) -> dict[str, Any]:
    import fastavro

    stream = io.BytesIO(body)
    try:
        value = fastavro.schemaless_reader(stream, parsed, None)
        if stream.tell() != len(body):
            raise ValueError(f"{len(body) - stream.tell()} octets are left over")
        if convert is not None:
            value = convert(value)
        # Dates and decimals may be beyond what a column holds.
        pa.scalar(value, wanted.field("value").type)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a body does to the decoder is its own fault
        told = str(error) or type(error).__name__
        return {"value": None, "detail": told[:REASON_LENGTH_MAX]}
    return {"value": value, "detail": None}
