"""A driver program that is killed: a queue into Parquet until nothing is left, then it ends."""

from __future__ import annotations

import sys

from spark_session import make_session


def main(endpoints: str, queue: str, base: str, mode: str, rows: str, master: str) -> None:
    spark = make_session(master)
    query = (
        spark.readStream.format("warren")
        .option("endpoints", endpoints)
        .option("queues", queue)
        .option("cursor", "archive")
        .option("mode", mode)
        .option("maxOffsetsPerTrigger", rows)
        .load()
        .writeStream.format("parquet")
        .option("path", f"{base}/lake")
        .option("checkpointLocation", f"{base}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    print("started", flush=True)
    query.awaitTermination()
    print("finished", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
