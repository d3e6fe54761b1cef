"""The Spark session of a pipeline: the one that spark-submit gives, or a small one in here."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from warren.spark.errors import WarrenError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Checkpoints on a local disk without a process for each file.
_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


def open_session(name: str, memory: str, partitions: int, trace: bool = False) -> SparkSession:
    """Raises WarrenError when there is no PySpark or no Java; `trace`: all that Java says."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise WarrenError("pipelines need PySpark: pip install 'warrenmq[spark]'") from None
    if SparkSession.getActiveSession() is None and not has_java():
        home = os.environ.get("JAVA_HOME")
        found = f"; there is no bin/java in JAVA_HOME ({home})" if home else ""
        raise WarrenError(
            "Spark needs Java 17: install it (Debian: apt-get install openjdk-17-jre-headless), "
            f"or set JAVA_HOME to where it is{found}"
        )
    # Spark gives times to Python in the zone of its process: tables and plots are to be in UTC.
    os.environ["TZ"] = "UTC"
    time.tzset()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"warren {name}")
    is_submitted = "SPARK_ENV_LOADED" in os.environ
    if not is_submitted:
        # Not under spark-submit: all in this process, seen by nobody else.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        quiet = Path(__file__).with_name("log4j2.properties")
        if quiet.exists():
            given = os.environ.get("SPARK_SUBMIT_OPTS", "")
            if "log4j2.configurationFile" not in given:
                words = f"{given} -Dlog4j2.configurationFile={quiet}"
                os.environ["SPARK_SUBMIT_OPTS"] = words.strip()
        builder = (
            builder.master("local[2,4]")
            .config("spark.driver.memory", memory)
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.streaming.checkpointFileManagerClass", _MANAGER)
            .config("spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart", "false")
        )
    builder = builder.config("spark.sql.session.timeZone", "UTC").config(
        "spark.sql.shuffle.partitions", str(partitions)
    )
    with contextlib.nullcontext() if is_submitted or trace else _silent_java():
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


@contextmanager
def _silent_java() -> Iterator[None]:
    """What Java says of itself while it starts, and later, is nobody's business, unless it fails.

    It inherits its output when it is started: for that moment ours is a file.
    """
    sys.stderr.flush()
    with tempfile.TemporaryFile() as kept:
        ours = os.dup(2)
        os.dup2(kept.fileno(), 2)
        try:
            yield
        except BaseException:
            kept.seek(0)
            os.write(ours, kept.read())
            raise
        finally:
            os.dup2(ours, 2)
            os.close(ours)


def has_java() -> bool:
    """Where JAVA_HOME is set, Spark takes that one, whatever else there is."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java" if home is None else str(Path(home, "bin", "java"))) is not None
