"""Messages of any AMQP 0-9-1 broker as rows: how to connect, and what a delivery says."""

from __future__ import annotations

import json
import time
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from warren.spark.errors import Unreachable, WarrenError
from warren.spark.options import Options
from warren.spark.schema import source_schema

#: In this header RabbitMQ tells the position of a stream's message.
STREAM_OFFSET = "x-stream-offset"


def connect(options: Options) -> Any:
    """A connection of pika to the broker of the option `amqpUrl`; a failover is waited for.

    Raises WarrenError, Unreachable.
    """
    try:
        import pika
    except ImportError as error:
        raise WarrenError("option 'compat' needs pika: pip install pika") from error
    retries = options.number("retries", 60, 1)
    interval_s = options.number("retryIntervalMs", 1000, 1) / 1000
    try:
        where = pika.URLParameters(options.text("amqpUrl"))
    except (ValueError, IndexError) as error:
        raise WarrenError(f"option 'amqpUrl' is no address of a broker: {error}") from error
    for attempt in range(retries):
        try:
            return pika.BlockingConnection(where)
        except pika.exceptions.ProbableAuthenticationError as error:
            raise WarrenError("the broker refuses the user of the option 'amqpUrl'") from error
        except pika.exceptions.ProbableAccessDeniedError as error:
            raise WarrenError("the user of the option 'amqpUrl' may not use its vhost") from error
        except pika.exceptions.AMQPConnectionError as error:
            last = error
        if attempt + 1 < retries:
            time.sleep(interval_s)
    raise Unreachable(f"the broker of the option 'amqpUrl' does not answer: {last!r}")


def refused(queue: str, error: Any) -> WarrenError:
    """What the broker says when it closes a channel, with the option that it is about."""
    code, text = getattr(error, "reply_code", 0), getattr(error, "reply_text", str(error))
    if code == 406 and STREAM_OFFSET in text:
        return WarrenError(f"queue '{queue}' is no stream: leave the option 'queueType' out")
    if code == 404:
        return WarrenError(f"option 'queues': there is no queue '{queue}' ({text})")
    if code == 403:
        return WarrenError(f"the user of the option 'amqpUrl' may not read '{queue}' ({text})")
    return WarrenError(f"option 'queues': queue '{queue}' cannot be read: {code} {text}")


def check_plain(connection: Any, queue: str) -> None:
    """Raises WarrenError for a stream of RabbitMQ, which would be read from its end on.

    Only streams may be consumed from an offset: others are refused, before anything is delivered.
    """
    properties = getattr(getattr(connection, "_impl", None), "server_properties", None) or {}
    if "Erlang" not in str(properties.get("platform")):
        return
    channel = connection.channel()
    channel.basic_qos(prefetch_count=1)
    try:
        channel.basic_consume(queue, lambda *_: None, arguments={STREAM_OFFSET: "next"})
    except Exception as error:
        if getattr(error, "reply_code", 0) == 406:
            return
        raise refused(queue, error) from error
    raise WarrenError(f"queue '{queue}' is a stream: set the option 'queueType' to 'stream'")


def row_of(queue: str, seq: int, method: Any, properties: Any, body: bytes) -> dict[str, Any]:
    """A delivery, by column."""
    headers = properties.headers or {}
    at_s = properties.timestamp
    return {
        "queue": queue,
        "seq": seq,
        "exchange": method.exchange,
        "routing_key": method.routing_key,
        "enqueued_at": None,
        "published_at": None if at_s is None else int(at_s) * 1_000_000,
        "message_id": properties.message_id,
        "correlation_id": properties.correlation_id,
        "content_type": properties.content_type,
        "delivery_mode": properties.delivery_mode,
        "priority": properties.priority,
        "expiration": properties.expiration,
        "headers": [(n, _text(v)) for n, v in headers.items() if n != STREAM_OFFSET],
        "redelivered_hint": method.redelivered,
        "epoch": 0,
        "body": body,
    }


def batch_of(options: Options, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Rows in the source's columns."""
    schema = to_arrow_schema(source_schema(options), timezone="UTC")
    arrays = [pa.array([row.get(column.name) for row in rows], column.type) for column in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return json.dumps(value, default=str)
