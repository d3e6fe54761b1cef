"""When messages came: it is known after a stop, a crash and a checkpoint, and not of old logs."""

from __future__ import annotations

import pytest
from store_bench import ADDRESS, Bench, header_of
from store_model import Shape
from store_node import Node, Plan

from warren.queue.ages import arrival_ms, oldest_arrival_ms
from warren.store import checkpoint as store_checkpoint
from warren.store.checkpoint import decode_checkpoint, write_checkpoint
from warren.store.faulty_disk import FaultyDisk
from warren.store.upkeep import UpkeepSettings
from warren.wire.content import make_message


def bench_with(*shapes: Shape) -> Bench:
    bench = Bench(FaultyDisk(1), Plan(8192, 7, UpkeepSettings()))
    for shape in shapes:
        bench.create(shape)
    write(bench)
    return bench


def write(bench: Bench) -> None:
    bench.turn()
    bench.step()


def age_ms(bench: Bench, queue_id: int = 1) -> int | None:
    came_ms = oldest_arrival_ms(bench.node.queues[queue_id])
    return None if came_ms is None else bench.node.now_ms - came_ms


def take(bench: Bench, no_ack: bool) -> None:
    """The watermark has to be on the disk first."""
    while not bench.get(1, no_ack):
        write(bench)


def checkpoint(bench: Bench) -> None:
    bench.begin_checkpoint()
    while bench.node.upkeep.is_busy:
        bench.step()
        bench.tick()


def test_the_oldest_message_counts_ready_or_not() -> None:
    bench = bench_with(Shape("q"))
    assert age_ms(bench) is None
    bench.publish([1], True, 10)
    bench.pass_time(5_000)
    bench.publish([1], True, 10)
    bench.pass_time(2_000)
    write(bench)
    assert age_ms(bench) == 7_000
    take(bench, no_ack=False)
    assert age_ms(bench) == 7_000
    bench.settle(1, next(slot for _, slot in bench.by_slot), "ack")
    assert age_ms(bench) == 2_000
    take(bench, no_ack=True)
    assert age_ms(bench) is None


def test_messages_of_one_second_share_a_mark() -> None:
    bench = bench_with(Shape("q"))
    for _ in range(20):
        bench.publish([1], True, 10)
        bench.pass_time(100)
    marks = {arrival_ms(bench.node.queues[1], slot) for slot in range(20)}
    assert len(marks) == 2


def test_the_oldest_of_all_priorities() -> None:
    bench = bench_with(Shape("q", max_priority=5))
    bench.publish([1], True, 10, priority=1)
    bench.pass_time(3_000)
    bench.publish([1], True, 10, priority=4)
    bench.pass_time(1_000)
    write(bench)
    assert age_ms(bench) == 4_000
    checkpoint(bench)
    bench.restart()
    assert 4_000 <= (age_ms(bench) or 0) < 6_000


@pytest.mark.parametrize("how", ["stop", "crash", "checkpoint, then a crash"])
def test_ages_outlive_the_process(how: str) -> None:
    bench = bench_with(Shape("q"))
    for _ in range(10):
        bench.publish([1], True, 10)
        bench.pass_time(10_000)
    write(bench)
    if how == "stop":
        bench.stop()
    elif how != "crash":
        checkpoint(bench)
        bench.publish([1], True, 10)
        write(bench)
    # `restart` compares each message with the model.
    bench.wall_ms += 60_000
    bench.restart(clean=how == "stop")
    assert 160_000 <= (age_ms(bench) or 0) < 162_000
    bench.publish([1], True, 10)
    write(bench)
    bench.restart()


def test_messages_that_are_not_kept_have_an_age_too() -> None:
    bench = bench_with(Shape("q", durable=False))
    queue_id = bench.open_queues[0]
    bench.publish([queue_id], False, 10)
    bench.pass_time(3_000)
    assert age_ms(bench, queue_id) == 3_000


def test_what_an_older_version_has_kept_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checkpoint has no marks; messages that come from then on have their times."""
    bench = bench_with(Shape("q"))
    bench.publish([1], True, 10)
    write(bench)
    bench.stop()
    names = [name for name in bench.disk.names() if name.endswith(".checkpoint")]
    found = decode_checkpoint(bench.disk.read(names[-1]))
    # Behind the levels: no cursors (4), no runs (4), one level (2), priority (1), one mark (18).
    kept = found.queues[0].snapshot
    assert kept[-29:-16] == b"\0" * 8 + b"\1\0" + b"\0" + b"\1\0"
    found.queues[0] = found.queues[0]._replace(snapshot=kept[:-29])
    monkeypatch.setattr(store_checkpoint, "FORMAT_VERSION", 2)
    for name in names:
        bench.disk.remove(name)
    write_checkpoint(bench.disk, found.sequence, found.encode())
    monkeypatch.undo()
    bench.node = Node(bench.disk, bench.plan, 5_000, bench.wall_ms)
    queue = bench.node.queues[1]
    assert queue.ready == 1
    assert age_ms(bench) is None
    bench.node.now_ms += 1_000
    message = make_message(ADDRESS, header_of(True, 0, 1), b"x")
    assert queue.offer(message, bench.node.now_ms)
    bench.node.journal.finish_publish(message)
    assert age_ms(bench) is None
    while not queue.get(True, bench.node.now_ms):
        write(bench)
    assert age_ms(bench) == 0
