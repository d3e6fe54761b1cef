"""The bars that Warren has to reach, as a table, and the verdict on each."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.loads import CURVES, Curve
from bench.outcome import Outcome

#: Cost per unit of work at eight times the size, over the cost at one: more is not linear.
#: The slack is for caches, which eight times the data no longer fits into.
LINEAR_GROWTH_MAX = 1.5


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
        sign, value = ("≥", self.at_least) if self.at_least is not None else ("≤", self.at_most)
        return f"{sign} {value:g} {self.unit}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A bar and how it went."""

    title: str
    limit: str
    value: float | None
    status: str
    unit: str


def _ratio(load: str, metric: str, to: str) -> Callable[[Outcome], float | None]:
    return lambda outcome: outcome.ratio(load, metric, "warren", to)


def _value(load: str, metric: str) -> Callable[[Outcome], float | None]:
    return lambda outcome: outcome.median(load, "warren", metric)


def _growth(curve: Curve) -> Callable[[Outcome], float | None]:
    def read(outcome: Outcome) -> float | None:
        costs = outcome.curve_cost(curve, "warren")
        return costs[-1] / costs[0] if costs and costs[0] else None

    return read


BARS = (
    Bar("16 B auto-ack, of RabbitMQ", _ratio("16B", "rate", "rabbitmq"), at_least=20),
    Bar("16 B auto-ack, of the prototype", _ratio("16B", "rate", "prototype"), at_least=0.6),
    Bar("200 B manual ack, of RabbitMQ", _ratio("200B-ack", "rate", "rabbitmq"), at_least=15),
    Bar("1000 B auto-ack, of RabbitMQ", _ratio("1000B", "rate", "rabbitmq"), at_least=6),
    Bar(
        "p99 to delivery at 20,000 msg/s, of RabbitMQ's",
        _ratio("rate-20k", "deliver_p99_ms", "rabbitmq"),
        at_most=0.5,
    ),
    Bar(
        "p99 to confirm at 20,000 msg/s, of RabbitMQ's",
        _ratio("rate-20k", "confirm_p99_ms", "rabbitmq"),
        at_most=0.5,
    ),
    Bar(
        "memory of a queued 200 B message",
        _value("fill-500000", "memory_bytes"),
        at_most=400,
        unit="B",
    ),
    *(
        Bar(f"growth of the cost over 8× {curve.title}", _growth(curve), at_most=LINEAR_GROWTH_MAX)
        for curve in CURVES
    ),
)


def judge(outcome: Outcome) -> list[Verdict]:
    """Every bar in turn."""
    verdicts = []
    for bar in BARS:
        value = bar.read(outcome)
        verdicts.append(Verdict(bar.title, bar.limit(), value, bar.verdict(value), bar.unit))
    return verdicts
