"""What the schedules have found, each as its own short story."""

from __future__ import annotations

import pytest
from store_bench import Bench
from store_model import Shape
from store_node import Plan

from warren.store.faulty_disk import FaultyDisk, PowerCut
from warren.store.records import segment_first_sequence
from warren.store.upkeep import UpkeepSettings

SMALL = UpkeepSettings(
    checkpoint_bytes=1 << 30,
    dead_bytes=1 << 62,
    patience_ticks=1 << 30,
    compact_below=0.9,
    waste_bytes=1 << 30,
)


def bench_with(*shapes: Shape, segment_bytes: int = 4096, **options: object) -> Bench:
    settings = UpkeepSettings(
        **{name: getattr(SMALL, name) for name in UpkeepSettings.__slots__} | options
    )
    bench = Bench(FaultyDisk(1), Plan(segment_bytes, 7, settings))
    for shape in shapes:
        bench.create(shape)
    bench.turn()
    bench.step()
    return bench


def write(bench: Bench) -> None:
    bench.turn()
    bench.step()


def write_often(bench: Bench) -> None:
    for _ in range(3):
        write(bench)
        bench.publish([1], True, 100)


def page_out(bench: Bench, queue_id: int) -> None:
    for _ in range(4):
        bench.node.queues[queue_id].page_out(0)
        write(bench)


def checkpoint(bench: Bench) -> None:
    bench.begin_checkpoint()
    while bench.node.upkeep.is_busy:
        bench.step()
        bench.tick()


@pytest.mark.parametrize("operation", range(1, 6))
def test_a_segment_that_was_only_begun_is_forgotten(operation: int) -> None:
    """Its name is used again: deleting the old one would delete the new one."""
    bench = bench_with(Shape("q"))
    bench.publish([1], True, 100)
    write(bench)
    bench.node.log.roll()
    bench.publish([1], True, 100)
    bench.disk.cut_at = bench.disk.operations + operation
    with pytest.raises(PowerCut):
        write_often(bench)
    bench.disk.cut_at = None
    bench.restart()
    bench.publish([1], True, 100)
    write(bench)
    bench.settle_down()
    bench.restart()


def test_a_segment_cut_at_a_start_is_no_damage_at_the_next() -> None:
    bench = bench_with(Shape("q"))
    bench.publish([1], True, 100)
    write(bench)
    bench.restart()
    checkpoint(bench)
    bench.restart()


def test_a_message_on_the_move_can_be_read() -> None:
    """Compaction has copied it, and the copy is not on the disk yet."""
    bench = bench_with(Shape("q"), waste_bytes=1)
    for _ in range(20):
        bench.publish([1], True, 500)
    write(bench)
    page_out(bench, 1)
    assert bench.get(1, True) is False
    write(bench)
    for _ in range(4):
        assert bench.get(1, True)
    write(bench)
    while not bench.node.upkeep.is_busy:
        bench.tick()
    while bench.node.upkeep.is_busy and (
        bench.node.journal.appended == bench.node.journal.persisted
    ):
        bench.tick()
    assert bench.node.journal.appended > bench.node.journal.persisted
    for _ in range(16):
        assert bench.get(1, True)
    assert bench.node.unreadable == []
    write(bench)
    bench.settle_down()


def test_transient_messages_that_are_only_in_the_log_survive_a_checkpoint() -> None:
    bench = bench_with(Shape("q"))
    for _ in range(600):
        bench.publish([1], False, 10)
    page_out(bench, 1)
    assert any(spilled for _, _, spilled, _ in bench.node.queues[1].index_places())
    checkpoint(bench)
    bench.check()
    for _ in range(600):
        assert bench.get(1, True)
    assert bench.node.unreadable == []
    bench.settle_down()


def test_a_message_dropped_by_its_own_publish_holds_no_segment() -> None:
    bench = bench_with(Shape("q", max_length=0), Shape("other"))
    for _ in range(40):
        bench.publish([1, 2], True, 300)
    write(bench)
    bench.check()
    bench.purge(2)
    bench.settle_down()
    assert len([n for n in bench.disk.names() if segment_first_sequence(n) is not None]) == 1


@pytest.mark.parametrize("paged", [False, True])
def test_what_clients_hold_of_a_deleted_queue_is_not_kept(paged: bool) -> None:
    """A checkpoint must not count it: nobody would ever give it back after a start."""
    bench = bench_with(Shape("q"))
    for _ in range(600):
        bench.publish([1], True, 30)
    write(bench)
    assert bench.get(1, False) is False
    write(bench)
    assert bench.get(1, False)
    if paged:
        page_out(bench, 1)
    bench.delete(1)
    bench.check()
    checkpoint(bench)
    bench.restart()
    bench.settle_down()
    assert len([n for n in bench.disk.names() if segment_first_sequence(n) is not None]) == 1


def test_a_queue_deleted_after_the_checkpoint_lets_go_of_everything() -> None:
    """Also of what stood in the checkpoint as an index only."""
    bench = bench_with(Shape("q"), inline_chunks=0)
    for _ in range(600):
        bench.publish([1], True, 30)
    page_out(bench, 1)
    checkpoint(bench)
    bench.delete(1)
    write(bench)
    bench.restart()
    bench.settle_down()
    assert len([n for n in bench.disk.names() if segment_first_sequence(n) is not None]) == 1


def test_a_queue_may_be_deleted_while_its_indexes_are_written() -> None:
    bench = bench_with(Shape("q"), Shape("other"), inline_chunks=0, indexes_a_tick=1)
    for _ in range(600):
        bench.publish([1, 2], True, 30)
    write(bench)
    assert bench.get(1, False) is False
    write(bench)
    assert bench.get(1, False)
    bench.begin_checkpoint()
    bench.delete(1)
    while bench.node.upkeep.is_busy:
        bench.tick()
        bench.check()
        bench.step()
    bench.restart()


@pytest.mark.parametrize("operation", range(1, 12))
def test_the_first_checkpoint_after_a_start_replaces_nothing(operation: int) -> None:
    """The newest is the only one whose segments are all there."""
    bench = bench_with(Shape("q"))
    for _ in range(30):
        bench.publish([1], True, 500)
    write(bench)
    checkpoint(bench)
    assert bench.get(1, True) is False
    write(bench)
    for _ in range(25):
        assert bench.get(1, True)
    bench.stop()
    bench.restart(clean=True)
    bench.disk.cut_at = bench.disk.operations + operation
    try:
        checkpoint(bench)
        bench.disk.cut_at = None
    except PowerCut:
        bench.disk.cut_power()
    bench.restart()


def test_a_checkpoint_that_was_read_is_on_the_disk() -> None:
    """The process was killed between writing and syncing it; then the power fails."""
    bench = bench_with(Shape("q"))
    for _ in range(70):
        bench.publish([1], True, 10)
    write(bench)
    assert bench.get(1, False) is False
    write(bench)
    bench.turn()
    operations = bench.disk.operations
    bench.stop()
    last = bench.disk.operations
    for cut in range(operations, last + 1):
        again = bench_with(Shape("q"))
        for _ in range(70):
            again.publish([1], True, 10)
        write(again)
        assert again.get(1, False) is False
        write(again)
        again.turn()
        again.disk.cut_at = cut
        clean = False
        try:
            again.stop()
            clean = True
        except PowerCut:
            pass
        again.disk.cut_at = None
        again.restart(clean)
        again.disk.cut_power()
        again.restart(clean)


def test_a_chunk_emptied_after_positions_were_skipped_lets_go_of_its_index() -> None:
    """The next message comes to a later chunk: transient ones stood in between."""
    bench = bench_with(Shape("q"), inline_chunks=0)
    for n in range(200):
        bench.publish([1], n < 128, 10)
    write(bench)
    checkpoint(bench)
    bench.restart()
    assert bench.get(1, True) is False
    write(bench)
    for _ in range(64):
        assert bench.get(1, True)
    write(bench)
    while (taken := bench.get(1, True)) is not None:
        if taken is False:
            write(bench)
    write(bench)
    checkpoint(bench)
    bench.restart()


def test_all_that_was_written_can_be_paged_out_after_a_checkpoint() -> None:
    bench = bench_with(Shape("q"))
    for _ in range(10):
        bench.publish([1], True, 100)
    bench.turn()
    bench.begin_checkpoint()
    bench.step()
    bench.node.queues[1].page_out(0)
    assert [m for *_, m in bench.node.queues[1].walk() if m is not None] == []


def test_the_directory_of_a_level_does_not_keep_empty_chunks() -> None:
    bench = bench_with(Shape("q"))
    for _ in range(5):
        bench.publish([1], True, 10)
    write(bench)
    for _ in range(200):
        bench.publish([1], False, 10)
    assert bench.get(1, True) is False
    write(bench)
    for _ in range(206):
        if bench.get(1, True) is False:
            write(bench)
    write(bench)
    bench.restart()
    for _ in range(1000):
        bench.publish([1], True, 10)
        write(bench)
        if bench.get(1, True) is False:
            write(bench)
            bench.get(1, True)
    assert bench.node.queues[1].chunk_count <= 2
