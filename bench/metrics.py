"""What one turn yields, and how long its flow runs."""

from dataclasses import dataclass

from bench.generator import Run
from bench.loads import Load

Metrics = dict[str, float]


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a flow warms up and is measured."""

    warm_s: float
    measure_s: float

    def arguments(self) -> list[str]:
        """For the generator."""
        return ["--warm", str(self.warm_s), "--seconds", str(self.measure_s)]


def flow_metrics(measured: Run, load: Load) -> Metrics:
    """The rates, costs and latencies of a flow."""
    count = measured.number(load.counted)
    metrics = {
        "rate": measured.number(f"{load.counted}_per_s"),
        "published": measured.number("published_per_s"),
        "cpu_us": measured.cpu_us_per(load.counted),
        "generator_us": measured.number("generator_cpu_s") / count * 1e6 if count else 0.0,
    }
    if load.latencies:
        for kind in ("deliver", "confirm"):
            for quantile, value in measured.result.get(f"{kind}_ms", {}).items():
                if quantile != "count":
                    metrics[f"{kind}_{quantile}_ms"] = float(value)
    return metrics
