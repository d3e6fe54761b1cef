"""Samples of counters: where rates and histories come from.

Every few seconds a walk over all objects notes their counters, in slices, so that no message waits
for it. Nothing is noted for an object whose counters did not move: between two samples a counter
stands still, so the last sample before a time is its value at that time.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

#: Samples of all objects together; with more objects each keeps fewer.
ROWS_TOTAL = 250_000
ROWS_MIN, ROWS_MAX = 13, 121

#: What an idle counter is answered with, shared by all of them.
NO_RATE: dict[str, Any] = {"rate": 0.0}


@dataclass(frozen=True, slots=True)
class Span:
    """A history that was asked for: how far back, and in which steps."""

    age_ms: int
    step_ms: int


class Series:
    """The samples of one object, oldest first: times, and rows of counters."""

    __slots__ = ("_rows", "_times", "width")

    def __init__(self, width: int) -> None:
        self.width = width
        self._times: array[int] = array("q")
        self._rows: array[int] = array("q")

    def add(self, time_ms: int, values: Sequence[int], rows_max: int) -> None:
        """Note the counters, unless they are what they were."""
        if self._times and self._rows[-self.width :].tolist() == list(values):
            return
        self._times.append(time_ms)
        self._rows.extend(values)
        if len(self._times) > rows_max:
            drop = len(self._times) - rows_max
            del self._times[:drop]
            del self._rows[: drop * self.width]

    def at(self, time_ms: int) -> Sequence[int]:
        """The counters as they were at a time; zeros from before the first sample."""
        i = bisect_right(self._times, time_ms)
        if i == 0:
            return (0,) * self.width
        return self._rows[(i - 1) * self.width : i * self.width]

    @property
    def changed_ms(self) -> int:
        """When the counters were last seen to have moved; 0 for never."""
        return self._times[-1] if self._times else 0

    def moved_since(self, time_ms: int) -> bool:
        """Whether a sample after this time differs from the one before it."""
        return len(self._times) > 1 and self._times[-1] > time_ms

    def last_step(self) -> tuple[Sequence[int], Sequence[int], int]:
        """The two newest rows, newest first, and the time between them."""
        width = self.width
        newest, before = self._rows[-width:], self._rows[-2 * width : -width]
        return newest, before, self._times[-1] - self._times[-2]


class History:
    """Series of one thing at several steps: fine for the last minutes, coarse for a day."""

    __slots__ = ("_steps",)

    def __init__(self, width: int, policies: Iterable[tuple[int, int]]) -> None:
        #: (how long kept, step, samples), finest first.
        self._steps = [(keep_ms, step_ms, Series(width)) for keep_ms, step_ms in sorted(policies)]

    def add(self, time_ms: int, values: Sequence[int]) -> None:
        for keep_ms, step_ms, series in self._steps:
            # The rows of coarse series are further apart: only one sample a step is noted.
            if time_ms - series.changed_ms >= step_ms or not series.changed_ms:
                series.add(time_ms, values, keep_ms // step_ms + 1)

    @property
    def finest(self) -> tuple[Series, int]:
        """The newest samples, and how far apart they are."""
        _, step_ms, series = self._steps[0]
        return series, step_ms

    def series(self, age_ms: int = 0) -> Series:
        """The finest samples that reach back so far."""
        for keep_ms, _, series in self._steps:
            if age_ms <= keep_ms:
                return series
        return self._steps[-1][2]


class Gauge:
    """Makes the `*_details` objects for one or more series taken together."""

    __slots__ = ("_interval_ms", "_now_ms", "_rates", "_series", "_span")

    def __init__(
        self,
        series: Sequence[Series],
        now_ms: int,
        interval_ms: int,
        span: Span | None,
        newest: Sequence[Series] | None = None,
    ) -> None:
        """`newest`: whose rates are told, where a history is of coarser samples than those.

        They are `interval_ms` apart.
        """
        self._series = series
        self._now_ms = now_ms
        self._interval_ms = interval_ms
        self._span = span
        self._rates: list[float] | None = self._newest_rates(series if newest is None else newest)

    def _newest_rates(self, newest_of: Sequence[Series]) -> list[float] | None:
        rates: list[float] | None = None
        for series in newest_of:
            if not series.moved_since(self._now_ms - self._interval_ms):
                continue
            newest, before, apart_ms = series.last_step()
            seconds = min(apart_ms, self._interval_ms) / 1000
            if rates is None:
                rates = [0.0] * series.width
            for i in range(series.width):
                rates[i] += (newest[i] - before[i]) / seconds
        return rates

    def details(self, column: int) -> dict[str, Any]:
        """`{"rate": ...}`, with samples and averages where a history was asked for."""
        rate = 0.0 if self._rates is None else self._rates[column]
        if self._span is None:
            return NO_RATE if rate == 0.0 else {"rate": rate}
        step_ms, age_ms = self._span.step_ms, self._span.age_ms
        newest_ms = self._now_ms - self._now_ms % step_ms
        times = range(newest_ms, newest_ms - age_ms - 1, -step_ms)
        values = [sum(series.at(at)[column] for series in self._series) for at in times]
        samples = [
            {"sample": value, "timestamp": at} for value, at in zip(values, times, strict=True)
        ]
        apart_s = (len(values) - 1) * step_ms / 1000
        return {
            "rate": rate,
            "samples": samples,
            "avg_rate": (values[0] - values[-1]) / apart_s if apart_s else 0.0,
            "avg": sum(values) / len(values),
        }
