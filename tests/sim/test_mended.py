"""A master cannot read what others have: they are asked for it, and nothing is lost."""

from __future__ import annotations

import random
from typing import Any

import pytest

from sim.broker_actors import Consumer, Declarer, Drain, Publisher
from sim.broker_cluster import BrokerCluster
from sim.broker_faults import set_policy
from sim.broker_ledger import name_of
from sim.broker_node import BrokerNode
from sim.run import settings_for
from warren.store.records import RECORD_HEADER_BYTES, segment_name

QUEUE = "ha.1"
EVERYWHERE = {"ha-mode": "all", "ha-sync-mode": "automatic"}
ON_TWO = {"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "automatic"}
SOON_MS = 20_000


class Scene:
    """Three brokers and a queue with a backlog that is paged out on all of them."""

    cluster_type: type[BrokerCluster] = BrokerCluster

    def __init__(self, policy: dict[str, Any], count: int = 300, **arguments: Any) -> None:
        self.cluster = self.cluster_type(7, 3, settings=settings_for(random.Random(7)))
        self.cluster.start()
        for node in self.cluster.nodes.values():
            # Clients of a plain queue are reminded of what had to wait for the log.
            node.reads_on = True
        self.cluster.found()
        set_policy(self.cluster, policy)
        self.declare(QUEUE, arguments)
        self.expect(lambda: self.master is not None)
        replicas = policy.get("ha-params", 3)
        self.expect(lambda: len(self.mirror(self.the_master).view.in_sync) == replicas)
        publisher = Publisher(self.cluster, f"{QUEUE}.p", QUEUE, every_us=1_000, window=50)
        publisher.start()
        self.expect(lambda: self.cluster.ledger.counts["confirmed"] >= count)
        publisher.stop()
        self.expect(lambda: not self.cluster.ledger.unanswered())
        # Indexes are written first, and slots let go of when those are on the disk.
        for _ in range(3):
            self.cluster.run_ms(100)
            for node in self.cluster.nodes.values():
                node.in_turn(lambda node=node: self.page_out(node))

    def declare(self, name: str, arguments: dict[str, Any]) -> None:
        declarer = Declarer(self.cluster, [name], {name: arguments})
        declarer.start()
        self.expect(lambda: not declarer.queues)
        declarer.stop()
        declarer.close()

    def expect(self, is_so: Any) -> None:
        assert self.cluster.run_until(is_so, SOON_MS)

    def page_out(self, node: BrokerNode) -> None:
        if self.mirror(node) is not None:
            self.mirror(node).queue.page_out(0)

    def mirror(self, node: BrokerNode) -> Any:
        known = node.engine.vhosts["/"].queues[QUEUE]
        return node.engine.mirrors.by_number.get(known.number)

    @property
    def master(self) -> BrokerNode | None:
        for node in self.cluster.nodes.values():
            mirror = self.mirror(node)
            if node.is_up and mirror is not None and mirror.log.acts:
                return node
        return None

    @property
    def the_master(self) -> BrokerNode:
        assert self.master is not None
        return self.master

    @property
    def others(self) -> list[BrokerNode]:
        """Those that are in sync, in the order in which they are asked."""
        in_sync = self.mirror(self.the_master).view.in_sync
        return [self.cluster.nodes[name] for name in in_sync if name != self.the_master.name]

    def slots(self, node: BrokerNode) -> dict[int, int]:
        """Slot -> place of what is only in the log."""
        return {row[0]: row[1] for row in self.mirror(node).queue.walk() if row[7] is None}

    def spoil(self, node: BrokerNode, place: int) -> None:
        """A record of the log does not check any more."""
        name = segment_name(node.store.journal.segment_first(place >> 32))
        node.platter.flip_bit(name, ((place & 0xFFFFFFFF) + RECORD_HEADER_BYTES + 3) * 8)

    def drain(self, queue: str = QUEUE) -> list[bytes]:
        drain = Drain(self.cluster, f"drain.{queue}", queue)
        drain.start()
        self.expect(lambda: drain.is_done)
        return drain.left

    def check_drained(self) -> None:
        """Everything comes, in order."""
        left = [it.body for it in self.cluster.ledger.published.values() if not it.is_settled]
        assert self.drain() == left

    def mended(self, node: BrokerNode) -> int:
        return int(node.engine.mirrors.mended)


def test_messages_that_cannot_be_read() -> None:
    scene = Scene(EVERYWHERE)
    master, slots = scene.the_master, scene.slots(scene.the_master)
    spoiled = [0, 1, 2, 70, 200, max(slots)]
    for slot in spoiled:
        scene.spoil(master, slots[slot])
    scene.check_drained()
    assert scene.mended(master) == len(spoiled)
    assert scene.mirror(master).queue.unreadable == 0
    scene.mirror(master).queue.check()


def test_consumers_wait_for_it() -> None:
    """Deliveries are held at the place, and go on in order; publishes and acks go on."""
    scene = Scene(EVERYWHERE)
    master, slots = scene.the_master, scene.slots(scene.the_master)
    for slot in (0, 5, 150):
        scene.spoil(master, slots[slot])
    consumer = Consumer(scene.cluster, f"{QUEUE}.c", QUEUE, prefetch=20, gets=False, is_alone=True)
    publisher = Publisher(scene.cluster, f"{QUEUE}.q", QUEUE, every_us=20_000, window=5)
    publisher.start()
    consumer.start()
    scene.expect(lambda: scene.mended(master) == 3)
    publisher.stop()
    scene.expect(lambda: not scene.cluster.ledger.unanswered())
    consumer.stop()
    consumer.close()
    scene.cluster.run_ms(500)
    left = scene.drain()
    scene.cluster.ledger.check_lost({QUEUE: set(map(name_of, left))})


def test_it_stays_on_the_disk() -> None:
    """What has come from another replica is in the log again, and is not asked for twice."""
    scene = Scene(EVERYWHERE)
    master, slots = scene.the_master, scene.slots(scene.the_master)
    scene.spoil(master, slots[0])
    mirror = scene.mirror(master)
    master.in_turn(lambda: mirror.healing.ask(0))
    scene.expect(lambda: scene.mended(master) == 1)
    scene.cluster.run_ms(200)
    assert scene.mirror(master).queue.walk()[0][1] != slots[0]
    master.in_turn(lambda: mirror.queue.page_out(0))
    assert scene.slots(master)[0] != slots[0]
    scene.check_drained()
    assert scene.mended(master) == 1


def test_an_index_that_cannot_be_read() -> None:
    scene = Scene(EVERYWHERE, count=700)
    master = scene.the_master
    queue = scene.mirror(master).queue
    spilled = [row for row in queue.index_places() if row[2]]
    assert spilled
    scene.spoil(master, spilled[0][1])
    total = queue.total_bytes
    scene.check_drained()
    assert scene.mended(master) == 128
    assert total > 0
    assert queue.total_bytes == queue.ready_bytes == 0
    queue.check()


def test_a_mirror_keeps_what_its_index_cannot_tell() -> None:
    """It follows what leaves; as the master it asks the others for the rest."""
    scene = Scene(EVERYWHERE, count=700)
    mirror = scene.others[0]
    spilled = [row for row in scene.mirror(mirror).queue.index_places() if row[2]]
    scene.spoil(mirror, spilled[0][1])
    first = spilled[0][0]
    bodies = [it.body for it in scene.cluster.ledger.published.values()]
    # The chunk is come to, and not gone through.
    drain = Drain(scene.cluster, "half", QUEUE)
    drain.start()
    scene.expect(lambda: len(drain.left) >= first + 20)
    drain.stop()
    drain.close()
    scene.cluster.run_ms(300)
    had = len(drain.left)
    scene.the_master.crash()
    scene.cluster.run_ms(3_000)
    if scene.the_master is not mirror:
        name = scene.the_master
        name.in_turn(lambda: scene.mirror(name).hand_over(mirror.name))
        scene.expect(lambda: scene.master is mirror)
    left = scene.drain()
    assert [body for body in bodies if body not in drain.left][-len(left) :] == left
    assert len(left) >= len(bodies) - had - 1
    assert scene.mended(mirror) > 50


def test_the_next_one_is_asked() -> None:
    scene = Scene(EVERYWHERE)
    master, first = scene.the_master, scene.others[0]
    scene.spoil(master, scene.slots(master)[10])
    scene.spoil(first, scene.slots(first)[10])
    scene.check_drained()
    assert scene.mended(master) == 1


def test_what_nobody_can_read() -> None:
    """It is lost, as it is in a queue without mirrors; the others come."""
    scene = Scene(EVERYWHERE)
    for node in scene.cluster.nodes.values():
        scene.spoil(node, scene.slots(node)[10])
    bodies = [it.body for it in scene.cluster.ledger.published.values()]
    del bodies[10]
    assert scene.drain() == bodies
    assert scene.mirror(scene.the_master).queue.unreadable == 1


def test_nobody_else_is_in_sync() -> None:
    scene = Scene({"ha-mode": "exactly", "ha-params": 1})
    master = scene.the_master
    scene.spoil(master, scene.slots(master)[10])
    bodies = [it.body for it in scene.cluster.ledger.published.values()]
    del bodies[10]
    assert scene.drain() == bodies
    assert scene.mirror(master).queue.unreadable == 1


def test_who_has_it_goes_while_it_is_asked() -> None:
    """The master waits until the view says who is in sync, and asks whoever is left."""
    scene = Scene(EVERYWHERE)
    master, first = scene.the_master, scene.others[0]
    scene.spoil(master, scene.slots(master)[10])
    first.crash()
    scene.check_drained()
    assert scene.mended(master) == 1


def test_a_copy_is_not_full_without_it() -> None:
    scene = Scene(ON_TWO)
    master = scene.the_master
    slots = scene.slots(master)
    for slot in (0, 10, 131):
        scene.spoil(master, slots[slot])
    # The third cannot be given the operations, which would be as good as a copy.
    log = scene.mirror(master).log
    log.retain_bytes = 0
    log.forget_old()
    set_policy(scene.cluster, EVERYWHERE)
    scene.expect(lambda: len(scene.mirror(master).view.in_sync) == 3)
    assert scene.mended(master) == 3
    for node in scene.cluster.nodes.values():
        assert [row[0] for row in scene.mirror(node).queue.walk()] == sorted(slots)


@pytest.mark.parametrize("how", ["expired", "too many", "rejected"])
def test_the_dead(how: str) -> None:
    """A dead message that cannot be read has a letter all the same, in order."""
    arguments: dict[str, Any] = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
    }
    if how == "expired":
        arguments["x-message-ttl"] = 5_000
    scene = Scene(EVERYWHERE, **arguments)
    scene.declare("dead", {})
    master, slots = scene.the_master, scene.slots(scene.the_master)
    queue = scene.mirror(master).queue
    for slot in (0, 10, 131):
        scene.spoil(master, slots[slot])
    bodies = [it.body for it in scene.cluster.ledger.published.values()]
    if how == "rejected":
        # As what consumers of another master hold: it was never in memory here.
        queue.flag(sorted(slots))
        master.in_turn(lambda: queue.adopt(sorted(slots)))
        for slot in sorted(slots):
            master.in_turn(lambda slot=slot: queue.settle("reject", slot))
    elif how == "too many":
        master.in_turn(lambda: queue.configure(dead_letters=True, max_length=0))
    assert queue.ready == len(bodies) or how != "expired"
    scene.expect(lambda: queue.ready + queue.unacked + queue.buried + queue.leaving == 0)
    for it in scene.cluster.ledger.published.values():
        it.queue = "dead"
    assert scene.drain("dead") == bodies
    assert scene.mended(master) == 3
    queue.check()
