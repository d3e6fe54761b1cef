"""Fixtures that all tests with real clusters have: clients that end with a test, names, logs.

A folder's `conftest.py` imports them, and has a fixture `cluster` of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator

import pytest
from cluster_clients import Clients

from warren.testing import Cluster

#: Of a log, in the report of a test that failed: not those of logins.
LOG_LINES = 60
LOGIN = "authenticated and granted"
_numbers = itertools.count(1)


@pytest.fixture
def clients(cluster: Cluster) -> Iterator[Clients]:
    """Connections to the nodes of the shared cluster."""
    with Clients(cluster) as made:
        yield made


@pytest.fixture
def name() -> str:
    """A name that no other test uses for a queue or an exchange."""
    return f"name-{next(_numbers)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the ends of the nodes' logs to the report of a test that failed."""
    report = yield
    cluster: Cluster | None = getattr(item, "funcargs", {}).get("cluster")
    if cluster is not None and report.when == "call" and report.failed:
        for number, node in enumerate(cluster.nodes, start=1):
            lines = [line for line in cluster.log(number).splitlines() if LOGIN not in line]
            report.sections.append((f"log of {node}", "\n".join(lines[-LOG_LINES:])))
    return report
