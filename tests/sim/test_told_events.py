"""What nodes tell of the rings of mirrored queues happened, and is told by who saw it."""

from __future__ import annotations

from typing import Any

from sim.test_mended import EVERYWHERE, Scene


def test_a_node_that_starts_tells_nothing_of_what_it_was_before() -> None:
    """It goes through the views in which it was the master; others have told of those."""
    scene = Scene(EVERYWHERE, count=20)
    master, mirror = scene.the_master, scene.others[0]

    def in_sync() -> int:
        return len(scene.mirror(scene.the_master).view.in_sync) if scene.master else 0

    mirror.crash()
    scene.expect(lambda: in_sync() == 2)
    mirror.start()
    scene.expect(lambda: in_sync() == 3)
    master.crash()
    scene.expect(lambda: scene.master not in {None, master})
    told: list[tuple[str, Any]] = []

    def listen() -> None:
        master.engine.listeners.append(lambda event, details: told.append((event, details)))

    master._equip = listen  # type: ignore[method-assign]
    master.start()
    scene.expect(lambda: in_sync() == 3)
    assert [it for it in told if it[0].endswith("synchronised")] == []
