"""A short run of `faults.py`; `make faults` has longer ones."""

from __future__ import annotations

import pytest
from faults import go

from warren.testing import Cluster

SECONDS = 25
SEED = 20


@pytest.mark.timeout(240)
def test_nothing_confirmed_is_lost() -> None:
    said: list[str] = []
    with Cluster(3, proxied_links=True) as cluster:
        try:
            ledger = go(cluster, SECONDS, SEED, said.append)
        except AssertionError as error:
            error.add_note("\n".join(said))
            raise
    # That there was a load at all; how much of it is up to the machine.
    assert len(ledger.confirmed) > 100
    assert ledger.events["refused"] > 0
