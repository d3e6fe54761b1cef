"""One schedule with readers by position and producers of batches, beside all others.

What is judged besides: what was shown of a position is shown again, byte for byte, by every replica
that may answer, until it is trimmed; what a cursor was told to be it stays; nobody else gets it
while its reader lives; a batch is there whole or not at all, and once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.broker_actors import Consumer
from sim.broker_cluster import BrokerCluster
from sim.broker_ledger import Ledger
from sim.broker_node import BrokerNode
from sim.cursor_actors import Producer, Reader, Rival
from sim.run_broker import RECOVERY_MS, BrokerResult, Schedule
from warren.engine.cursors import drop_cursor, resume_cursors

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.world import World

NAMESPACE = 1 << 44


class CursorNode(BrokerNode):
    """As the product's store does it, cursors go on with the node."""

    def _build(self) -> None:
        super()._build()
        for vhost in self.engine.vhosts.values():
            for queue in vhost.queues.values():
                resume_cursors(self.engine, queue)


class CursorLedger(Ledger):
    """Knows the batches of every queue."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.batches: dict[str, list[list[bytes]]] = {}


class CursorCluster(BrokerCluster):
    """See the module's text."""

    node_type = CursorNode
    ledger: CursorLedger

    def __init__(self, seed: int, founders: int, spares: int = 0, **limits: Any) -> None:
        super().__init__(seed, founders, spares, **limits)
        self.ledger = CursorLedger(self.world)


class CursorSchedule(Schedule):
    """From a seed."""

    cluster: CursorCluster

    def __init__(self, seed: int, seen: Callable[[World], None] | None = None) -> None:
        super().__init__(NAMESPACE + seed, seen, CursorCluster, trouble_ms=3_000)
        dice = self.dice
        self.drained = {name for name in self.queues if dice.random() < 0.4}
        self.readers: list[Reader] = []

    def add(self, actor: Any) -> None:
        if isinstance(actor, Consumer) and actor.queue in self.drained:
            # The cursor is the consumer.
            return
        super().add(actor)

    def set_up(self) -> None:
        super().set_up()
        dice, cluster = self.dice, self.cluster
        for queue in self.queues:
            drains = queue in self.drained
            for number in range(1 if drains else dice.choice((1, 2))):
                mode = "drain" if drains else "follow"
                beginning = dice.choice(("earliest", "latest")) if not drains else "earliest"
                name = f"{queue}.r{number}"
                reader = Reader(cluster, name, queue, mode=mode, beginning=beginning)
                self.readers.append(reader)
                self.add(reader)
                self.add(Rival(reader))
            if dice.random() < 0.8:
                every_us = dice.choice((20_000, 60_000))
                self.add(
                    Producer(
                        cluster,
                        f"{queue}.b",
                        queue,
                        every_us=every_us,
                        strike=self.nemesis._kill_one,
                    )
                )

    def drain(self) -> list[Any]:
        """Before all that is left goes, readers get to the end of it, at every replica."""
        for reader in self.readers:
            self.read_out(reader)
        return super().drain()

    def read_out(self, reader: Reader) -> None:
        found: list[tuple[BrokerNode, Any]] = []

        def is_served() -> bool:
            home = reader.home()
            found[:] = [] if home is None else [home]
            return bool(found)

        if not self.cluster.run_until(is_served, RECOVERY_MS):
            self.fail(f"nobody serves {reader.queue}")
        node, queue = found[0]
        if reader.told is None:
            # Its node was gone before it could say so, and the cursor is there all the same: who
            # drains by it would come back for it. Nothing of it was shown, or trimmed.
            if reader.mode == "drain" and queue.cursors and reader.cursor in queue.cursors.by_name:
                self.drop(node, queue, reader)
            return
        if queue.cursors is None or reader.cursor not in queue.cursors.by_name:
            self.fail(f"the cursor of {reader.name} is gone")
        position, end = queue.cursors.by_name[reader.cursor].position, queue.readable_end
        for other in self.present().values():
            mirror = other.engine.mirrors.by_number[queue.number]
            reader.read(other, mirror.queue, position, end)
        reader.read_to = max(reader.read_to, end)
        reader.check_whole()
        if reader.mode == "drain":
            reader.settle_to(position)
            self.drop(node, queue, reader)
        for it in self.cluster.ledger.published.values():
            is_seen = it.name in reader.shown.places
            is_due = it.queue == reader.queue and it.sent_us > reader.told_us
            if is_due and it.state == "confirmed" and not is_seen:
                self.fail(f"{it.name!r} was confirmed, and never shown to {reader.name}")

    def drop(self, node: BrokerNode, queue: Any, reader: Reader) -> None:
        node.in_turn(lambda: drop_cursor(node.engine, queue, reader.cursor))
        self.cluster.run_ms(500)


def run_cursors(seed: int, seen: Callable[[World], None] | None = None) -> BrokerResult:
    """Run one schedule; Violation if anything is wrong."""
    return CursorSchedule(seed, seen).run()
