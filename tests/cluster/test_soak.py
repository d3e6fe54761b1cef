"""The judgement of `make soak`, without a cluster: what is lost, doubled or not flat is seen."""

from __future__ import annotations

import random

import pytest
from soak import Stream
from soak_figures import Figures, Minute, Numbers, Sample, document


def test_numbers_are_a_set() -> None:
    dice = random.Random(1)
    wanted = dice.sample(range(1, 500), 300)
    numbers = Numbers()
    assert all(numbers.add(number) for number in wanted)
    assert not any(numbers.add(number) for number in wanted)
    assert numbers.count == 300
    assert {number for number in range(600) if number in numbers} == set(wanted)
    other = Numbers()
    for number in wanted[:200]:
        other.add(number)
    assert sorted(numbers.missing_in(other)) == sorted(wanted[200:])
    assert other.missing_in(numbers) == []


def test_loss_phantoms_and_silent_doubles_are_found() -> None:
    stream = Stream("q", sent=3)
    for number in (1, 2, 3):
        stream.confirmed.add(number)
    stream.arrived(1, False)
    stream.arrived(1, True)
    assert stream.faults == []
    stream.arrived(1, False)
    stream.arrived(4, False)
    assert stream.verdict() == [
        "q: 1 came twice without a word",
        "q: 4 was never sent",
        "q: 2 lost, as [2, 3]",
    ]


def test_one_that_was_sent_twice_may_come_twice() -> None:
    stream = Stream("q", sent=1, repeated={1})
    stream.arrived(1, False)
    stream.arrived(1, False)
    assert stream.verdict() == []


def minutes(count: int, memory_growth: float = 0, latency_growth: float = 0) -> Figures:
    figures = Figures()
    for number in range(count):
        sample = Sample(0.0, {1: 100 + memory_growth * number}, {1: 64.0})
        latencies = [0.002 + latency_growth * number] * 100
        figures.minutes.append(Minute(latencies, 0.1, [sample]))
    return figures


def test_what_grows_is_not_flat() -> None:
    assert minutes(31).verdict() == []
    (memory,) = minutes(31, memory_growth=5).verdict()
    assert memory.startswith("memory, MiB is not flat: 122.5 first")
    (latency,) = minutes(31, latency_growth=0.001).verdict()
    assert latency.startswith("p50, ms is not flat")
    # Too short to tell.
    assert minutes(5, memory_growth=100).verdict() == []


@pytest.mark.parametrize("faults", [[], ["q: 2 lost"]])
def test_the_page_tells_the_outcome(faults: list[str]) -> None:
    page = document(minutes(3), 3, 120, 1000, faults)
    assert ("Nothing was lost" in page) is not bool(faults)
    assert page.count("\n| ") == 4
    assert all(fault in page for fault in faults)
