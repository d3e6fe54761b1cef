"""The harness against a broker that forgets: it must see the loss, and nothing that is not so."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_process import Kind
from campaign import Campaign, Options, run_campaign

SEED = 1


@pytest.mark.slow
@pytest.mark.parametrize("orderly", [False, True], ids=["kill", "stop"])
def test_a_broker_without_a_store_is_found_out(orderly: bool, tmp_path: Path) -> None:
    options = Options(ends=2, seed=SEED, base=tmp_path, orderly=orderly, kind=Kind.FORGETFUL)
    verdict = run_campaign(Campaign(options)).verdict
    assert {problem.kind for problem in verdict.problems} == {"lost", "topology"}
    assert verdict.numbers["deliveries"] > 100
