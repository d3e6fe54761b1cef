"""Short runs of `faults.py` with mirrored queues; `make faults` has longer ones."""

from __future__ import annotations

import warnings

import pytest
from fault_run import Finished, Plan, checked
from faults import faulty_cluster

SECONDS = 45
#: The short one cuts the ring right at the start, between a master and a mirror: once, publishes by
#: way of a third node were confirmed by the master's disk alone, and lost with it.
RUNS = [
    Plan(4, 9, mirrored=True, must=("cut:1:2",)),
    Plan(SECONDS, 1, mirrored=True, must=("disk_full", "kill_all", "sync_fails")),
    Plan(SECONDS, 2, mirrored=True, must=("bit_flip", "pause", "kill_two")),
    Plan(SECONDS, 3, mirrored=True, must=("log_cut", "single", "rolling_restart")),
    Plan(SECONDS, 4, mirrored=True, workload="W7", must=("slow_syncs", "bridge", "one_way")),
    Plan(SECONDS, 5, mirrored=True, workload="W6", must=("clock_jump", "bit_flip", "disk_full")),
    Plan(SECONDS, 6, mirrored=True, workload="W3", must=("loss", "disk_alarm", "restart")),
]


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("plan", RUNS, ids=lambda plan: f"{plan.workload}-{plan.seed}")
def test_nothing_confirmed_is_lost(plan: Plan) -> None:
    """There is no second chance for what the checker finds, only for a run that was none."""
    try:
        result = run(plan)
    except AssertionError:
        raise
    except Exception as error:  # a node that did not start on a busy machine, as a rule
        warnings.warn(f"{plan} could not be run: {error!r}; once more", stacklevel=1)
        result = run(plan)
    # That there was a load at all; how much of it is up to the machine.
    assert len(result.ledger.confirmed) > 100
    if plan.workload in {"W1", "W7"}:
        assert any(producer.startswith("pika") for producer, _ in result.ledger.confirmed)
    assert {name.partition(":")[0] for name in plan.must} <= set(result.acts)


def run(plan: Plan) -> Finished:
    """One run on a cluster of its own."""
    said: list[str] = []
    with faulty_cluster(plan.nodes) as (cluster, disks):
        try:
            return checked(cluster, plan, said.append, disks)
        except BaseException as error:
            error.add_note("\n".join(said))
            raise
