"""Who starts with a damaged log tells the others so, and nobody gets what is missing in it."""

from __future__ import annotations

import pytest

from sim.broker_faults import set_policy
from sim.broker_node import BrokerNode
from sim.run_broker import content_of
from sim.test_mended import EVERYWHERE, Scene
from sim.wide_mutants import mutant
from warren.store.start_marks import DAMAGE_MARK, is_marked

ALONE = {"ha-mode": "exactly", "ha-params": 1, "ha-sync-mode": "automatic"}
#: Few enough that no checkpoint is written before the damage.
COUNT = 20


class Damaged(Scene):
    """A replica dies, and its disk spoils a message of those that no checkpoint has."""

    def __init__(self, policy: dict[str, object], which: int = COUNT // 2) -> None:
        super().__init__(policy, COUNT)
        self.node: BrokerNode = (self.others or [self.the_master])[0]
        self.lost, place = sorted(self.slots(self.node).items())[which]
        self.node.crash()
        self.spoil(self.node, place)

    def is_in_sync(self) -> bool:
        """All nodes are, with the same messages."""
        nodes = list(self.cluster.nodes.values())
        if self.master is None or set(self.mirror(self.the_master).view.in_sync) != {
            node.name for node in nodes
        }:
            return False
        mirrors = [self.mirror(node) for node in nodes]
        if len({it.log.applied_index for it in mirrors}) > 1:
            return False
        assert len({tuple(content_of(n.store.journal, self.mirror(n).queue)) for n in nodes}) == 1
        return True


@pytest.mark.parametrize("which", [0, 1, COUNT // 2])
def test_operations_behind_a_missing_one_are_sent_to_nobody(which: int) -> None:
    """They are with the only replica there is, and their indexes would be those of others."""
    scene = Damaged(ALONE, which)
    scene.node.start()
    scene.expect(lambda: scene.master is scene.node)
    assert scene.mirror(scene.node).log.is_broken
    set_policy(scene.cluster, EVERYWHERE)
    scene.expect(scene.is_in_sync)
    slots = [row[0] for row in scene.mirror(scene.node).queue.walk()]
    assert scene.lost not in slots
    assert slots[-1] > scene.lost
    scene.mirror(scene.node).queue.check()


def is_damaged_at_the_next_start(scene: Damaged) -> bool:
    """The node has nobody to tell, writes a checkpoint of what is left, and dies."""
    for node in scene.cluster.nodes.values():
        node.crash()
    scene.node.start()
    assert scene.node.product.rings.are_damaged
    upkeep = scene.node.store.upkeep
    scene.node.in_turn(upkeep.begin)
    scene.expect(lambda: not upkeep.is_busy)
    scene.node.crash()
    scene.node.start()
    assert not scene.node.store.damages
    return bool(scene.node.product.rings.are_damaged)


def test_damage_is_known_until_it_is_told() -> None:
    scene = Damaged(EVERYWHERE)
    assert is_damaged_at_the_next_start(scene)
    for node in scene.cluster.nodes.values():
        node.start()
    scene.expect(scene.is_in_sync)
    scene.expect(lambda: not is_marked(scene.node.platter, DAMAGE_MARK))
    scene.node.crash()
    scene.node.start()
    assert not scene.node.product.rings.are_damaged
    scene.expect(scene.is_in_sync)
    # All nodes were down at once, so what is transient has gone.
    assert scene.drain() == [
        it.body for it in scene.cluster.ledger.published.values() if it.persistent
    ]


def test_the_mark_stays_until_the_copy_that_began_anew_is_on_the_disk() -> None:
    scene = Damaged(EVERYWHERE)
    node = scene.node
    node.sync_max_us = 1_000_000
    node.start()
    began = scene.mirror(node).log
    scene.expect(lambda: not began.is_broken)
    assert is_marked(node.platter, DAMAGE_MARK)
    node.crash()
    node.start()
    scene.expect(scene.is_in_sync)


def test_damage_that_is_forgotten_is_missed() -> None:
    with mutant("ForgetsDamage"):
        assert not is_damaged_at_the_next_start(Damaged(EVERYWHERE))
