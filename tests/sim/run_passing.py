"""One schedule with queues and messages that may end with their brokers, and clients that take
what they get for settled: what is to stay stays, and what is gone had to go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.broker_actors import Consumer, Declarer
from sim.broker_client import method
from sim.passing_cluster import PassingCluster
from sim.run_broker import BrokerResult, Schedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.world import World

NAMESPACE = 1 << 42


class PassingDeclarer(Declarer):
    """Some queues are transient; one that is gone already was declared before."""

    def on_open(self) -> None:
        if self.queues:
            name = self.queues[0]
            durable = name not in self.cluster.ledger.transient  # type: ignore[attr-defined]
            self.send(method(1, "queue.declare", queue=name, durable=durable))


class AutoConsumer(Consumer):
    """What it gets is settled when it is sent: nobody gives it back, and it comes once."""

    def _consume(self) -> None:
        self.asked = "consume"
        tag = f"{self.name}.{self.life}"
        self.send(method(1, "basic.consume", queue=self.queue, consumer_tag=tag, no_ack=True))

    def _get(self, life: int) -> None:
        if not self.is_stopped and life == self.life and self.client is not None:
            self.asked = "get"
            self.send(method(1, "basic.get", queue=self.queue, no_ack=True))

    def _settle(self, life: int, tag: int, it: Any) -> None:
        it.is_settled = True


class PassingSchedule(Schedule):
    """From a seed."""

    cluster: PassingCluster

    def __init__(self, seed: int, seen: Callable[[World], None] | None = None) -> None:
        super().__init__(NAMESPACE + seed, seen, PassingCluster, trouble_ms=3_000)
        dice, ledger = self.dice, self.cluster.ledger
        ledger.transient = {name for name in self.queues if dice.random() < 0.6}
        ledger.auto_acked = {name for name in self.queues if dice.random() < 0.4}

    def add(self, actor: Any) -> None:
        if isinstance(actor, Consumer) and actor.queue in self.cluster.ledger.auto_acked:
            settings = {"prefetch": actor.prefetch, "gets": actor.gets}
            it = AutoConsumer(
                self.cluster, actor.name, actor.queue, **settings, is_alone=actor.is_alone
            )
            super().add(it)
            return
        super().add(actor)

    def _declare(self, queues: list[str]) -> None:
        declarer = PassingDeclarer(self.cluster, queues)
        declarer.start()
        if queues and not self.cluster.run_until(lambda: not declarer.queues, 20_000):
            self.fail("a queue cannot be declared")
        declarer.stop()
        declarer.close()

    def problems(self) -> list[str]:
        gone = self.cluster.ledger.gone
        self.queues = [name for name in self.queues if name not in gone]
        return super().problems()


def run_passing(seed: int, seen: Callable[[World], None] | None = None) -> BrokerResult:
    """Run one schedule; Violation if anything is wrong."""
    return PassingSchedule(seed, seen).run()
