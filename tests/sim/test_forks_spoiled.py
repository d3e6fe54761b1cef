"""A fork cannot read what its disk should have: the queue keeps it, and what is gone is told."""

from __future__ import annotations

from typing import Any

import pytest

from sim.broker_actors import Consumer, Publisher
from sim.broker_client import method
from sim.broker_ledger import Publish, name_of
from sim.run_autoheal import ForkCluster
from sim.test_mended import EVERYWHERE, QUEUE, Scene
from warren.engine.fork_merging import MESSAGES


class _Here(ForkCluster):
    """Clients come to one node only, if one is named."""

    clients_at: str | None = None


class Taker(Consumer):
    """Acknowledges all that it gets; others may keep the only one that they are given."""

    def _settle(self, life: int, tag: int, it: Publish) -> None:
        if life == self.life:
            it.settle(self.world.now_us)
            self.send(method(1, "basic.ack", delivery_tag=tag))


class ForkScene(Scene):
    """A node is cut off from the two others, and serves a fork of the queue there."""

    cluster_type = _Here
    cluster: _Here

    def __init__(self, new: int = 100) -> None:
        super().__init__(EVERYWHERE, 200)
        self.old = self.unsettled()
        self.alone: Any = self.the_master
        self.events: list[dict[str, Any]] = []
        self.alone.engine.listeners.append(self._heard)
        others = [name for name in self.cluster.nodes if name != self.alone.name]
        self.cluster.network.part([self.alone.name], others)
        for name in others:
            self.cluster.nodes[name].is_open = False
        self.expect(lambda: self.fork is not None)
        publisher = Publisher(self.cluster, f"{QUEUE}.f", QUEUE, every_us=1_000, window=50)
        publisher.start()
        confirmed = self.cluster.ledger.counts["confirmed"] + new
        self.expect(lambda: self.cluster.ledger.counts["confirmed"] >= confirmed)
        publisher.stop()
        self.expect(lambda: not self.cluster.ledger.unanswered())
        publisher.close()
        self.new = self.unsettled() - self.old
        for _ in range(3):
            self.cluster.run_ms(100)
            self.alone.in_turn(lambda: self.fork.page_out(0))

    def _heard(self, event: str, details: dict[str, Any]) -> None:
        if event == "queue.fork_merged":
            self.events.append(details)

    def unsettled(self) -> set[bytes]:
        """In a fork, as in any plain queue, others do not outlive a restart."""
        published = self.cluster.ledger.published.values()
        return {it.body for it in published if it.persistent and not it.is_settled}

    @property
    def fork(self) -> Any:
        forks = self.alone.engine.mirrors.forks.open
        return next((fork.queue for fork in forks.values()), None)

    def places(self) -> dict[int, int]:
        """Slot -> place of what the fork has only in the log."""
        return {row[0]: row[1] for row in self.fork.walk() if row[7] is None}

    def consume(self, count: int) -> None:
        settled = len(self.unsettled()) - count
        consumer = Taker(self.cluster, f"{QUEUE}.c", QUEUE, prefetch=1, gets=False, is_alone=True)
        consumer.start()
        self.expect(lambda: len(self.unsettled()) <= settled)
        consumer.stop()
        consumer.close()
        self.cluster.run_ms(200)

    def heal(self, by_restart: bool) -> list[bytes]:
        """What is in the queue when the fork is merged."""
        if by_restart:
            self.alone.crash()
            self.alone.start()
            self.alone.engine.listeners.append(self._heard)
        self.cluster.network.heal()
        self.expect(lambda: all(node.is_ready for node in self.cluster.nodes.values()))
        self.expect(lambda: not self.alone.has_forks)
        self.expect(lambda: self.master is not None)
        return self.drain()


def spoil(scene: ForkScene, slots: list[int]) -> None:
    places = scene.places()
    for slot in slots:
        scene.spoil(scene.alone, places[slot])


@pytest.mark.parametrize("by_restart", [False, True])
def test_what_a_fork_cannot_read_does_not_count_as_acknowledged(by_restart: bool) -> None:
    """The others have it: it left the queue there, too, as if a client had let go of it."""
    scene = ForkScene()
    spoil(scene, [2, 5])
    spoiled = scene.unsettled()
    scene.consume(20)
    assert scene.fork.unreadable == 2
    left = {name_of(body) for body in scene.heal(by_restart)}
    missing = {name_of(body) for body in scene.unsettled() & spoiled} - left
    assert not missing
    assert scene.events[0]["unreadable"] == 0


@pytest.mark.parametrize("by_restart", [False, True])
def test_messages_that_cannot_be_given_back_are_counted_and_told(by_restart: bool) -> None:
    """They were published to the fork, and nobody else has them."""
    scene = ForkScene()
    base = next(iter(scene.alone.fork_files.notes())).bases[0]
    slots = sorted(slot for slot in scene.places() if slot >= base)
    spoil(scene, slots[5:8])
    left = {name_of(body) for body in scene.heal(by_restart)}
    assert {name_of(body) for body in scene.old} <= left
    assert len({name_of(body) for body in scene.new} - left) == 3
    assert scene.events[0]["unreadable"] == 3
    assert scene.alone.engine.mirrors.forks.merging.unreadable_messages == 3


def test_more_of_them_than_go_at_a_time_keep_nothing_else_back() -> None:
    """Those behind them were forgotten with the fork."""
    scene = ForkScene(300)
    base = next(iter(scene.alone.fork_files.notes())).bases[0]
    slots = sorted(slot for slot in scene.places() if slot >= base)
    spoil(scene, slots[: MESSAGES + 10])
    left = {name_of(body) for body in scene.heal(by_restart=False)}
    assert scene.events[0]["unreadable"] == MESSAGES + 10
    assert scene.events[0]["messages"] >= 190
    assert len({name_of(body) for body in scene.new} & left) >= 150
