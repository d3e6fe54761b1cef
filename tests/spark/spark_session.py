"""A Spark session as the tests and the benchmark use it: small, quiet, on two cores."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

#: Checkpoints on a local disk without a process for each file.
_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


#: A JVM that lives for minutes, with small data, spends most of its time compiling for later.
BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def make_session(
    master: str = "local[2,4]", memory: str = "1g", java_options: str = BRIEF
) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master)
    if java_options:
        builder = builder.config("spark.driver.extraJavaOptions", java_options)
    session = (
        builder.appName("warren")
        .config("spark.driver.memory", memory)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.checkpointFileManagerClass", _MANAGER)
        # A driver that is killed while it writes its first offsets leaves a file of another name
        # there, and Spark would not start on it again.
        .config("spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return session
