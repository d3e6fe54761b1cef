"""How much a mirror lacks, and how far its copy is: in messages, whatever stood before them."""

from __future__ import annotations

from typing import Any

import pytest

from sim.broker_actors import Drain, Publisher
from sim.broker_faults import set_policy
from sim.test_mended import ON_TWO, QUEUE, Scene
from warren.engine.mirrors import describe

BY_HAND = {"ha-mode": "all", "ha-sync-mode": "manual", "ha-sync-batch-size": 7}


class Some(Drain):
    """Takes so many from the head of the queue."""

    count = 0

    def _get(self) -> None:
        if len(self.left) < self.count:
            super()._get()
        else:
            self.is_done = True


class Copied(Scene):
    """Of 300 messages 140 are gone; a third mirror comes, and has only what comes from then on."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(ON_TWO, **arguments)
        taking = Some(self.cluster, "taking", QUEUE)
        taking.count = 140
        taking.start()
        self.expect(lambda: taking.is_done)
        log = self.mirror(self.the_master).log
        # Not by way of the operations: they would be as good as a copy.
        log.retain_bytes = 0
        log.forget_old()
        set_policy(self.cluster, BY_HAND)
        self.expect(lambda: len(self.mirror(self.the_master).view.learners) == 1)
        (self.learner,) = self.mirror(self.the_master).view.learners
        self.expect(lambda: self.learner in self.told["lacks"])
        more = Publisher(self.cluster, f"{QUEUE}.q", QUEUE, every_us=1_000, window=50)
        more.start()
        self.expect(lambda: more.count >= 50)
        more.stop()
        self.expect(lambda: not self.cluster.ledger.unanswered())
        self.cluster.run_ms(500)

    @property
    def told(self) -> dict[str, Any]:
        return describe(self.mirror(self.the_master))

    @property
    def sync(self) -> dict[str, Any] | None:
        return self.told["syncs"].get(self.learner)

    @property
    def lacks(self) -> int:
        return int(self.told["lacks"].get(self.learner, 0))

    def begin(self) -> None:
        self.the_master.in_turn(self.mirror(self.the_master).sync)


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 3}], ids=["plain", "priorities"])
def test_what_is_lacking_is_counted_in_messages(arguments: dict[str, Any]) -> None:
    scene = Copied(**arguments)
    waiting = scene.mirror(scene.the_master).queue.ready
    lacked = scene.lacks
    assert lacked <= waiting - 50
    # Those that had come, or were on their way, when the mirror began to hear are lacking.
    assert 160 <= lacked <= waiting
    scene.begin()
    seen: list[tuple[int, int]] = []

    def look() -> bool:
        if (sync := scene.sync) is not None:
            seen.append((sync["done"], sync["total"]))
            assert sync["total"] - sync["done"] == scene.lacks
        return len(scene.mirror(scene.the_master).view.in_sync) == 3

    scene.expect(look)
    assert {total for _, total in seen} == {lacked}
    dones = [done for done, _ in seen]
    assert dones == sorted(dones)
    assert any(0 < done < lacked for done in dones)
    assert scene.lacks == 0
    assert len(scene.drain()) == waiting


def test_a_copy_that_was_stopped_goes_on_with_what_is_left() -> None:
    scene = Copied()
    lacked = scene.lacks
    scene.begin()
    scene.expect(lambda: scene.sync is not None and scene.sync["done"] > 20)
    scene.the_master.in_turn(scene.mirror(scene.the_master).cancel_sync)
    scene.cluster.run_ms(500)
    assert scene.sync is None
    left = scene.lacks
    assert 0 < left < lacked - 20
    scene.begin()
    scene.expect(lambda: scene.sync is not None)
    assert scene.sync is not None
    assert scene.sync["total"] == left
    scene.expect(lambda: len(scene.mirror(scene.the_master).view.in_sync) == 3)
    assert scene.lacks == 0
