"""A short run of `faults.py`; `make faults` has longer ones."""

from __future__ import annotations

import pytest
from fault_run import Plan, checked
from faults import faulty_cluster

PLAN = Plan(seconds=25, seed=20, must=("pause", "disk_full"))


@pytest.mark.timeout(240)
def test_nothing_confirmed_is_lost() -> None:
    said: list[str] = []
    with faulty_cluster() as (cluster, disks):
        try:
            result = checked(cluster, PLAN, said.append, disks)
        except AssertionError as error:
            error.add_note("\n".join(said))
            raise
    # That there was a load at all; how much of it is up to the machine.
    assert len(result.ledger.confirmed) > 100
    assert result.ledger.events["refused"] > 0
    assert result.acts["disk_full"] > 0
