"""A broker and a Spark session, both shared by all tests here: each takes long to start."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark_session import BRIEF, make_session

from warren.testing import Broker

#: Spark takes its time on a busy machine; the time of a test counts the start of its session.
LIMIT_S = 600
# Of the Java machines of all programs that tests start: a third less work for the processor.
os.environ.setdefault("SPARK_SUBMIT_OPTS", BRIEF)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(LIMIT_S))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.fail("Spark needs Java 17: install it (openjdk-17-jre-headless), or set JAVA_HOME")
    session = make_session()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(http=True, data_dir=tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path
