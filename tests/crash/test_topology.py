"""The setting-up of a run, when the broker dies in the middle of it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from async_client import AsyncClient, LostError, RefusedError
from checker import check
from history import History
from topology import FANNED, QUEUES, examine


class Broker:
    """What is declared stays; `dies_at` is the answer that a client does not get any more."""

    def __init__(self) -> None:
        self.queues: set[str] = set()
        self.exchanges: set[str] = set()
        self.bindings: list[str] = []
        self.dies_at: tuple[str, str] | None = None

    async def channel(self) -> Broker:
        return self

    async def call(self, name: str, **values: Any) -> dict[str, Any]:
        if name == "channel.close":
            return {}
        kind = "exchange" if name == "exchange.declare" else "queue"
        thing = values[kind]
        if self.dies_at == (f"before {name}", thing):
            raise LostError
        if name == "queue.bind":
            self.bindings.append(thing)
        else:
            there = self.exchanges if kind == "exchange" else self.queues
            if values.get("passive") and thing not in there:
                raise RefusedError(404, "NOT_FOUND")
            there.add(thing)
        if self.dies_at == (name, thing):
            raise LostError
        return {"message_count": 0}


def live(broker: Broker, history: History) -> None:
    history.life += 1
    asyncio.run(examine(cast(AsyncClient, broker), history))


@pytest.mark.parametrize(
    ("dies_at", "bound"),
    [
        (("before queue.declare", "fan.1"), 1),
        (("queue.declare", "fan.1"), 1),
        (("before queue.bind", "fan.1"), 1),
        # On the disk or not, nobody knows: asking again does no harm.
        (("queue.bind", "fan.1"), 2),
    ],
)
def test_a_queue_gets_its_binding_although_the_broker_died(
    dies_at: tuple[str, str], bound: int
) -> None:
    broker, history = Broker(), History()
    broker.dies_at = dies_at
    with pytest.raises(LostError):
        live(broker, history)
    broker.dies_at = None
    live(broker, history)
    assert broker.queues == set(QUEUES)
    assert {queue: broker.bindings.count(queue) for queue in FANNED} == {
        "fan.0": 1,
        "fan.1": bound,
        "fan.2": 1,
    }
    assert check(history).problems == []


def test_a_binding_that_was_answered_is_not_made_again() -> None:
    # The run would not see that the broker lost it.
    broker, history = Broker(), History()
    live(broker, history)
    live(broker, history)
    assert sorted(broker.bindings) == sorted(FANNED)


def test_a_queue_that_was_lost_is_bound_again_and_told() -> None:
    broker, history = Broker(), History()
    live(broker, history)
    broker.queues.remove("fan.0")
    live(broker, history)
    assert broker.bindings.count("fan.0") == 2
    assert [problem.kind for problem in check(history).problems] == ["topology"]
