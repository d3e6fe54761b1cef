"""Fixtures of the tests with real clusters: one that is shared, and those of `cluster_fixtures`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster_fixtures import clients, name, pytest_runtest_makereport

from warren.testing import Cluster

__all__ = ["clients", "name", "pytest_runtest_makereport"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three nodes for all tests of a file: those that hurt them must leave them whole."""
    with Cluster(3) as nodes:
        yield nodes
