"""Fixtures of the tests with mirrored queues on real clusters."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Clients, rings and the harness of faults are those of the tests of clusters.
sys.path.insert(0, str(Path(__file__).parent.parent / "cluster"))

from cluster_fixtures import clients, name, pytest_runtest_makereport
from rings import mirror

from warren.testing import Cluster

__all__ = ["clients", "name", "pytest_runtest_makereport"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three nodes for all tests of a file: those that hurt them must leave them whole.

    Queues called ha.* are mirrored on all of them.
    """
    with Cluster(3) as nodes:
        mirror(nodes, r"^ha\.", {"ha-mode": "all", "ha-sync-mode": "automatic"})
        yield nodes


@pytest.fixture
def ha(name: str) -> str:
    """The name of a queue that is mirrored on all nodes."""
    return f"ha.{name}"
