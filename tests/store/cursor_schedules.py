"""Cursors on a disk whose power goes at any time, from a seed, beside an oracle.

The oracle: what was once shown of a position is shown again, byte for byte, until it is trimmed;
nothing that is not trimmed disappears; a cursor's start and token never change once they are on the
disk; a trim that is on the disk stays.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field

from store_model import Shape
from store_node import Node, Plan

from warren.model.message import Address, Message
from warren.queue.blocks import BlockBuilder
from warren.queue.cursors import Cursor, drop_operation, open_operation, trim_operation
from warren.queue.queue import Queue
from warren.store.faulty_disk import FaultyDisk
from warren.store.records import Kind
from warren.store.upkeep import UpkeepSettings
from warren.wire.content import make_message

STEPS = 400
ADDRESS = Address(b"", b"q")
QUEUE_ID = 1


def message_of(number: int, persistent: bool, size: int) -> Message:
    body = b"%d:" % number + b"x" * size
    flags = struct.pack(">HHQHB", 60, 0, len(body), 1 << 12, 2 if persistent else 1)
    return make_message(ADDRESS, flags, body)


@dataclass
class Known:
    """What the oracle knows of a cursor."""

    cursor: Cursor
    opened_mark: int
    #: (record, position) of each trim; the first is the start.
    trims: list[tuple[int, int]] = field(default_factory=list)


class Schedule:
    """One queue, its cursors, and whatever the dice say."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.disk = FaultyDisk(seed)
        upkeep = UpkeepSettings(
            checkpoint_bytes=20_000, dead_bytes=10_000, patience_ticks=3, waste_bytes=30_000,
            inline_chunks=1, indexes_a_tick=4,
        )  # fmt: skip
        self.plan = Plan(segment_bytes=8192, upkeep=upkeep)
        self.now_ms = 1_000
        self.node = Node(self.disk, self.plan, self.now_ms, 1_000_000)
        shape = Shape("q", max_length=200 if seed % 3 == 0 else -1)
        fields = [shape.name, shape.durable, shape.max_priority, shape.ttl_ms, shape.max_length,
                  shape.delivery_limit, shape.dead_letters]  # fmt: skip
        import json

        self.node.journal.put(Kind.METADATA, json.dumps([QUEUE_ID, *fields]).encode())
        self.node.keeper.add(QUEUE_ID, shape)
        self.number = 0
        self.out: list[int] = []
        self.cursors: dict[str, Known] = {}
        #: (cursor, position) -> all that was shown of it.
        self.shown: dict[tuple[str, int], tuple[bytes, ...]] = {}
        self.volatile: set[int] = set()
        self.crashes = self.reads = 0
        self.sync()

    @property
    def queue(self) -> Queue:
        return self.node.queues[QUEUE_ID]

    # -- steps -------------------------------------------------------------------------------------

    def sync(self) -> None:
        self.node.journal.finish_turn()
        self.node.log.step()
        self.node.journal.moved_on(self.now_ms)

    def publish(self) -> None:
        for _ in range(self.dice.randrange(1, 40)):
            self.now_ms += self.dice.randrange(60)
            persistent = self.dice.random() < 0.7
            message = message_of(self.number, persistent, self.dice.randrange(120))
            self.number += 1
            if not persistent and not self.cursors:
                self.volatile.add(self.queue.next_position)
            self.queue.offer(message, self.now_ms)
            self.node.journal.finish_publish(message)
        self.node.journal.finish_turn()

    def consume(self) -> None:
        if self.queue.cursors is not None and self.queue.cursors.drain is not None:
            return
        for _ in range(self.dice.randrange(1, 60)):
            no_ack = self.dice.random() < 0.3
            got = self.queue.get(no_ack, self.now_ms)
            if not got:
                break
            if not no_ack:
                self.out.append(got[1])
        self.dice.shuffle(self.out)
        for _ in range(self.dice.randrange(len(self.out) + 1)):
            slot = self.out.pop()
            self.queue.settle("ack" if self.dice.random() < 0.8 else "requeue", slot)
        self.node.journal.finish_turn()

    def open(self) -> None:
        name = f"c{self.dice.randrange(3)}"
        if name in self.cursors:
            return
        queue = self.queue
        drains = not self.out and not self.cursors and self.dice.random() < 0.3
        end = queue.next_position
        start = self.dice.choice((queue.first_kept(), end))
        cursor = Cursor(
            name, "drain" if drains else "follow", f"t{self.number}", start, start, end, 0, 0, 0
        )
        mark = queue.cursor_operation(open_operation("incarnation", cursor))
        self.cursors[name] = Known(cursor, mark, [(mark, start)])

    def trim(self) -> None:
        if not self.cursors:
            return
        known = self.cursors[self.dice.choice(sorted(self.cursors))]
        position, end = known.trims[-1][1], self.queue.readable_end
        if end > position:
            upto = self.dice.randrange(position, end + 1)
            mark = self.queue.cursor_operation(trim_operation(known.cursor.name, upto))
            known.trims.append((mark, upto))

    def drop(self) -> None:
        if self.cursors and self.dice.random() < 0.2:
            name = self.dice.choice(sorted(self.cursors))
            self.queue.cursor_operation(drop_operation(name))
            self.sync()
            del self.cursors[name]
            self.shown = {key: row for key, row in self.shown.items() if key[0] != name}

    def page_out(self) -> None:
        self.queue.page_out(self.dice.randrange(30))

    def upkeep(self) -> None:
        for _ in range(self.dice.randrange(1, 6)):
            self.node.upkeep.tick()
            self.sync()

    def crash(self) -> None:
        persisted = self.node.journal.persisted
        self.node.journal.finish_turn()
        if self.dice.random() < 0.5:
            self.node.log.step()
        self.crashes += 1
        self.out.clear()
        # A journal and its queues hold each other.
        self.node.journal.queues.clear()
        self.disk.cut_power()
        self.now_ms += 1_000
        self.node = Node(self.disk, self.plan, self.now_ms, 1_000_000 + self.now_ms)
        assert not self.node.recovery.damages
        found = self.queue.cursors.by_name if self.queue.cursors is not None else {}
        for name, known in list(self.cursors.items()):
            if name not in found:
                assert known.opened_mark > persisted, f"cursor {name} is lost"
                del self.cursors[name]
                self.shown = {key: row for key, row in self.shown.items() if key[0] != name}
                continue
            cursor = found[name]
            assert (cursor.start, cursor.token) == (known.cursor.start, known.cursor.token)
            kept = max(at for mark, at in known.trims if mark <= max(persisted, known.opened_mark))
            assert kept <= cursor.position <= known.trims[-1][1]
            known.trims = [(0, cursor.position)]
        self.shown = {key: row for key, row in self.shown.items() if key[1] not in self.volatile}
        self.volatile.clear()
        assert set(found) == set(self.cursors)
        self.sync()
        self.read()

    def read(self) -> None:
        """All that cursors may read, against all that was shown before."""
        self.sync()
        queue = self.queue
        queue.check()
        if not self.cursors:
            self.shown.clear()
            return
        assert queue.cursors is not None
        self.reads += 1
        end = queue.readable_end
        rows: dict[tuple[str, int], tuple[bytes, ...]] = {}
        for cursor in queue.cursors.by_name.values():
            block = BlockBuilder(cursor.position, cursor, list(queue.cursors.times))
            while block.next < end:
                block.fill(queue, end, 50, 1 << 30)
            assert block.missing == 0
            for at, row in decode_rows(bytes(block.finish())):
                rows[cursor.name, at] = row
        for (name, at), row in self.shown.items():
            if name in self.cursors and at >= queue.cursors.by_name[name].position:
                found = rows.get((name, at))
                assert found == row, f"position {at} of {name} reads otherwise: {found}"
        self.shown = rows

    def run(self, steps: int = STEPS) -> None:
        choices = (
            (self.publish, 30), (self.consume, 20), (self.open, 6), (self.trim, 15),
            (self.drop, 3), (self.page_out, 8), (self.upkeep, 12), (self.crash, 4),
            (self.read, 15), (self.sync, 10),
        )  # fmt: skip
        for step in self.dice.choices([c for c, _ in choices], [w for _, w in choices], k=steps):
            step()
        self.crash()


def decode_rows(block: bytes) -> list[tuple[int, tuple[bytes, ...]]]:
    """(position, bytes of all that depends on the message alone) of a block's rows."""
    import json

    _, length, count = struct.unpack_from("<8sII", block)
    head = json.loads(block[16 : 16 + length])
    data = block[16 + length :]
    columns = {name: (kind, spots) for name, kind, spots in head["columns"]}

    def cell(name: str, row: int) -> bytes:
        _, (_, offsets, values) = columns[name]
        first, end = struct.unpack_from("<2i", data, offsets[0] + 4 * row)
        return data[values[0] + first : values[0] + end]

    def number(name: str, row: int) -> int:
        if name not in columns:
            # No row of the block has a value.
            return 0
        at: int = columns[name][1][2][0]
        return int.from_bytes(data[at + 8 * row : at + 8 * row + 8], "little")

    return [
        (
            number("seq", row),
            (
                cell("body", row),
                cell("routing_key", row),
                number("enqueued_at", row).to_bytes(8, "little"),
            ),
        )
        for row in range(count)
    ]


def run_seed(seed: int, steps: int = STEPS) -> Schedule:
    schedule = Schedule(seed)
    try:
        schedule.run(steps)
    except BaseException as error:
        error.add_note(f"python tests/store/cursor_schedules.py {seed}")
        raise
    return schedule


if __name__ == "__main__":
    import sys

    first = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    for seed in range(first, first + count):
        run_seed(seed)
    print(f"{count} schedules are clean")
