"""One schedule with dead letters: whatever fails, a confirmed message is somewhere in the end.

Queues with limits, times to live and consumers that reject; their letters go to one queue, which is
mirrored or has its home on one node. Letters may come twice; none may be lost or made up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sim.broker_actors import Actor, Consumer, Declarer, Publisher
from sim.broker_client import method
from sim.broker_faults import set_policy
from sim.broker_ledger import Publish, name_of
from sim.run_broker import RECOVERY_MS, BrokerResult, Schedule
from sim.world import World

#: What messages die of, beside being rejected.
LIMITS: list[dict[str, Any]] = [
    {},
    {"x-max-length": 4},
    {"x-message-ttl": 40},
    {"x-message-ttl": 400},
    {"x-message-ttl": 0},
    {"x-delivery-limit": 1},
]


class DeclarerOfSome(Declarer):
    """Each queue with arguments of its own."""

    def __init__(self, cluster: Any, queues: dict[str, dict[str, Any]]) -> None:
        super().__init__(cluster, list(queues))
        self._arguments = queues

    def on_open(self) -> None:
        if self.queues:
            name = self.queues[0]
            arguments = self._arguments[name]
            self.send(method(1, "queue.declare", queue=name, durable=True, arguments=arguments))


class Rejecter(Consumer):
    """Most of what it gets it wants never to see again."""

    def _settle(self, life: int, tag: int, it: Publish) -> None:
        if life != self.life or self.client is None:
            return
        what = self.world.random.random()
        self.world.note(f"{self.name}.{self.life} settles {it.name!r} {what:.2f}")
        if what < 0.7:
            self.send(method(1, "basic.reject", delivery_tag=tag))
        elif what < 0.85:
            self.send(method(1, "basic.nack", delivery_tag=tag, requeue=True))
        elif what < 0.95:
            it.is_settled = True
            self.send(method(1, "basic.ack", delivery_tag=tag))
        elif what < 0.97:
            self.close()


class Emptying(Actor):
    """Takes all that is in a queue, at the end; a get would wait for a log that nobody writes."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.left: list[bytes] = []

    def on_open(self) -> None:
        # With a limit: simulated clients do not say when they have read.
        self.send(
            method(1, "basic.qos", prefetch_count=20)
            + method(1, "basic.consume", queue=self.queue, consumer_tag="last")
        )

    def on_method(self, name: str, fields: dict[str, Any], body: bytes) -> None:
        if name == "basic.deliver":
            known = self.ledger.published.get(name_of(body))
            if known is None or known.body != body:
                self.ledger.fail(
                    f"nobody has published {name_of(body)!r}, which is in {self.queue}"
                )
            self.left.append(name_of(body))
            self.send(method(1, "basic.ack", delivery_tag=fields["delivery_tag"]))
        elif name == "channel.close":
            self.ledger.fail(f"{self.queue} cannot be read: {fields['reply_text']}")


class DeadLetterSchedule(Schedule):
    """See the module's text."""

    def __init__(self, seed: int, seen: Callable[[World], None] | None = None) -> None:
        super().__init__(seed, seen)
        dice = self.dice
        self.grave = dice.choice(("ha.grave", "grave"))
        self.sources = {name: dice.choice(LIMITS) for name in self.queues}
        if dice.random() < 0.5:
            # Nobody consumes it: a simulated node stops before it has taken deliveries back.
            self.sources["plain"] = dice.choice(LIMITS[1:5])

    def set_up(self) -> None:
        cluster, dice = self.cluster, self.dice
        cluster.start()
        cluster.found()
        letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self.grave}
        wanted: dict[str, dict[str, Any]] = {self.grave: {}}
        wanted |= {name: letters | limits for name, limits in self.sources.items()}
        set_policy(cluster, dice.choice(self.operator.definitions()))
        declarer = DeclarerOfSome(cluster, wanted)
        declarer.start()
        if not cluster.run_until(lambda: not declarer.queues, 20_000):
            self.fail("a queue cannot be declared")
        declarer.stop()
        declarer.close()
        if self.grave.startswith("ha."):
            self.queues.append(self.grave)
        for queue in self.sources:
            every, window = dice.choice((5_000, 20_000)), dice.choice((1, 5, 50))
            self.add(Publisher(cluster, f"{queue}.p", queue, every_us=every, window=window))
            for number in range(0 if queue == "plain" else dice.choice((1, 1, 2))):
                gets, prefetch = dice.random() < 0.5, dice.choice((1, 3, 20))
                name = f"{queue}.c{number}"
                self.add(
                    Rejecter(cluster, name, queue, prefetch=prefetch, gets=gets, is_alone=False)
                )

    def count(self, name: str) -> int:
        there = [node.engine.vhosts["/"].queues[name] for node in self.cluster.nodes.values()]
        return sum(queue.ready + queue.unacked for queue in there)

    def problems(self) -> list[str]:
        found = super().problems()
        for name, node in self.cluster.nodes.items():
            if node.is_ready:
                for queue in node.engine.vhosts["/"].queues.values():
                    if queue.buried:
                        found.append(f"{name}: {queue.name} has {queue.buried} buried")
        return found

    def reckon(self) -> None:
        cluster = self.cluster
        if not cluster.run_until(lambda: not cluster.ledger.unanswered(), RECOVERY_MS):
            self.fail(f"{len(cluster.ledger.unanswered())} publishes are never answered")
        for actor in self.actors:
            actor.close()
        self.settle_policy()
        if not cluster.run_until(lambda: not self.problems(), 2_000):
            self.operator.sync_all()
        if not cluster.run_until(lambda: not self.problems(), RECOVERY_MS):
            self.fail("\n".join(self.problems()))
        # The grave last: what expires meanwhile goes there.
        left: dict[str, set[bytes]] = {}
        for queue in [*self.sources, self.grave]:
            if not cluster.run_until(lambda: not self.problems(), RECOVERY_MS):
                self.fail("\n".join(self.problems()))
            emptying = Emptying(cluster, f"drain.{queue}", queue)
            emptying.start()
            if not cluster.run_until(lambda queue=queue: self.count(queue) == 0, RECOVERY_MS):
                self.fail(f"{queue} cannot be drained")
            emptying.stop()
            emptying.close()
            cluster.run_ms(50)
            left[queue] = set(emptying.left)
            cluster.ledger.counts["left"] += len(emptying.left)
            if queue == self.grave:
                again = len(emptying.left) - len(left[queue])
                cluster.ledger.counts["letters"] += len(left[queue])
                cluster.ledger.counts["letters that came twice"] += again
        cluster.ledger.check_lost({name: left[name] | left[self.grave] for name in self.sources})


def run_dead_letters(seed: int, seen: Callable[[World], None] | None = None) -> BrokerResult:
    """Run one schedule; Violation if anything is wrong."""
    return DeadLetterSchedule(seed, seen).run()
