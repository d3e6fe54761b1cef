"""What the log is spared: bodies written twice, an ack at a time, reading what nobody asks for."""

from __future__ import annotations

from collections import Counter

import pytest
from store_bench import Bench
from store_model import Shape, body_of
from store_node import Node, Plan

from warren.store.faulty_disk import FaultyDisk
from warren.store.records import SEGMENT_HEADER_BYTES, Kind, segment_first_sequence
from warren.store.scan import scan
from warren.store.scanner import Record
from warren.store.upkeep import UpkeepSettings

QUEUES = 10


def write(bench: Bench) -> None:
    bench.turn()
    bench.step()


def checkpoint(bench: Bench) -> None:
    bench.begin_checkpoint()
    while bench.node.upkeep.is_busy:
        bench.step()
        bench.tick()


def take(bench: Bench, queue_id: int, count: int) -> None:
    """Take and acknowledge so many, in one turn as far as the log allows."""
    while count:
        if bench.get(queue_id, False) is False:
            write(bench)
        else:
            count -= 1
    for key in sorted(bench.by_slot):
        bench.settle(*key, "ack")
    bench.turn()


def records(disk: FaultyDisk) -> list[Record]:
    return list(scan(disk))


def copies(disk: FaultyDisk, body: bytes) -> int:
    return sum(disk.read(name).count(body) for name in disk.names())


def test_a_body_is_there_once_also_after_compaction() -> None:
    never = 1 << 30
    settings = UpkeepSettings(
        checkpoint_bytes=never,
        dead_bytes=never,
        patience_ticks=never,
        compact_below=0.9,
        waste_bytes=0,
    )
    plan = Plan(1 << 14, 7, settings)
    bench = Bench(FaultyDisk(1), plan)
    queues = [bench.create(Shape(f"q{n}")) for n in range(QUEUES)]
    bench.publish(queues, True, 1000)
    kept = body_of(1, 1000)
    # Much that soon leaves stands in the same segment.
    for _ in range(10):
        bench.publish(queues[:1], True, 1000)
    write(bench)
    first = min(name for name in bench.disk.names() if name.endswith(".wal"))
    assert copies(bench.disk, kept) == 1
    # One of its queues is done with it; nine need it on.
    take(bench, queues[0], 11)
    write(bench)
    bench.node.log.roll()
    bench.publish(queues[1:2], True, 10)
    write(bench)
    for _ in range(50):
        bench.tick()
        bench.step()
    assert bench.node.upkeep.compacted_segments > 0
    moved = [record for record in records(bench.disk) if record.kind == Kind.MOVED]
    assert len(moved) == 1
    assert int.from_bytes(moved[0].payload[:4], "little") == QUEUES - 1
    checkpoint(bench)
    assert first not in bench.disk.names()
    assert copies(bench.disk, kept) == 1
    bench.disk.cut_power()
    bench.restart()
    for queue_id in queues[1:]:
        take(bench, queue_id, 1)
    assert copies(bench.disk, kept) == 1


def test_acks_are_written_as_ranges() -> None:
    bench = Bench(FaultyDisk(1), Plan(1 << 22, 7))
    (queue_id,) = [bench.create(Shape("q"))]
    for _ in range(1000):
        bench.publish([queue_id], True, 20)
    write(bench)
    take(bench, queue_id, 1000)
    write(bench)
    gone = [record for record in records(bench.disk) if record.kind == Kind.GONE]
    # One record of one run: index, first slot, count.
    assert [len(record.payload) for record in gone] == [24]


def test_a_queue_that_is_consumed_as_it_fills_costs_next_to_nothing() -> None:
    """Beside its message there is one short record for all of a turn's acks, and room returns."""
    settings = UpkeepSettings(checkpoint_bytes=1 << 18, dead_bytes=1 << 17, patience_ticks=5)
    bench = Bench(FaultyDisk(1), Plan(1 << 16, 7, settings))
    queue_id = bench.create(Shape("q"))
    bench.consume(queue_id, 0)
    written: Counter[int] = Counter()
    most = 0
    seen = 0
    for _ in range(400):
        for _ in range(25):
            bench.publish([queue_id], True, 200)
        write(bench)
        held = bench.delivered[queue_id]
        bench.settle_tag(queue_id, max(held), True, "ack")
        bench.turn()
        bench.tick()
        for record in records(bench.disk):
            if record.sequence > seen:
                seen = record.sequence
                written[record.kind] += 32 + len(record.payload)
        most = max(most, sum(bench.disk.size(name) for name in bench.disk.names()))
    write(bench)
    messages = 400 * 25
    spent = sum(written.values()) - written[Kind.PUBLISH]
    assert spent / messages < 5, dict(written)
    # 10,000 messages of 200 bytes went through; the disk never held more than some segments.
    assert written[Kind.PUBLISH] > 2_500_000
    assert most < 10 * (1 << 16)
    assert bench.node.queues[queue_id].ready == 0


class CountingDisk(FaultyDisk):
    """Knows how much was read of it."""

    bytes_read = 0

    def read(self, name: str) -> bytes:
        data = super().read(name)
        self.bytes_read += len(data)
        return data

    def read_at(self, name: str, at: int, size: int) -> bytes:
        data = super().read_at(name, at, size)
        self.bytes_read += len(data)
        return data


@pytest.mark.parametrize("clean", [False, True], ids=["crashed", "stopped"])
def test_a_start_reads_only_what_it_needs(clean: bool) -> None:
    """The checkpoint, what was written since, and the heads of segments: no bodies."""
    disk = CountingDisk(1)
    bench = Bench(disk, Plan(1 << 16, 7))
    queue_id = bench.create(Shape("q"))
    for n in range(2000):
        bench.publish([queue_id], True, 1000)
        if n % 50 == 0:
            write(bench)
    write(bench)
    checkpoint(bench)
    after = max(name for name in disk.names() if name.endswith(".checkpoint"))
    for _ in range(20):
        bench.publish([queue_id], True, 1000)
    write(bench)
    if clean:
        bench.stop()
    names = disk.names()
    total = sum(disk.size(name) for name in names)
    newest = max(name for name in names if name.endswith(".checkpoint"))
    known = int(newest[:16], 16)
    tail = sum(disk.size(n) for n in names if (segment_first_sequence(n) or 0) > known)
    needed = disk.size(newest) + tail + 2 * len(names) * SEGMENT_HEADER_BYTES
    assert (newest == after) is not clean
    disk.bytes_read = 0
    node = Node(disk, bench.plan, 1000, bench.wall_ms)
    assert node.queues[queue_id].ready == 2020
    assert disk.bytes_read <= needed
    assert disk.bytes_read < total / 10
