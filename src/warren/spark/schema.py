"""The columns of the source and of the sink."""

from __future__ import annotations

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from warren.spark.errors import OptionError, WarrenError
from warren.spark.options import Options

_TEXT = StringType()
#: As the reader gives them, in this order.
COLUMNS: tuple[tuple[str, DataType], ...] = (
    ("queue", _TEXT),
    ("seq", LongType()),
    ("incarnation", _TEXT),
    ("exchange", _TEXT),
    ("routing_key", _TEXT),
    ("enqueued_at", TimestampType()),
    ("published_at", TimestampType()),
    ("message_id", _TEXT),
    ("correlation_id", _TEXT),
    ("content_type", _TEXT),
    ("delivery_mode", ByteType()),
    ("priority", ByteType()),
    ("expiration", _TEXT),
    ("headers", MapType(_TEXT, _TEXT)),
    ("redelivered_hint", BooleanType()),
    ("node", _TEXT),
    ("epoch", IntegerType()),
    ("body", BinaryType()),
)
#: What a sink must have, and what it may.
REQUIRED = ("exchange", "routing_key", "body")
_SINK = {
    "exchange": (StringType,),
    "routing_key": (StringType,),
    "body": (BinaryType, StringType),
    "message_id": (StringType,),
    "correlation_id": (StringType,),
    "content_type": (StringType,),
    "expiration": (StringType,),
    "delivery_mode": (ByteType,),
    "priority": (ByteType,),
    "published_at": (TimestampType,),
    "headers": (MapType,),
}


def source_schema(options: Options) -> StructType:
    """The columns of a read, without those that are not wanted."""
    left_out = set()
    if not options.flag("includeHeaders", True):
        left_out.add("headers")
    if not options.flag("includeBody", True):
        left_out.add("body")
    return StructType([StructField(n, t, True) for n, t in COLUMNS if n not in left_out])


def check_source_schema(wanted: StructType, options: Options) -> None:
    """Raises OptionError for a `.schema(...)` that is not ours."""
    if wanted != source_schema(options):
        raise OptionError(
            "the columns of format 'warren' are fixed; leave '.schema(...)' out, and use the "
            "options 'includeHeaders' and 'includeBody' for fewer"
        )


def check_sink_schema(schema: StructType, options: Options) -> None:
    """Raises WarrenError for columns that make no message."""
    there = {field.name: field.dataType for field in schema.fields}
    fixed = {"exchange": "exchange", "routing_key": "routingKey"}
    for name in REQUIRED:
        if name not in there and not (name in fixed and fixed[name].lower() in options.given):
            also = f", or set the option '{fixed[name]}'" if name in fixed else ""
            raise WarrenError(f"the sink needs a column '{name}'{also}")
    for name, kind in there.items():
        if name not in _SINK:
            raise WarrenError(
                f"the sink has no column '{name}': select only {', '.join(sorted(_SINK))}"
            )
        if not isinstance(kind, _SINK[name]):
            wanted = " or ".join(one.typeName() for one in _SINK[name])
            raise WarrenError(
                f"column '{name}' of the sink must be {wanted}, and is {kind.simpleString()}"
            )
