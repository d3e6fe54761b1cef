"""Hours of the day."""

from __future__ import annotations

import pytest

from warren.model.day_window import DAY_MINUTES, DayWindow


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("22:00-06:00", [22 * 60, 0, 5 * 60 + 59], [6 * 60, 21 * 60 + 59, 12 * 60]),
        ("6:30-7:00", [6 * 60 + 30, 6 * 60 + 59], [7 * 60, 6 * 60 + 29, 0]),
        ("00:00-23:59", [0, 23 * 60 + 58], [23 * 60 + 59]),
        ("23:59-00:00", [23 * 60 + 59], [0, 23 * 60 + 58]),
    ],
)
def test_what_is_in_it(text: str, inside: list[int], outside: list[int]) -> None:
    window = DayWindow.parse(text)
    assert all(window.has(minute) for minute in inside)
    assert not any(window.has(minute) for minute in outside)
    length = (window.end - window.first) % DAY_MINUTES
    assert sum(map(window.has, range(DAY_MINUTES))) == length


@pytest.mark.parametrize(
    "text", ["", "22:00", "22:00-", "24:00-01:00", "1:5-2:0", "08:00-08:00", "８:00-9:00"]
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"window|times"):
        DayWindow.parse(text)
