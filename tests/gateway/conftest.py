"""Every test ends with its nodes: what they hold of each other is more than the collector sees."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from two_nodes import end_all


@pytest.fixture(autouse=True)
def _ends_its_nodes() -> Iterator[None]:
    yield
    end_all()
