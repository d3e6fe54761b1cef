"""Every rule of the ring is needed: switched off, it is missed, by a seed or by hand."""

from __future__ import annotations

import pytest

from sim import ring_mutants, ring_scenarios
from sim.ring_cluster import Rules
from sim.run_ring import run_ring
from sim.world import Violation
from warren.replication.types import ProtocolError

SCENARIOS = (
    ring_scenarios.sync_from_before_a_truncation,
    ring_scenarios.upstream_of_another_epoch,
    ring_scenarios.acknowledged_in_vain,
    ring_scenarios.read_for_an_earlier_copy,
    ring_scenarios.late_answer_to_a_greeting,
    ring_scenarios.promoted_in_an_epoch_that_did_not_last,
)
BY_SCENARIO: dict[str, tuple[ring_scenarios.Scenario, str]] = {
    "CountsOldWrites": (ring_scenarios.sync_from_before_a_truncation, "has not written it"),
    "HearsOtherEpochs": (ring_scenarios.upstream_of_another_epoch, "has not written it"),
    "BuriesTooEarly": (ring_scenarios.acknowledged_in_vain, "differ"),
    "TakesAnyChunk": (ring_scenarios.read_for_an_earlier_copy, "differ"),
    "AnswersAnyMatch": (ring_scenarios.late_answer_to_a_greeting, "below the commit"),
    "ForgetsPromotion": (
        ring_scenarios.promoted_in_an_epoch_that_did_not_last,
        "the queue is not told",
    ),
}


#: mutant -> (a seed that catches it, what may be missed, how many seeds catch it from anywhere)
BY_SEED: dict[str, tuple[int, str, int]] = {
    "RestartsInsideAnEpoch": (0, "two masters", 20),
    "CommitsWithoutNewcomer": (0, "has not written it", 80),
    "ExpandsByOwnCommit": (106, "has not written it", 200),
    "IsFullTooEarly": (0, "lacks messages on its disk", 100),
    "DoesNotWaitForToken": (0, "has not written it", 10),
    "ForgetsItsOwnDisk": (0, "has not written it", 10),
    "NeverTruncates": (0, "has not written it|do not recover", 20),
    "CountsUnmatched": (0, "has not written it", 30),
    "ServesAtOnce": (0, "does not say so", 20),
    "DoesNotFlag": (0, "does not say so", 30),
    "IgnoresWatermark": (0, "does not say so", 60),
}


def test_no_mutant_is_left_out() -> None:
    assert set(BY_SEED) | set(BY_SCENARIO) == set(ring_mutants.MUTANTS)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("mutant", BY_SEED)
def test_a_seed_catches(mutant: str) -> None:
    seed, by, bound = BY_SEED[mutant]
    rules = ring_mutants.MUTANTS[mutant]
    with pytest.raises((Violation, ProtocolError), match=by):  # noqa: PT012 - until one does
        for number in range(seed, seed + bound):
            run_ring(number, rules)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_product_stands(scenario: ring_scenarios.Scenario) -> None:
    scenario(Rules())


@pytest.mark.parametrize("mutant", BY_SCENARIO)
def test_a_schedule_catches(mutant: str) -> None:
    scenario, by = BY_SCENARIO[mutant]
    with pytest.raises((Violation, ProtocolError), match=by):
        scenario(ring_mutants.MUTANTS[mutant])
