"""Who restarts reads over what it has, and counts as in sync when that is all there."""

from __future__ import annotations

from typing import Any

from sim.test_mended import EVERYWHERE, Scene
from sim.wide_mutants import mutant


class Restarted(Scene):
    """A mirror has stopped, its disk has spoiled what a checkpoint covers, and it is back."""

    def __init__(self) -> None:
        super().__init__(EVERYWHERE)
        self.node = self.others[0]
        slots = self.slots(self.node)
        self.spoiled = [0, 1, 70, 200, max(slots)]
        self.node.stop()
        self.expect(lambda: not self.node.is_up)
        for slot in self.spoiled:
            self.spoil(self.node, slots[slot])
        self.expect(lambda: self.node.name not in self.mirror(self.the_master).view.in_sync)
        self.node.start()

    @property
    def is_in_sync(self) -> bool:
        return self.node.name in self.mirror(self.the_master).view.in_sync


def test_it_is_mended_before_it_counts() -> None:
    scene = Restarted()
    scene.expect(lambda: scene.is_in_sync)
    assert scene.mended(scene.node) == len(scene.spoiled)
    # It is the only one left of those that were in sync.
    for node in (scene.the_master, *scene.others):
        if node is not scene.node:
            node.crash()
            node.start()
    scene.expect(lambda: scene.master is not None)
    scene.check_drained()
    assert scene.mirror(scene.the_master).queue.unreadable == 0
    scene.mirror(scene.the_master).queue.check()


def waits() -> bool:
    """Whether a replica waits for what has not been read; then it is read."""
    scene = Restarted()
    reads: list[Any] = []
    scrub = scene.node.engine.mirrors.scrub
    scrub.aside = lambda pieces, done: reads.append((pieces, done))
    scene.cluster.run_ms(3_000)
    waited = not scene.is_in_sync
    scrub.aside = None
    for pieces, done in reads:
        data = [scrub._read_at(*piece) for piece in pieces]
        scene.node.in_turn(lambda done=done, data=data: done(data))
    scene.expect(lambda: scene.is_in_sync)
    return waited


def test_what_is_not_read_does_not_count() -> None:
    assert waits()
    with mutant("CountsUnread"):
        assert not waits()


def test_a_master_mends_unasked() -> None:
    """All were down, so all are in sync: nobody waits for the reading."""
    scene = Scene(EVERYWHERE)
    slots = {node: scene.slots(node) for node in scene.cluster.nodes.values()}
    for node in scene.cluster.nodes.values():
        node.stop()
    scene.expect(lambda: not any(node.is_up for node in scene.cluster.nodes.values()))
    # Each has lost others.
    for number, (node, places) in enumerate(slots.items()):
        for slot in range(number, max(places), 50):
            scene.spoil(node, places[slot])
    for node in scene.cluster.nodes.values():
        node.start()
    scene.expect(lambda: scene.master is not None)
    nodes = scene.cluster.nodes.values()
    scene.expect(lambda: not any(node.engine.mirrors.scrub.is_busy for node in nodes))
    assert all(scene.mended(node) >= 5 for node in nodes)
    # Without those that are not to outlive all nodes.
    count = scene.mirror(scene.the_master).queue.ready
    assert count > 250
    assert len(scene.drain()) == count
    assert all(scene.mirror(node).queue.unreadable == 0 for node in nodes)


def test_an_index_is_missing() -> None:
    """A chunk is only in the log: it is known which messages it has, and each is asked for."""
    scene = Scene(EVERYWHERE, count=700)
    mirror = scene.others[0]
    spilled = [row for row in scene.mirror(mirror).queue.index_places() if row[2]]
    scene.spoil(mirror, spilled[0][1])
    mirror.in_turn(mirror.engine.mirrors.scrub.go_through)
    scene.expect(lambda: scene.mended(mirror) == 128)
    scene.mirror(mirror).queue.check()
    scene.check_drained()


def test_it_is_read_again_later() -> None:
    """Disks do not wait for restarts."""
    scene = Scene(EVERYWHERE)
    mirror = scene.others[0]
    scrub = mirror.engine.mirrors.scrub
    scene.spoil(mirror, scene.slots(mirror)[10])
    mirror.in_turn(scrub.go_through)
    scene.expect(lambda: scene.mended(mirror) == 1)
    scene.expect(lambda: not scrub.is_busy)


def test_nobody_has_it() -> None:
    """It stays where it is, and counts as lost when its turn comes; the others come."""
    scene = Scene(EVERYWHERE)
    for node in scene.cluster.nodes.values():
        scene.spoil(node, scene.slots(node)[10])
    for node in scene.cluster.nodes.values():
        node.in_turn(node.engine.mirrors.scrub.go_through)
    nodes = scene.cluster.nodes.values()
    scene.expect(lambda: not any(node.engine.mirrors.scrub.is_busy for node in nodes))
    bodies = [it.body for it in scene.cluster.ledger.published.values()]
    del bodies[10]
    assert scene.drain() == bodies
