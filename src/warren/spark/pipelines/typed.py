"""Typed tables: bodies decoded by the registry's schemas, one table for each type.

What cannot be decoded goes to the quarantine with the reason, whole, and can be decoded again when
the registry knows better. No row ever fails the stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from warren.spark.pipelines.avro import make_decoder
from warren.spark.pipelines.registry import Kind, Registry

#: Columns of every table that say where a row came from.
ORIGIN = StructType(
    [
        StructField("_queue", StringType()),
        StructField("_seq", LongType()),
        StructField("_incarnation", StringType()),
        StructField("_enqueued_at", TimestampType()),
        StructField("_routing_key", StringType()),
        StructField("_message_id", StringType()),
        StructField("_version", IntegerType()),
    ]
)
QUARANTINE = StructType(
    [
        StructField("queue", StringType()),
        StructField("seq", LongType()),
        StructField("incarnation", StringType()),
        StructField("enqueued_at", TimestampType()),
        StructField("exchange", StringType()),
        StructField("routing_key", StringType()),
        StructField("message_id", StringType()),
        StructField("content_type", StringType()),
        StructField("headers", MapType(StringType(), StringType())),
        StructField("type", StringType()),
        StructField("version", IntegerType()),
        StructField("reason", StringType()),
        StructField("detail", StringType()),
        StructField("body", BinaryType()),
    ]
)
COUNTS = StructType(
    [
        StructField("type", StringType()),
        StructField("version", IntegerType()),
        StructField("reason", StringType()),
        StructField("rows", LongType(), False),
        StructField("drifted", LongType(), False),
        StructField("first_seq", LongType()),
    ]
)
NO_SCHEMA = "no schema"
NOT_TEXT = "not UTF-8"
NOT_JSON = "not JSON of the schema"
NOT_AVRO = "not Avro of the schema"
MISSING = "missing field"
_CORRUPT = "_corrupt"


def decoded_type(columns: StructType) -> StructType:
    """What a decoder gives: the values, or what is wrong with the body."""
    free = StructType([StructField(one.name, one.dataType) for one in columns.fields])
    return StructType([StructField("value", free), StructField("detail", StringType())])


# -- which type ------------------------------------------------------------------------------------


def _fits(kind: Kind) -> Column:
    fits = F.lit(True)
    for name in ("queue", "routing_key", "content_type"):
        pattern = getattr(kind, name)
        if pattern is not None:
            fits &= F.coalesce(F.col(name).rlike(f"^(?:{pattern})$"), F.lit(False))
    for name, value in kind.headers.items():
        fits &= F.coalesce(F.col("headers")[name] == value, F.lit(False))
    if kind.id is not None:
        start = b"\0" + kind.id.to_bytes(4, "big")
        fits &= F.coalesce(F.substring("body", 1, 5) == F.lit(start), F.lit(False))
    return fits


def _of_kinds(registry: Registry, value: str) -> Column:
    found = F.lit(None)
    for kind, number in reversed(
        list(zip(registry.kinds, range(len(registry.kinds)), strict=True))
    ):
        found = F.when(F.col("_kind") == number, F.lit(getattr(kind, value))).otherwise(found)
    return found


# -- decoding --------------------------------------------------------------------------------------


def _json_parts(kind: Kind, body: Column) -> tuple[Column, Column, Column]:
    """Value, detail and names that the schema does not know."""
    text = F.when(F.is_valid_utf8(body.cast("string")), body.cast("string"))
    # Inside another object, what follows the first value is an error and not passed over.
    wrapped = F.concat(F.lit('{"v":'), text, F.lit("}"))
    inner = StructType([StructField(one.name, one.dataType) for one in kind.columns.fields])
    schema = StructType([StructField("v", inner), StructField(_CORRUPT, StringType())])
    options = {"columnNameOfCorruptRecord": _CORRUPT, "allowSingleQuotes": "false"}
    parsed = F.from_json(wrapped, schema, options)
    is_one = F.coalesce(F.size(F.json_object_keys(wrapped)) == 1, F.lit(False))
    is_good = parsed[_CORRUPT].isNull() & parsed["v"].isNotNull() & is_one
    detail = F.when(text.isNull(), NOT_TEXT).when(~F.coalesce(is_good, F.lit(False)), NOT_JSON)
    known = F.array(*[F.lit(one.name) for one in kind.columns.fields])
    return parsed["v"], detail, F.array_except(F.json_object_keys(text), known)


def decode(rows: DataFrame, registry: Registry) -> DataFrame:
    """Rows of the source with their type and values: `_kind`, `_reason`, `_detail`, `_drift`, and
    for each entry of the registry a column `_v0`, `_v1`, …"""
    kind_of = F.lit(None).cast("int")
    for number, kind in reversed(list(enumerate(registry.kinds))):
        kind_of = F.when(_fits(kind), F.lit(number)).otherwise(kind_of)
    chosen = rows.withColumn("_kind", kind_of)
    reasons, details, drifts = [], [], []
    values = {}
    for number, kind in enumerate(registry.kinds):
        is_it = F.col("_kind") == number
        skip = 5 if kind.id is not None else 0
        name = f"_v{number}"
        if kind.avro is not None:
            take: Any = arrow_udf(  # type: ignore[call-overload]
                make_decoder(kind.avro, skip), decoded_type(kind.columns)
            )
            values[f"_d{number}"] = take(F.when(is_it, F.col("body")))
            done = F.col(f"_d{number}")
            value, detail = done["value"], done["detail"]
            reason = F.when(detail.isNotNull(), NOT_AVRO)
            drift = F.array().cast("array<string>")
        else:
            body = F.col("body") if skip == 0 else F.expr("substring(body, 6)")
            value, reason, drift = _json_parts(kind, body)
            detail = F.lit(None).cast("string")
        values[name] = F.when(is_it, value)
        missing = [F.when(F.col(name)[one].isNull(), F.lit(one)) for one in kind.required]
        lacks = F.array_join(F.array_compact(F.array(*missing)), ", ") if missing else F.lit("")
        reasons.append(F.when(is_it, F.coalesce(reason, F.when(lacks != "", MISSING))))
        details.append(F.when(is_it, F.coalesce(detail, F.when(lacks != "", lacks))))
        drifts.append(F.when(is_it, drift))
    made = chosen
    for column, expression in values.items():
        made = made.withColumn(column, expression)
    none = F.when(F.col("_kind").isNull(), NO_SCHEMA)
    return made.withColumns(
        {
            "_reason": F.coalesce(none, *reasons),
            "_detail": F.coalesce(*details),
            "_drift": F.coalesce(*drifts, F.array().cast("array<string>")),
            "_type": _of_kinds(registry, "name").cast("string"),
            "_schema_version": _of_kinds(registry, "version").cast("int"),
        }
    )


def table_of(
    decoded: DataFrame,
    registry: Registry,
    name: str,
    columns: StructType,
    also: Sequence[str] = (),
) -> DataFrame:
    """The good rows of one type: `ORIGIN`, the columns of its table, and others as they are."""
    parts = []
    for number, kind in enumerate(registry.kinds):
        if kind.name != name:
            continue
        value = F.col(f"_v{number}")
        there = {one.name for one in kind.columns.fields}
        chosen = decoded.where((F.col("_kind") == number) & F.col("_reason").isNull())
        parts.append(
            chosen.select(
                *_origin(kind.version),
                *[
                    (value[one.name] if one.name in there else F.lit(None))
                    .cast(one.dataType)
                    .alias(one.name)
                    for one in columns.fields
                ],
                *also,
            )
        )
    return reduce(DataFrame.unionByName, parts)


def _origin(version: int) -> list[Column]:
    names = ("queue", "seq", "incarnation", "enqueued_at", "routing_key", "message_id")
    return [
        *[F.col(name).alias(f"_{name}") for name in names],
        F.lit(version).cast("int").alias("_version"),
    ]


def quarantine_of(decoded: DataFrame, also: Sequence[str] = ()) -> DataFrame:
    """What could not be decoded, whole."""
    own = {"type": "_type", "version": "_schema_version", "reason": "_reason", "detail": "_detail"}
    return decoded.where(F.col("_reason").isNotNull()).select(
        *[
            F.col(own.get(one.name, one.name)).cast(one.dataType).alias(one.name)
            for one in QUARANTINE.fields
        ],
        *also,
    )


def counts_of(decoded: DataFrame) -> DataFrame:
    """How many rows of each type were good, drifted (fields that the schema lacks), or bad."""
    return (
        decoded.groupBy(
            F.col("_type").alias("type"),
            F.col("_schema_version").alias("version"),
            F.col("_reason").alias("reason"),
        )
        .agg(
            F.count("*").alias("rows"),
            F.count_if((F.size("_drift") > 0) & F.col("_reason").isNull()).alias("drifted"),
            F.min("seq").alias("first_seq"),
        )
        .orderBy("type", "version", "reason")
    )
