"""docs/acceptance.md names a test for every line of the list, and those tests are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "acceptance.md"
LINES = [f"A{i}" for i in range(1, 9)] + [f"B{i}" for i in range(1, 19)]


def test_every_line_has_its_row() -> None:
    assert re.findall(r"^\| ([AB]\d+) \|", PAGE.read_text(), re.MULTILINE) == LINES


def test_every_test_is_there() -> None:
    named = re.findall(r"`(tests/\S+\.py)::(\w+)`", PAGE.read_text())
    assert len(named) > len(LINES)
    for path, name in named:
        assert f"def {name}(" in (ROOT / path).read_text(), f"{path}::{name}"
