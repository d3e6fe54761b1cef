"""One schedule with whole brokers: clients, policies and trouble; then peace, and the reckoning."""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sim.broker_actors import Consumer, Declarer, Drain, Publisher
from sim.broker_cluster import BrokerCluster
from sim.broker_faults import BrokerNemesis, Operator, set_policy
from sim.broker_ledger import name_of
from sim.run import settings_for
from sim.world import Violation, World

if TYPE_CHECKING:
    from sim.broker_node import BrokerNode

RECOVERY_MS = 30_000
LAST_POLICY = {"ha-mode": "all", "ha-sync-mode": "automatic"}


@dataclass(frozen=True, slots=True)
class BrokerResult:
    """What a schedule saw."""

    seed: int
    fingerprint: str
    events: int
    virtual_ms: int
    commits: int
    strikes: int
    counts: Counter[str]


class Schedule:
    """From a seed, or from a test that has its own trouble."""

    def __init__(
        self,
        seed: int,
        seen: Callable[[World], None] | None = None,
        cluster_class: type[BrokerCluster] = BrokerCluster,
        trouble_ms: int = 2_000,
    ) -> None:
        dice = self.dice = random.Random(seed)
        self.seed, self.trouble_ms = seed, trouble_ms
        founders = dice.choice((2, 3, 3, 3, 3, 4))
        self.cluster = cluster_class(seed, founders, settings=settings_for(dice))
        if seen is not None:
            seen(self.cluster.world)
        self.queues = [f"ha.{number}" for number in range(1, dice.choice((1, 1, 2, 3)) + 1)]
        self.nemesis = BrokerNemesis(self.cluster, dice.choice((60_000, 150_000, 400_000)), False)
        self.operator = Operator(self.cluster, self.queues, dice.choice((50_000, 200_000, 600_000)))
        self.actors: list[Any] = []
        #: What queues are declared with, by name.
        self.arguments: dict[str, dict[str, Any]] = {}

    def run(self) -> BrokerResult:
        # Queues that nobody has any more let go of their messages when they are collected: when
        # that is would otherwise depend on what else this process has done.
        gc.disable()
        try:
            self.set_up()
            self.nemesis.start()
            self.operator.start()
            self.cluster.run_ms(self.trouble_ms)
            self.make_peace()
            self.reckon()
            return self.result()
        finally:
            gc.enable()

    # -- the parts

    def set_up(self) -> None:
        cluster, dice = self.cluster, self.dice
        cluster.start()
        cluster.found()
        early = dice.randint(0, len(self.queues))
        self._declare(self.queues[:early])
        set_policy(cluster, dice.choice(self.operator.definitions()))
        self._declare(self.queues[early:])
        for queue in self.queues:
            for number in range(dice.choice((1, 1, 2))):
                every = dice.choice((5_000, 20_000, 60_000))
                name = f"{queue}.p{number}"
                window = dice.choice((1, 5, 50))
                self.add(Publisher(cluster, name, queue, every_us=every, window=window))
            consumers = dice.choice((0, 1, 1, 2))
            for number in range(consumers):
                name, gets = f"{queue}.c{number}", dice.random() < 0.25
                prefetch = dice.choice((1, 3, 20))
                self.add(
                    Consumer(
                        cluster, name, queue, prefetch=prefetch, gets=gets, is_alone=consumers == 1
                    )
                )

    def add(self, actor: Any) -> None:
        self.actors.append(actor)
        actor.start()

    def _declare(self, queues: list[str]) -> None:
        declarer = Declarer(self.cluster, queues, self.arguments)
        declarer.start()
        if queues and not self.cluster.run_until(lambda: not declarer.queues, 20_000):
            self.fail("a queue cannot be declared")
        declarer.stop()
        declarer.close()

    def make_peace(self) -> None:
        """No more trouble; and all queues are to be on all nodes."""
        cluster = self.cluster
        self.nemesis.stop()
        self.operator.stop()
        cluster.heal()
        cluster.world.note("peace")
        cluster.run_ms(500)
        for actor in self.actors:
            actor.stop()
        set_policy(cluster, LAST_POLICY)

    def reckon(self) -> None:
        cluster = self.cluster
        if not cluster.run_until(lambda: not cluster.ledger.unanswered(), RECOVERY_MS):
            waiting = cluster.ledger.unanswered()
            names = [name_of(it.body) for it in waiting[:4]]
            self.fail(f"{len(waiting)} publishes are never answered: {names}")
        if not cluster.run_until(lambda: not self.hanging(), RECOVERY_MS):
            self.fail(f"never answered: {self.hanging()}")
        for actor in self.actors:
            actor.close()
        self.settle_policy()
        # Some copies were cancelled, and stay so until somebody wants them again.
        if not cluster.run_until(lambda: not self.problems(), 2_000):
            self.operator.sync_all()
        if not cluster.run_until(lambda: not self.problems(), RECOVERY_MS):
            self.fail("\n".join(self.problems()))
        drains = self.drain()
        cluster.ledger.check_lost({it.queue: set(map(name_of, it.left)) for it in drains})
        cluster.ledger.counts["left"] += sum(len(it.left) for it in drains)

    def drain(self) -> list[Drain]:
        """All that is left in the queues."""
        drains = [Drain(self.cluster, f"drain.{queue}", queue) for queue in self.queues]
        for drain in drains:
            drain.start()
        if not self.cluster.run_until(lambda: all(it.is_done for it in drains), RECOVERY_MS):
            self.fail(f"cannot be drained: {[it.queue for it in drains if not it.is_done]}")
        return drains

    def settle_policy(self) -> None:
        """What the operator ordered before may be agreed on later than what was wanted last."""
        self.cluster.run_until(lambda: self.operator.is_answered, 5_000)
        set_policy(self.cluster, LAST_POLICY)

    def hanging(self) -> list[str]:
        return [f"{it.name} {it.asked}" for it in self.actors if getattr(it, "asked", "")]

    def problems(self) -> list[str]:
        """What keeps replicas from being equal; all clients are gone."""
        present = self.present()
        found = [f"{it.name} is not ready" for it in present.values() if not it.is_ready]
        if found:
            return found
        names = set(present)
        # Publishes whose client is gone are published all the same, when their gateway comes to it:
        # one of a higher priority would come to a queue that is being drained already.
        found += [f"{it.name} has publishes on their way" for it in present.values() if on_way(it)]
        # Nor is a get forgotten whose client is gone: the home answers when it may, and what it has
        # given out for nobody is back in its place a moment later, behind what was drained.
        found += [f"{it.name} waits for answers" for it in present.values() if it.product.asked]
        for queue in self.queues:
            copies, states = {}, {}
            for name, node in present.items():
                known = node.engine.vhosts["/"].queues[queue]
                view = node.engine.views.get(known.number)
                mirror = node.engine.mirrors.by_number.get(known.number)
                if known.unacked:
                    found.append(f"{name}: {queue} has {known.unacked} out")
                if view is None or mirror is None or set(view.in_sync) != names:
                    found.append(f"{name}: {queue} {view}")
                    continue
                states[name] = (view, mirror.log.applied_index, mirror.log.last_index)
                copies[name] = content_of(node.store.journal, mirror.queue)
            if len(set(states.values())) > 1:
                found.append(f"{queue}: {states}")
            elif len({tuple(copy) for copy in copies.values()}) > 1:
                found.append(f"{queue} differs: {difference(copies)}")
        return found

    def present(self) -> dict[str, BrokerNode]:
        """The nodes that are to have everything in the end."""
        return self.cluster.nodes

    def fail(self, what: str) -> None:
        raise Violation(f"{self.cluster.world.now_us} {what}")

    def result(self) -> BrokerResult:
        cluster = self.cluster
        counts: Counter[str] = Counter(cluster.ledger.counts)
        counts.update(cluster.watch.counts)
        counts["boots"] = sum(node.boot for node in cluster.nodes.values())
        return BrokerResult(
            self.seed,
            cluster.world.fingerprint,
            cluster.world.events,
            cluster.world.now_us // 1000,
            cluster.ledger.counts["confirmed"],
            self.nemesis.strikes,
            counts,
        )


def on_way(node: BrokerNode) -> int:
    """Publishes that a node has taken and that no home has answered, waited for or not."""
    queues: list[Any] = [q for vhost in node.engine.vhosts.values() for q in vhost.queues.values()]
    waiting = sum(it.held_count + it.stashed_count for it in queues if it.is_remote)
    gateways = node.product.homes._gateways.values()
    return int(waiting + sum(it.unanswered_count for it in gateways))


def content_of(journal: Any, queue: Any) -> list[tuple[int, bytes]]:
    """Slots and messages of a copy, wherever they are."""
    found = []
    for row in queue.walk():
        message = row[-1] if row[-1] is not None else journal.fetch_message(row[1])
        found.append((row[0], b"?" if message is None else name_of(bytes(message.body))))
    return found


def difference(copies: dict[str, list[tuple[Any, ...]]]) -> str:
    first = next(iter(copies.values()))
    return "; ".join(
        f"{name} {len(copy)}: {sorted(set(copy) ^ set(first))[:6]}" for name, copy in copies.items()
    )


def run_broker(seed: int, seen: Callable[[World], None] | None = None) -> BrokerResult:
    """Run one schedule; Violation if anything is wrong."""
    return Schedule(seed, seen).run()
