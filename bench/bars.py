"""The bars that Warren has to reach, as a table, and the verdict on each."""

from collections.abc import Callable

from bench.bar import Bar, Verdict, ratio, value
from bench.cluster_bars import CLUSTER_BARS
from bench.loads import CURVES, Curve
from bench.mirror_bars import MIRROR_BARS
from bench.operating_bars import OPERATING_BARS
from bench.outcome import Outcome
from bench.store_bars import STORE_BARS

#: Cost per unit of work at eight times the size, over the cost at one: more is not linear.
#: The slack is for caches, which eight times the data no longer fits into.
LINEAR_GROWTH_MAX = 1.5


def _growth(curve: Curve) -> Callable[[Outcome], float | None]:
    def read(outcome: Outcome) -> float | None:
        costs = outcome.curve_cost(curve, "warren")
        return costs[-1] / costs[0] if costs and costs[0] else None

    return read


BARS = (
    Bar("16 B auto-ack, of RabbitMQ", ratio("16B", "rate", "rabbitmq"), at_least=20),
    Bar("16 B auto-ack, of the prototype", ratio("16B", "rate", "prototype"), at_least=0.6),
    Bar("200 B manual ack, of RabbitMQ", ratio("200B-ack", "rate", "rabbitmq"), at_least=15),
    Bar("1000 B auto-ack, of RabbitMQ", ratio("1000B", "rate", "rabbitmq"), at_least=6),
    Bar(
        "p99 to delivery at 20,000 msg/s, of RabbitMQ's",
        ratio("rate-20k", "deliver_p99_ms", "rabbitmq"),
        at_most=0.5,
    ),
    Bar(
        "p99 to confirm at 20,000 msg/s, of RabbitMQ's",
        ratio("rate-20k", "confirm_p99_ms", "rabbitmq"),
        at_most=0.5,
    ),
    Bar(
        "memory of a queued 200 B message",
        value("fill-500000", "memory_bytes"),
        at_most=400,
        unit="B",
    ),
    *(
        Bar(f"growth of the cost over 8× {curve.title}", _growth(curve), at_most=LINEAR_GROWTH_MAX)
        for curve in CURVES
    ),
    *STORE_BARS,
    *CLUSTER_BARS,
    *MIRROR_BARS,
    *OPERATING_BARS,
)


def judge(outcome: Outcome) -> list[Verdict]:
    """Every bar in turn."""
    verdicts = []
    for bar in BARS:
        found = bar.read(outcome)
        verdicts.append(Verdict(bar.title, bar.limit(), found, bar.verdict(found), bar.unit))
    return verdicts
