"""The pages that are made from the code are as the code is."""

from __future__ import annotations

import pytest
from reference import DOCS, PAGES


@pytest.mark.parametrize("name", sorted(PAGES))
def test_the_page_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text() == PAGES[name](), "run python tests/docs/reference.py"
