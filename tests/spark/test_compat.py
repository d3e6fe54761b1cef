"""`compat=true`: by nothing but AMQP 0-9-1, as from a broker that is not ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from messages import publish
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from warren.testing import Broker


def test_a_foreign_queue_is_staged_and_replayed(
    spark: SparkSession, broker: Broker, lake: Path
) -> None:
    publish(broker, "foreign", 0, 120)
    batches: dict[int, list[int]] = {}

    def run(fail_in: int | None = None) -> None:
        def take(rows: DataFrame, number: int) -> None:
            found = [int(row["body"]) for row in rows.orderBy("seq").collect()]
            assert batches.get(number, found) == found
            batches[number] = found
            if number == fail_in:
                raise RuntimeError("the sink fails")

        query = (
            spark.readStream.format("warren")
            .options(compat="true", amqpUrl=broker.url, queues="foreign")
            .options(stagingDir=str(lake / "staged"), maxOffsetsPerTrigger="50")
            .load()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(lake / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    for number in (0, 1):
        with pytest.raises(StreamingQueryException, match="the sink fails"):
            run(fail_in=number)
    run()
    assert [n for _, rows in sorted(batches.items()) for n in rows] == list(range(120))
    assert broker.queue("foreign").messages == 0
