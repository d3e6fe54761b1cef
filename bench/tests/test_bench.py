"""The benchmark's own arithmetic, and a generator that compiles and explains itself."""

import os
import subprocess

import pytest

from bench import bars, report
from bench.bar import Verdict
from bench.brokers import free_port
from bench.generator import PROGRAM, build
from bench.loads import CURVES, LOADS, Curve
from bench.measure import usage
from bench.outcome import Outcome


def outcome_with(load: str, **rates: list[float]) -> Outcome:
    samples = {broker: [{"rate": rate} for rate in taken] for broker, taken in rates.items()}
    return Outcome({load: samples})


def verdict(outcome: Outcome, title: str) -> Verdict:
    return next(v for v in bars.judge(outcome) if v.title == title)


def test_load_names_are_unique() -> None:
    names = [load.name for load in LOADS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)
def test_a_curve_doubles_three_times(curve: Curve) -> None:
    first = curve.sizes[0]
    assert curve.sizes == (first, 2 * first, 4 * first, 8 * first)
    assert len(curve.points) == len(curve.sizes)


def test_a_ratio_is_of_medians() -> None:
    outcome = outcome_with("16B", warren=[90.0, 100.0, 500.0], rabbitmq=[1.0, 5.0, 6.0])
    assert outcome.ratio("16B", "rate", "warren", "rabbitmq") == 20


@pytest.mark.parametrize(
    ("rate", "status"), [(100.0, "reached"), (99.0, "missed"), (None, "not measured")]
)
def test_a_bar_is_judged(rate: float | None, status: str) -> None:
    warren = [rate] if rate is not None else []
    outcome = outcome_with("16B", warren=warren, rabbitmq=[5.0])
    assert verdict(outcome, "16 B auto-ack, of RabbitMQ").status == status


def test_growth_counts_the_work_that_size_itself_brings() -> None:
    curve = next(curve for curve in CURVES if curve.per_size)
    costs = zip(curve.points, curve.sizes, strict=True)
    samples = {point.name: {"warren": [{"cpu_us": float(size)}]} for point, size in costs}
    assert Outcome(samples).curve_cost(curve, "warren") == [1000.0] * 4


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.1234, "0.123"), (1234.0, "1,234"), (73_900.0, "73.9 k"), (2.98e6, "2.98 M")],
)
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert report.number(value) == text


def test_the_report_renders_without_any_sample() -> None:
    context = report.Context("2000-01-01", "0", "machine", 1, 1.0, ["warren"])
    assert "not measured" in report.render(Outcome(), context)


def test_own_usage_is_seen() -> None:
    seen = usage(os.getpid())
    assert seen.rss_bytes > 1 << 20
    assert seen.cpu_s > 0


def test_the_generator_says_what_is_wrong() -> None:
    build()
    port = free_port()
    refused = subprocess.run(
        [str(PROGRAM), "--endpoints", f"127.0.0.1:{port}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 1
    assert refused.stderr == f"amqpload: cannot connect to 127.0.0.1:{port}: Connection refused\n"
