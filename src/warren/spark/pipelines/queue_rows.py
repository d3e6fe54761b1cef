"""What is in queues, read at once and left there: a cursor keeps it while the job looks."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from warren.spark.client import Client
from warren.spark.errors import Refused, WarrenError, hint
from warren.spark.options import read_options
from warren.spark.pipelines.problems import reason
from warren.spark.queues import Queues

#: A job that was killed leaves its cursors; the broker drops them after an hour.
CURSOR_EXPIRY_S = 3600


@contextmanager
def queue_rows(
    spark: SparkSession, connection: dict[str, str], name: str
) -> Iterator[tuple[DataFrame, Client]]:
    """The rows, valid inside the `with` only, and the client. Raises WarrenError."""
    from warren.spark import register

    register(spark)
    options = {
        **connection,
        "cursor": f"{name}-{uuid.uuid4().hex[:12]}",
        "cursorExpiry": str(CURSOR_EXPIRY_S),
    }
    client = Client(read_options(options))
    try:
        yield spark.read.format("warren").options(**options).load(), client
    except Refused as error:
        raise WarrenError(hint(error)) from error
    except PySparkException as error:
        raise WarrenError(reason(str(error))) from error
    finally:
        _let_go(client, options)


def _let_go(client: Client, options: dict[str, str]) -> None:
    for queue in Queues(client, read_options(options)).names(fresh=True):
        try:
            client.drop_cursor(queue, options["cursor"])
        except Refused:
            continue  # It was never opened.
