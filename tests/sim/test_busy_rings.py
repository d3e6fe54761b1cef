"""What a ring costs its nodes while messages come one by one."""

from __future__ import annotations

from typing import Any

from sim.broker_actors import Publisher
from sim.test_mended import EVERYWHERE, QUEUE, Scene


def deadlines(scene: Scene, node: Any) -> int:
    """How many the mirror of a node has in the heap of its engine."""
    ticks = scene.mirror(node)._tick
    return sum(timer.action == ticks for _, _, timer in node.engine.timers._heap)


def test_a_replica_waits_for_one_deadline_at_a_time() -> None:
    scene = Scene(EVERYWHERE, count=10)
    publisher = Publisher(scene.cluster, f"{QUEUE}.q", QUEUE, every_us=1_000, window=50)
    publisher.start()
    for _ in range(50):
        scene.cluster.run_ms(37)
        assert all(deadlines(scene, node) <= 1 for node in scene.cluster.nodes.values())
    publisher.stop()
    scene.expect(lambda: not scene.cluster.ledger.unanswered())
