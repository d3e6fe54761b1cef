"""Every rule is needed: the product without it is caught by the simulator of brokers."""

from __future__ import annotations

from itertools import chain

import pytest

from sim.broker_mutants import MUTANTS, mutant
from sim.run_broker import run_broker
from sim.world import Violation
from warren.replication.types import ProtocolError

#: None of these is missed by the product as it is; most mutants are caught by the first few.
SEEDS = range(20, 620)
#: Rules that few schedules need, and where they were needed once; these are tried first. The rule
#: of StaysBehind has a test of its own besides, in `tests/session/test_agreed_definitions.py`.
RARELY_NEEDED = {"StaysBehind": (212, 424)}


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_mutants_are_caught(name: str) -> None:
    with mutant(name):
        for seed in chain(RARELY_NEEDED.get(name, ()), SEEDS):
            try:
                run_broker(seed)
            except (Violation, ProtocolError, AssertionError, ValueError):
                return
    pytest.fail(f"{name} is not caught by {len(SEEDS)} seeds")
