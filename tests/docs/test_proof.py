"""The pages that say which test shows what name tests that there are."""

from __future__ import annotations

import re
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
