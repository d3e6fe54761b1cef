"""A replaced master takes back what others do not have, and it comes again at the same place."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from store_bench import ADDRESS
from store_model import Shape, header_of
from store_node import Node, Plan

from warren.engine.mirror_log import MirrorLog
from warren.model.ports import LinkPort, TurnClock
from warren.queue.queue import Queue
from warren.replication.lineage import Lineage
from warren.replication.types import Batch
from warren.session.channel import Channel, Consumer
from warren.session.outlet import Outlet
from warren.store.faulty_disk import FaultyDisk
from warren.wire.content import make_message

#: Slots of a chunk of a queue.
CHUNK = 128
#: As in `ring_operations.pxd`.
OP_VIEW = 16
VIEW_PROMOTED = 1
NOW_MS = 1_000


class Ring:
    """Stands in for the core: nobody else is there, and commits are made by hand."""

    is_congested = False

    def appended(self, _batch: Batch, _now_ms: int) -> None: ...

    def persisted(self, *_told: Any) -> None: ...


@dataclass
class Replica:
    """One queue, its log, and what ought to be in it."""

    node: Node
    queue: Queue
    log: MirrorLog

    def publish(self, names: list[bytes]) -> None:
        for name in names:
            message = make_message(ADDRESS, header_of(True, 0, len(name)), name)
            assert self.queue.offer(message, NOW_MS)
            self.node.journal.finish_publish(message)
        self.node.journal.finish_turn()

    def settle(self, count: int) -> None:
        """As a client does that gets messages and acknowledges them."""
        while count:
            got = self.queue.get(False, NOW_MS)
            if got == 0:
                self.commit()
                continue
            assert got is not None
            self.queue.settle("ack", got[1])
            count -= 1
        self.node.journal.finish_turn()

    def consume(self) -> None:
        """From here on what is published goes to a consumer, if the replicas have it."""
        channel = Channel(None, None, Outlet(LinkPort(), TurnClock()), 1, 1000)
        channel.consumers["c"] = Consumer(channel, "c", self.queue, False, False, 0, {}, 0)
        self.queue.add_consumer(channel.consumers["c"])

    def commit(self) -> None:
        self.node.journal.finish_turn()
        self.log.apply_to(self.log.last_index)

    def change_masters(self) -> None:
        """Another becomes master, and this one again before the other has said anything."""
        self.log.flush()
        self.log.stand_down()
        self.commit()
        self.log.begin_acting()

    @property
    def bodies(self) -> list[bytes]:
        messages = [row[-1] for row in self.queue.walk()]
        return [bytes(message.body) for message in messages if message is not None]


@pytest.fixture
def replica() -> Iterator[Replica]:
    node = Node(FaultyDisk(1), Plan(1 << 20), NOW_MS, NOW_MS)
    node.make(Shape("q"), 1)
    queue = node.queues[1]
    log = MirrorLog(queue, node.journal, TurnClock(), 1)
    queue.join_ring(log)
    log.replica = Ring()
    log.begin_acting()
    yield Replica(node, queue, log)
    log.replica = None


def names_of(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


@pytest.mark.parametrize("settled", [100, 99])
@pytest.mark.parametrize("uncommitted", [1, 27, 28, 29, 50, 156, 157, 400])
def test_what_was_not_committed_is_there_afterwards(
    replica: Replica, settled: int, uncommitted: int
) -> None:
    """In whichever chunk the last of them was, and with all chunks before it empty or not."""
    replica.publish(names_of(0, 100))
    replica.commit()
    replica.settle(settled)
    replica.commit()
    replica.publish(names_of(100, uncommitted))
    replica.change_masters()
    assert replica.bodies == names_of(settled, 100 - settled + uncommitted)
    replica.queue.check()
    replica.publish(names_of(100 + uncommitted, CHUNK))
    replica.commit()
    assert replica.bodies == names_of(settled, 100 - settled + uncommitted + CHUNK)
    replica.settle(100 - settled + uncommitted + CHUNK)
    replica.commit()
    assert replica.bodies == []
    replica.queue.check()


@pytest.mark.parametrize("seed", range(20))
def test_masters_that_change_often_lose_nothing(replica: Replica, seed: int) -> None:
    dice = random.Random(seed)
    expected: list[bytes] = []
    published = 0
    for _ in range(40):
        count = dice.choice((1, 5, 60, 127, 128, 129, 300))
        replica.publish(names_of(published, count))
        expected += names_of(published, count)
        published += count
        if dice.random() < 0.3:
            replica.commit()
            count = dice.choice((0, 1, len(expected) // 2, len(expected)))
            replica.settle(count)
            del expected[:count]
        if dice.random() < 0.5:
            replica.change_masters()
            assert replica.bodies == expected
            replica.queue.check()


def follow(log: MirrorLog, *operations: bytes) -> None:
    """What another master has appended, and committed."""
    first = log.last_index + 1
    last = log.last_index + len(operations)
    log.append(Batch(first, last, 2, b"".join(operations)))
    log.apply_to(last)


def promoted_view() -> bytes:
    return struct.pack("<BIQB", OP_VIEW, 9, 2, VIEW_PROMOTED)


def flagged_below(replica: Replica) -> int:
    (level,) = replica.queue.watermarks()
    assert level is not None
    return level[3]


def test_a_list_of_deliveries_that_was_cut_off_is_forgotten(replica: Replica) -> None:
    """Its master wanted to hand over, and could tell nobody: who was promoted flags all."""
    replica.publish(names_of(0, 3))
    replica.commit()
    replica.settle(1)
    replica.commit()
    committed = replica.log.last_index
    replica.log.pause()
    replica.log.flush()
    replica.log.stand_down()
    replica.log.truncate(committed)
    follow(replica.log, promoted_view())
    assert flagged_below(replica) == 3


def stand_down_after_telling(replica: Replica) -> None:
    """A master whose list of deliveries is committed is replaced."""
    replica.publish(names_of(0, 3))
    replica.commit()
    replica.settle(1)
    replica.commit()
    replica.log.pause()
    replica.log.flush()
    replica.commit()
    replica.log.stand_down()


def test_a_list_of_deliveries_that_all_have_says_what_is_flagged(replica: Replica) -> None:
    stand_down_after_telling(replica)
    follow(replica.log, promoted_view())
    assert flagged_below(replica) == 0


def test_a_copy_that_begins_anew_knows_no_list_of_deliveries(replica: Replica) -> None:
    stand_down_after_telling(replica)
    replica.log.reset(replica.log.last_index, Lineage(((2, 1),)), replica.log.image_head())
    follow(replica.log, promoted_view())
    assert flagged_below(replica) == 3


def test_what_was_cut_off_leaves_nothing_open(replica: Replica) -> None:
    """Others stand there afterwards, which no other replica knows to be open."""
    replica.publish(names_of(0, 3))
    replica.commit()
    replica.settle(3)
    replica.commit()
    replica.consume()
    replica.publish(names_of(3, 4))
    assert replica.queue.watermarks()[0][:2] == (7, 7)
    replica.log.stand_down()
    assert replica.queue.watermarks()[0][:2] == (3, 3)
