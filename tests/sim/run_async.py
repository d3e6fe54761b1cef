"""One schedule with queues that confirm before their mirrors have it (`ha-replication: async`).

A failover may take back what was confirmed, so much of it as the policy allows; it is put aside by
whoever has it on its disk. Nobody is given what may be taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sim.broker_actors import Drain
from sim.broker_cluster import BrokerCluster, Watch
from sim.broker_faults import Operator
from sim.broker_ledger import Ledger, name_of
from sim.broker_node import BrokerNode
from sim.run_broker import BrokerResult, Schedule
from sim.world import Violation, World
from warren.engine.salvaging import message_of

BOUNDS = (3, 20, 10_000)


class AsyncOperator(Operator):
    """Queues confirm early, most of the time; the bound stays the same."""

    bound = 0
    lag_ms = 1_000

    def definitions(self) -> list[dict[str, Any]]:
        dice = self.world.random
        kind = "async" if dice.random() < 0.8 else "sync"
        more: dict[str, Any] = {
            "ha-replication": kind,
            "ha-max-lag-messages": self.bound,
            "ha-max-lag-ms": self.lag_ms,
        }
        if dice.random() < 0.25:
            # Half of the day: one of the two is now.
            more["ha-replication-window"] = dice.choice(("00:00-12:00", "12:00-00:00"))
        return [{**definition, **more} for definition in super().definitions()]


class AsyncLedger(Ledger):
    """What was put aside is not lost; and it was confirmed, and not delivered."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.put_aside: set[tuple[str, bytes]] = set()

    def check_lost(self, left: dict[str, set[bytes]]) -> None:
        there = {queue: set(names) for queue, names in left.items()}
        for queue, name in self.put_aside:
            publish = self.published[name]
            if name in left[queue] or publish.is_settled:
                continue
            there[queue].add(name)
            if publish.state == "confirmed":
                self.counts["taken back"] += 1
        super().check_lost(there)


class AsyncSalvage:
    """Keeps what a node has put aside."""

    def __init__(self, node: BrokerNode) -> None:
        self._node = node

    def keep_messages(self, name: str, lines: Iterable[bytes], note: Mapping[str, Any]) -> str:
        names = [name_of(bytes(message_of(line).body)) for line in lines]
        ledger = self._node.cluster.ledger
        self._node.world.note(f"{self._node.name} puts aside {names}")
        ledger.put_aside.update((note["queue"], each) for each in names)
        ledger.counts["put aside"] += len(names)
        return name


class AsyncNode(BrokerNode):
    """A broker whose salvage the ledger knows."""

    def _build(self) -> None:
        super()._build()
        self.engine.mirrors.salvage = AsyncSalvage(self)


class AsyncWatch(Watch):
    """Publishers never count on more than the policy allows."""

    def turn(self, node: BrokerNode) -> None:
        super().turn(node)
        for mirror in node.engine.mirrors.by_number.values():
            if mirror.replica is None or not mirror.log.acts:
                continue
            promised, bound = mirror.replica.promised, mirror.settings.lag_operations_max
            self.counts["promised"] += promised > 0
            if promised > bound:
                raise Violation(f"{node.name} has promised {promised}, more than {bound}")


class AsyncCluster(BrokerCluster):
    """See the module's text."""

    node_type = AsyncNode

    def __init__(self, *arguments: Any, **limits: Any) -> None:
        super().__init__(*arguments, **limits)
        self.ledger = AsyncLedger(self.world)
        self.watch = AsyncWatch(self)


class AsyncSchedule(Schedule):
    """See the module's text."""

    def __init__(self, seed: int, seen: Callable[[World], None] | None = None) -> None:
        super().__init__(seed, seen, AsyncCluster)
        every = self.operator.every_us
        self.operator = AsyncOperator(self.cluster, self.queues, every)
        self.operator.bound = self.dice.choice(BOUNDS)
        self.operator.lag_ms = self.dice.choice((50, 1_000))
        # Nothing is as likely to take something back as many failovers.
        self.nemesis.every_us = min(self.nemesis.every_us, 150_000)

    def drain(self) -> list[Drain]:
        drains = super().drain()
        self.cluster.ledger.counts["bounds"] += self.operator.bound
        return drains


def run_async(seed: int, seen: Callable[[World], None] | None = None) -> BrokerResult:
    """Run one schedule; Violation if anything is wrong."""
    return AsyncSchedule(seed, seen).run()
