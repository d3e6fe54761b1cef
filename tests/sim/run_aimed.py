"""One wide schedule whose trouble is aimed at one rule, so that few of them reach it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.aimed_faults import AimedNemesis, AimedOperator
from sim.run_wide import WideSchedule
from sim.wide_plan import Plan, QueuePlan

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from sim.run_broker import BrokerResult
    from sim.world import World

#: What schedules are aimed at:
#: a node that alone has a queue is taken for dead, and is not; a master that is cut off wants an
#: unused queue to go, which others use; what waits for a new master comes to it with its limits;
#: damage is found by a node that nobody knows to have been away.
AIMS = ("alone", "expiry", "held", "dark")


def plan_for(aim: str, dice: random.Random) -> Plan:
    """Queues that show it."""
    ttl_ms = 300 if aim == "held" else None
    names = [f"ha.{number}" for number in range(1, dice.choice((2, 2, 3)))]
    return Plan(
        aim,
        founders=3,
        spares=0,
        queues=tuple(QueuePlan(name, ttl_ms=ttl_ms, ttl_least_ms=ttl_ms) for name in names),
        expires_ms=1_200 if aim == "expiry" else 0,
    )


class AimedSchedule(WideSchedule):
    """From a seed; the aim is the next one with each."""

    namespace = 1 << 41
    nemesis_class = AimedNemesis
    operator_class = AimedOperator

    def _make_plan(self, dice: random.Random) -> Plan:
        return plan_for(AIMS[self.seed % len(AIMS)], dice)


def run_aimed(seed: int, seen: Callable[[World], None] | None = None) -> BrokerResult:
    """Run one schedule; Violation if anything is wrong."""
    return AimedSchedule(seed, seen).run()
