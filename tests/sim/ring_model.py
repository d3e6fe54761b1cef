"""A model of a mirrored queue: its operations, what they lead to, and a log that keeps them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from sim.world import Violation
from warren.replication.lineage import Lineage
from warren.replication.log_port import LogPort
from warren.replication.types import Batch

#: ("p", key, sequence, live), ("a", index), ("r", index), ("w", index), ("h", table),
#: ("v", epoch, promoted)
Op = tuple[Any, ...]
Entry = tuple[int, Op]
NOWHERE = 1 << 60

_encode = msgspec.msgpack.encode
_ops_decoder = msgspec.msgpack.Decoder(list[tuple[Any, ...]])


def decode_ops(data: bytes) -> list[Op]:
    return _ops_decoder.decode(data)


class State:
    """Messages by the index of their publish, the watermark, and what each publisher has sent."""

    #: Mutants switch these off.
    flags_at_promotion = True

    def __init__(self) -> None:
        self.messages: dict[int, list[Any]] = {}
        self.watermark = 0
        self.seen: dict[str, int] = {}
        #: Deliveries that a master has left to the next one: index -> (consumer, attachment). They
        #: count for who comes right after it only.
        self.left: dict[int, tuple[str, int]] | None = None
        self.inherited: dict[int, tuple[str, int]] = {}

    def apply(self, index: int, op: Op) -> None:
        kind = op[0]
        left, self.left = self.left, None
        if kind == "p":
            self.messages[index] = [op[1], op[2], False]
            self.seen[op[1]] = max(op[2], self.seen.get(op[1], 0))
            if op[3]:
                self.watermark = max(self.watermark, index)
        elif kind == "a":
            self.messages.pop(op[1], None)
        elif kind == "r":
            if op[1] in self.messages:
                self.messages[op[1]][2] = True
        elif kind == "w":
            self.watermark = max(self.watermark, op[1])
        elif kind == "h":
            self.left = {index: (consumer, number) for index, consumer, number in op[1]}
        elif kind == "v" and op[2]:
            self.inherited = left or {}
            if left is None and self.flags_at_promotion:
                for number, message in self.messages.items():
                    if number <= self.watermark:
                        message[2] = True

    def head(self) -> bytes:
        left = None if self.left is None else [[i, *to] for i, to in self.left.items()]
        return _encode([self.watermark, self.seen, left])

    @classmethod
    def of(cls, head: bytes) -> State:
        state = cls()
        if head:
            state.watermark, state.seen, left = msgspec.msgpack.decode(head)
            state.left = None if left is None else {i: (c, n) for i, c, n in left}
        return state

    def picture(self) -> object:
        return (sorted(self.messages.items()), self.watermark, sorted(self.seen.items()))

    def clone(self) -> State:
        other = type(self)()
        other.messages = {index: list(message) for index, message in self.messages.items()}
        other.watermark, other.seen, other.left = self.watermark, dict(self.seen), self.left
        return other


class Copy:
    """A log and the image that it starts from: what is in memory, and what is on a disk."""

    def __init__(self, state_class: type[State]) -> None:
        self.state_class = state_class
        self.max_epoch = 0
        self.base = 0
        self.lineage = Lineage()
        self.entries: list[Entry] = []
        self.image = state_class()
        self.gap = (0, 0)

    @property
    def last(self) -> int:
        return self.base + len(self.entries)

    def clone(self) -> Copy:
        other = Copy(self.state_class)
        other.max_epoch, other.base, other.gap = self.max_epoch, self.base, self.gap
        other.lineage = Lineage(self.lineage)
        other.entries = list(self.entries)
        other.image = self.image.clone()
        return other

    # -- what is written: each of these is a record of the write-ahead log

    def adopt(self, epoch: int) -> None:
        self.max_epoch = max(self.max_epoch, epoch)

    def append(self, epoch: int, first: int, ops: list[Op]) -> None:
        if first != self.last + 1:
            raise Violation(f"operations from {first} on after {self.last}")
        self.lineage.extend(epoch, first)
        self.entries.extend((epoch, op) for op in ops)

    def truncate(self, after: int) -> None:
        if after < self.base:
            raise Violation(f"truncated to {after}, below the image at {self.base}")
        del self.entries[after - self.base :]
        self.lineage.truncate(after)

    def reset(self, at: int, lineage: Lineage, head: bytes) -> None:
        self.base, self.lineage, self.entries = at, Lineage(lineage), []
        self.image = self.state_class.of(head)
        self.gap = (0, at)

    def chunk(self, cursor: int, items: list[list[Any]], is_last: bool) -> None:
        for index, *message in items:
            self.image.messages[index] = list(message)
        self.gap = (self.gap[1], self.gap[1]) if is_last else (cursor, self.gap[1])

    def compact(self, base: int) -> None:
        for number, (_, op) in enumerate(self.entries[: base - self.base]):
            self.image.apply(self.base + 1 + number, op)
        del self.entries[: base - self.base]
        self.base = base
        self.lineage.forget_before(base + 1)

    def close_gap(self) -> None:
        self.gap = (self.gap[1], self.gap[1])


class ModelLog(LogPort):
    """The port over a copy; `write` takes every change to the disk."""

    #: Mutants take what operations do to messages that are not there yet from those received.
    tombstones_when_received = False

    def __init__(self, copy: Copy, keep: int, write: Any) -> None:
        self.copy = copy
        self.state = copy.image.clone()
        self.applied_index = copy.base
        self.max_epoch = copy.max_epoch
        self.generation = 0
        self.keep = keep
        self._write = write
        #: What happened to messages of the gap: gone or given back.
        self.touched: dict[int, str] = {}
        self.salvaged: list[Entry] = []
        self.salvaged_messages: dict[int, list[Any]] = {}
        #: An oracle looks first.
        self.on_truncate: Callable[[int], None] = lambda _: None

    # -- looking

    @property
    def lineage(self) -> Lineage:  # type: ignore[override]
        return self.copy.lineage

    @property
    def last_index(self) -> int:  # type: ignore[override]
        return self.copy.last

    @property
    def first_retained(self) -> int:  # type: ignore[override]
        return self.copy.base + 1

    @property
    def gap(self) -> tuple[int, int]:  # type: ignore[override]
        return self.copy.gap

    @property
    def head_index(self) -> int:
        return min(self.state.messages, default=NOWHERE)

    def entry(self, index: int) -> Entry:
        return self.copy.entries[index - self.copy.base - 1]

    def read(self, first: int, bytes_max: int) -> list[Batch]:
        batches: list[Batch] = []
        taken: list[Op] = []
        epoch = 0
        room = max(bytes_max // 20, 1)
        for number, (made, op) in enumerate(
            self.copy.entries[first - self.copy.base - 1 :][:room], first
        ):
            if taken and made != epoch:
                batches.append(Batch(number - len(taken), number - 1, epoch, _encode(taken)))
                taken = []
            epoch = made
            taken.append(op)
            end = number
        if taken:
            batches.append(Batch(end - len(taken) + 1, end, epoch, _encode(taken)))
        return batches

    # -- changing

    def _record(self, kind: str, *what: Any) -> None:
        getattr(self.copy, kind)(*what)
        self._write(kind, what)

    def append(self, batch: Batch) -> None:
        ops = decode_ops(batch.data)
        if len(ops) != batch.last - batch.first + 1:
            raise Violation("a batch of another length than it says")
        self._record("append", batch.epoch, batch.first, ops)
        if self.tombstones_when_received:
            for op in ops:
                self._touch(op)

    def append_ops(self, epoch: int, ops: list[Op]) -> Batch:
        first = self.last_index + 1
        self._record("append", epoch, first, ops)
        return Batch(first, self.last_index, epoch, _encode(ops))

    def truncate(self, after_index: int) -> None:
        self.generation += 1
        self.on_truncate(after_index)
        self._record("truncate", after_index)

    def reset(self, at: int, lineage: Lineage, head: bytes) -> None:
        self.generation += 1
        self._record("reset", at, lineage, head)
        self.state = self.copy.image.clone()
        self.applied_index = at
        self.touched = {}

    def image_head(self) -> bytes:
        return self.state.head()

    def view_operation(self, epoch: int, promoted: bool) -> bytes:
        return _encode([("v", epoch, promoted)])

    def read_chunk(self, after: int, upto: int, bytes_max: int) -> tuple[int, bytes, bool]:
        wanted = [i for i in sorted(self.state.messages) if after < i <= upto]
        room = max(bytes_max // 20, 1)
        items = [[i, *self.state.messages[i]] for i in wanted[:room]]
        is_last = len(wanted) <= room
        cursor = upto if is_last else items[-1][0]
        return cursor, _encode(items), is_last

    def write_chunk(self, cursor: int, data: bytes, is_last: bool) -> None:
        items = []
        for index, *message in msgspec.msgpack.decode(data):
            fate = self.touched.get(index)
            if fate == "gone":
                continue
            if fate == "back":
                message[2] = True
            items.append([index, *message])
            self.state.messages[index] = list(message)
        self._record("chunk", cursor, items, is_last)

    def close_gap(self) -> None:
        self._record("close_gap")

    def salvage(self, after_index: int) -> None:
        self.salvaged.extend(self.copy.entries[max(after_index - self.copy.base, 0) :])
        state = self.copy.image.clone()
        for number, (_, op) in enumerate(self.copy.entries, self.copy.base + 1):
            state.apply(number, op)
        self.salvaged_messages = state.messages

    def salvage_promised(self, after_index: int) -> None:
        self.salvaged.extend(self.copy.entries[max(after_index - self.copy.base, 0) :])

    # -- applying

    def _touch(self, op: Op) -> None:
        if op[0] not in ("a", "r") or not self.gap[0] < op[1] <= self.gap[1]:
            return
        if op[0] == "a":
            self.touched[op[1]] = "gone"
        else:
            self.touched.setdefault(op[1], "back")

    def apply(self, upto: int) -> list[tuple[int, Entry]]:
        """Apply what is committed; what that was."""
        done = []
        while self.applied_index < upto:
            index = self.applied_index + 1
            entry = self.entry(index)
            self.state.apply(index, entry[1])
            self._touch(entry[1])
            self.applied_index = index
            done.append((index, entry))
        is_full = self.gap[0] >= self.gap[1]
        if is_full and self.applied_index - self.copy.base > 2 * self.keep:
            self._record("compact", self.applied_index - self.keep)
        return done
