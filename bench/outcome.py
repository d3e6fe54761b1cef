"""What a run of the benchmarks has found: the samples of all rounds, and medians of them."""

from dataclasses import dataclass, field
from statistics import median

from bench.loads import Curve, Load
from bench.metrics import Metrics


@dataclass(slots=True)
class Outcome:
    """Samples by load and broker, in the order they were taken."""

    samples: dict[str, dict[str, list[Metrics]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def add(self, load: Load, broker: str, metrics: Metrics) -> None:
        """Notes one sample."""
        self.samples.setdefault(load.name, {}).setdefault(broker, []).append(metrics)

    def fail(self, load: Load, broker: str, reason: str) -> None:
        """Notes that a load could not be measured."""
        self.failures.append(f"{broker}, {load.name}: {reason}")

    def median(self, load: str, broker: str, metric: str) -> float | None:
        """The median over the rounds; None when it was not measured."""
        taken = self.samples.get(load, {}).get(broker, [])
        values = [metrics[metric] for metrics in taken if metric in metrics]
        return median(values) if values else None

    def ratio(self, load: str, metric: str, of: str, to: str) -> float | None:
        """The median of one broker over that of another."""
        top, bottom = self.median(load, of, metric), self.median(load, to, metric)
        return top / bottom if top is not None and bottom else None

    def curve_cost(self, curve: Curve, broker: str) -> list[float] | None:
        """The cost of one unit of work at each size; None unless every point was measured."""
        costs = []
        for point, size in zip(curve.points, curve.sizes, strict=True):
            cost = self.median(point.name, broker, curve.metric)
            if cost is None:
                return None
            costs.append(cost * 1000 / size if curve.per_size else cost)
        return costs
