"""No room for a checkpoint: the node goes on without, and writes it when there is room again."""

from __future__ import annotations

import errno

import pytest
from store_bench import Bench, Failed
from store_model import Shape
from store_node import Plan

from warren.store.faulty_disk import FaultyDisk
from warren.store.upkeep import UpkeepSettings

SETTINGS = UpkeepSettings(checkpoint_bytes=1 << 30, dead_bytes=1 << 14, retry_ticks=3)


class FullDisk(FaultyDisk):
    """Takes no checkpoint, or only the beginning of one, while it is full."""

    room: int | None = None
    error = errno.ENOSPC
    refused = 0

    def append(self, name: str, data: bytes) -> int:
        if self.room is None or not name.endswith(".checkpoint"):
            return super().append(name, data)
        super().append(name, data[: self.room])
        self.refused += 1
        raise OSError(self.error, "No space left on device", name)


def fill(bench: Bench, queue_id: int, count: int) -> None:
    for _ in range(count):
        bench.publish([queue_id], True, 300)
        bench.turn()
        bench.step()


def drain(bench: Bench, queue_id: int, count: int) -> None:
    while count:
        taken = bench.get(queue_id, True)
        assert taken is not None
        bench.turn()
        bench.step()
        count -= bool(taken)


def pass_ticks(bench: Bench, count: int) -> None:
    for _ in range(count):
        bench.tick()
        bench.step()


@pytest.mark.parametrize("room", [0, 10, 100])
@pytest.mark.parametrize("crash", [False, True])
def test_a_checkpoint_that_there_is_no_room_for(room: int, crash: bool) -> None:
    disk = FullDisk(1)
    bench = Bench(disk, Plan(1 << 13, 7, SETTINGS))
    queue_id = bench.create(Shape("q"))
    fill(bench, queue_id, 100)
    pass_ticks(bench, 10)
    disk.room = room
    drain(bench, queue_id, 90)
    pass_ticks(bench, 20)
    assert disk.refused > 2
    assert bench.node.upkeep.put_off is not None
    assert not any(name.endswith(".checkpoint") for name in disk.names())
    fill(bench, queue_id, 5)
    if crash:
        disk.cut_power()
        bench.restart()
        pass_ticks(bench, 10)
    held = sum(disk.size(name) for name in disk.names())
    disk.room = None
    fill(bench, queue_id, 30)
    drain(bench, queue_id, 40)
    pass_ticks(bench, 30)
    assert bench.node.upkeep.put_off is None
    assert sum(disk.size(name) for name in disk.names()) < held / 2
    disk.cut_power()
    bench.restart()
    drain(bench, queue_id, 5)
    assert bench.get(queue_id, True) is None


def test_any_other_error_is_the_end() -> None:
    disk = FullDisk(1)
    bench = Bench(disk, Plan(1 << 13, 7, SETTINGS))
    queue_id = bench.create(Shape("q"))
    fill(bench, queue_id, 10)
    disk.room, disk.error = 10, errno.EIO
    drain(bench, queue_id, 10)
    fill(bench, queue_id, 60)
    drain(bench, queue_id, 60)
    with pytest.raises(Failed):
        pass_ticks(bench, 10)
