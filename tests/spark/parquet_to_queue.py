"""A driver program that is killed: Parquet files into a queue, then it ends."""

from __future__ import annotations

import sys

from spark_session import make_session


def main(endpoints: str, queue: str, base: str, _mode: str, _rows: str, master: str) -> None:
    spark = make_session(master)
    query = (
        spark.readStream.schema("n BIGINT, body STRING")
        .option("maxFilesPerTrigger", "1")
        .parquet(f"{base}/rows")
        .selectExpr("'' AS exchange", f"'{queue}' AS routing_key", "body")
        .writeStream.format("warren")
        .option("endpoints", endpoints)
        .option("checkpointLocation", f"{base}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    print("started", flush=True)
    query.awaitTermination()
    print("finished", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
