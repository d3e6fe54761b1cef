"""The pages that say which test shows what name tests that there are."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*-proof.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_tests_that_the_page_names_are_there(page: Path) -> None:
    missing = []
    for line in page.read_text().splitlines():
        text = ""
        for name in re.findall(r"`([^`]+)`", line):
            if re.fullmatch(r"[\w/]+\.py", name):
                path = ROOT / "tests" / name.removeprefix("tests/")
                text = path.read_text() if path.exists() else ""
                missing += [] if path.exists() else [name]
            elif name.startswith("test_") and f"def {name}(" not in text:
                missing.append(name)
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_mutants_that_the_page_names_are_there(page: Path) -> None:
    lines = [line for line in page.read_text().splitlines() if "mutant" in line]
    names = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]*)+)`", "\n".join(lines)))
    assert {name for name in names if name not in _words()} == set()


@cache
def _words() -> frozenset[str]:
    """All names with capitals in the middle in the simulator."""
    return frozenset(
        name
        for path in (ROOT / "tests" / "sim").glob("*.py")
        for name in re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]*)+\b", path.read_text())
    )
