"""One bar: where its number is read, what it has to reach, and the verdict."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: the number is read from the outcome, None when it could not be measured."""

    title: str
    read: Callable[[Outcome], float | None]
    at_least: float | None = None
    at_most: float | None = None
    unit: str = "×"

    def verdict(self, value: float | None) -> str:
        """Reached, missed, or not measured."""
        if value is None:
            return "not measured"
        too_low = self.at_least is not None and value < self.at_least
        too_high = self.at_most is not None and value > self.at_most
        return "missed" if too_low or too_high else "reached"

    def limit(self) -> str:
        """The bar in words."""
        ends = (("≥", self.at_least), ("≤", self.at_most))
        words = ", ".join(f"{sign} {end:g}" for sign, end in ends if end is not None)
        return f"{words} {self.unit}".rstrip()


@dataclass(frozen=True, slots=True)
class Verdict:
    """A bar and how it went."""

    title: str
    limit: str
    value: float | None
    status: str
    unit: str


def ratio(load: str, metric: str, to: str) -> Callable[[Outcome], float | None]:
    """A bar on Warren's number over that of another broker."""
    return lambda outcome: outcome.ratio(load, metric, "warren", to)


def value(load: str, metric: str) -> Callable[[Outcome], float | None]:
    """A bar on Warren's number as it is."""
    return lambda outcome: outcome.median(load, "warren", metric)
