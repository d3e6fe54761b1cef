"""What a wide schedule is about, by dice: the queues with their limits, and what may happen."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

#: What a schedule is about besides its queues. Each gives one kind of loss a reason, and no two of
#: them meet: whatever is missing then has one excuse at most.
THEMES = ("plain", "floor", "unclean", "unclean", "flips", "flips", "members", "members")
#: How long the trouble lasts: nodes are down after 2 s, and a learner is promoted after 3 more.
TROUBLE_MS = {
    "unclean": 8_000,
    "members": 5_000,
    "flips": 4_000,
    "alone": 8_000,
    "expiry": 8_000,
    "dark": 3_000,
}
#: How often something happens: those who wait for seconds must be left alone for as long at times.
EVERY_US = {
    "unclean": (400_000, 1_500_000),
    "flips": (200_000, 500_000),
    "alone": (3_000_000,),
    "expiry": (3_000_000,),
    "held": (200_000, 400_000),
    "dark": (300_000, 600_000),
}


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """One queue: its arguments, and what may take messages out of it besides consumers."""

    name: str
    #: Priorities from 0 to this one; 0: none.
    priority_max: int = 0
    is_single_active: bool = False
    #: `x-max-length`, and the least that a policy may set meanwhile; None: none.
    limit: int | None = None
    limit_least: int | None = None
    overflow: str = "drop-head"
    #: `x-message-ttl`, and the least that a policy may set meanwhile; None: none.
    ttl_ms: int | None = None
    ttl_least_ms: int | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        given: dict[str, Any] = {}
        if self.priority_max:
            given["x-max-priority"] = self.priority_max
        if self.is_single_active:
            given["x-single-active-consumer"] = True
        if self.limit is not None:
            given["x-max-length"] = self.limit
        if self.limit_least is not None:
            given["x-overflow"] = self.overflow
        if self.ttl_ms is not None:
            given["x-message-ttl"] = self.ttl_ms
        return given


@dataclass(frozen=True, slots=True)
class Plan:
    """All of it."""

    theme: str
    founders: int
    spares: int
    queues: tuple[QueuePlan, ...]
    #: What policies say of messages at times, beside what they say of mirrors.
    governing: dict[str, Any] = field(default_factory=dict)
    #: `ha-min-in-sync` of all policies.
    floor: int = 1
    #: How long a queue of its own may be unused; 0: there is none.
    expires_ms: int = 0

    @property
    def every_us(self) -> tuple[int, ...]:
        return EVERY_US.get(self.theme, (60_000, 150_000, 400_000))

    @property
    def trouble_ms(self) -> int:
        return TROUBLE_MS.get(self.theme, 2_500)


def least(*given: int | None) -> int | None:
    return min((it for it in given if it is not None), default=None)


def make_plan(dice: random.Random) -> Plan:
    theme = dice.choice(THEMES)
    governing: dict[str, Any] = {}
    if dice.random() < 0.2:
        governing["max-length"] = dice.choice((5, 20))
    if dice.random() < 0.2:
        governing["message-ttl"] = dice.choice((400, 3_000))
    names = [f"ha.{number}" for number in range(1, dice.choice((1, 2, 2, 3)) + 1)]
    return Plan(
        theme,
        founders=dice.choice((3, 3, 4)) if theme != "plain" else dice.choice((2, 3, 3)),
        spares=dice.choice((1, 1, 2)) if theme == "members" else 0,
        queues=tuple(_queue(dice, name, governing) for name in names),
        governing=governing,
        floor=2 if theme == "floor" else 1,
        expires_ms=dice.choice((0, 0, 1_200, 2_500)) if theme != "unclean" else 0,
    )


def _queue(dice: random.Random, name: str, governing: dict[str, Any]) -> QueuePlan:
    limit = dice.choice((None, None, 3, 12, 60))
    ttl_ms = dice.choice((None, None, 300, 2_000, 8_000, 600_000))
    return QueuePlan(
        name,
        priority_max=dice.choice((0, 0, 1, 3)),
        is_single_active=dice.random() < 0.3,
        limit=limit,
        limit_least=least(limit, governing.get("max-length")),
        overflow=dice.choice(("drop-head", "drop-head", "reject-publish")),
        ttl_ms=ttl_ms,
        ttl_least_ms=least(ttl_ms, governing.get("message-ttl")),
    )
