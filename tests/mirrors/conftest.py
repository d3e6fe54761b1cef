"""Fixtures of the tests with mirrored queues on real clusters."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

# Clients, rings and the harness of faults are those of the tests of clusters.
sys.path.insert(0, str(Path(__file__).parent.parent / "cluster"))

from cluster_clients import Clients
from rings import mirror

from warren.testing import Cluster

#: Of a log, in the report of a test that failed: not those of logins.
LOG_LINES = 60
LOGIN = "authenticated and granted"
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three nodes for all tests of a file: those that hurt them must leave them whole.

    Queues called ha.* are mirrored on all of them.
    """
    with Cluster(3) as nodes:
        mirror(nodes, r"^ha\.", {"ha-mode": "all", "ha-sync-mode": "automatic"})
        yield nodes


@pytest.fixture
def clients(cluster: Cluster) -> Iterator[Clients]:
    """Connections to the nodes of the shared cluster."""
    with Clients(cluster) as made:
        yield made


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"name-{next(_numbers)}"


@pytest.fixture
def ha(name: str) -> str:
    """The name of a queue that is mirrored on all nodes."""
    return f"ha.{name}"


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
