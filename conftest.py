"""For all tests: those that judge how long something takes do so only where they run alone.

A test that asks for the fixture `judge_time` is marked `timing`. `make test` runs it too, but
judges no time: it would judge the machine. `make timing` runs those tests alone, one after the
other, and judges.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--judge-time", action="store_true", help="let tests fail that take too long (make timing)"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "judge_time" in getattr(item, "fixturenames", ()):
            item.add_marker("timing")


@pytest.fixture
def judge_time(request: pytest.FixtureRequest) -> Callable[[float, float], None]:
    """Call it with the seconds that something took and the most that it may take."""

    def judge(took_s: float, most_s: float) -> None:
        if request.config.getoption("--judge-time"):
            assert took_s < most_s, f"it took {took_s:.3f} s, not {most_s:g} at most"

    return judge
