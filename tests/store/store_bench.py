"""A whole store without threads or sockets, and a model of what it must hold.

`Bench` drives queues, journal, log and upkeep on a disk in memory, and writes down what it did with
the numbers of the records that say so. A log is a row of records of which a crash leaves the first
R: so after any crash the model knows exactly what must have come back. Who decides what happens
next is somebody else: a seed (`store_schedules.py`) or hypothesis (`test_store_machine.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial

from store_model import (
    GRAVES,
    Entry,
    ModelQueue,
    Shape,
    body_of,
    fields_of,
    header_of,
)
from store_node import Node, Plan

from warren.model.message import Address, Message
from warren.model.ports import LinkPort, TurnClock
from warren.queue.ages import arrival_ms
from warren.queue.queue import Queue
from warren.session.channel import Channel, Consumer
from warren.session.outlet import Outlet
from warren.store.faulty_disk import Faults, FaultyDisk
from warren.store.records import Kind, segment_first_sequence
from warren.wire.content import make_message
from warren.wire.methods import decode_method

ADDRESS = Address(b"", b"key")
LEVEL_SHIFT = 55
CHUNK_SHIFT = 7
REDELIVERED, LOGGED = 1, 2
#: The wall clock when the story begins, in ms.
BEGINNING_MS = 1_000_000


class Failed(Exception):
    """The disk has failed: the process ends."""


class Bench:
    """See the module's text."""

    def __init__(self, disk: FaultyDisk, plan: Plan) -> None:
        self.disk = disk
        self.plan = plan
        self.wall_ms = BEGINNING_MS
        self.next_number = 1
        self.queues: dict[int, ModelQueue] = {}
        self.by_slot: dict[tuple[int, int], Entry] = {}
        self.consumers: dict[int, Consumer] = {}
        #: Deliveries of consumers: queue id -> tag -> message.
        self.delivered: dict[int, dict[int, Entry]] = {}
        self._leaving: list[Entry] = []
        self._dying: list[tuple[str, Entry]] = []
        #: What the log had promised to keep.
        self.promised = 0
        self.recoveries = 0
        self.transient_id = 1 << 30
        self.node = Node(disk, plan, 1000, self.wall_ms)

    # -- queues ------------------------------------------------------------------------------------

    def create(self, shape: Shape) -> int:
        """Declare a queue; its number."""
        node = self.node
        if not shape.durable:
            self.transient_id += 1
            queue_id = self.transient_id
            node.make(shape, queue_id)
        else:
            queue_id = node.keeper.next_id
            payload = json.dumps([queue_id, *fields_of(shape)]).encode()
            node.journal.put(Kind.METADATA, payload)
            node.keeper.add(queue_id, shape)
        self.queues[queue_id] = ModelQueue(shape, queue_id, node.journal.appended)
        return queue_id

    def delete(self, queue_id: int) -> None:
        """Delete a queue; what clients hold of it they still hold."""
        node, queue = self.node, self.queues[queue_id]
        self.cancel(queue_id)
        if queue.shape.durable:
            node.journal.put(Kind.METADATA, json.dumps([queue_id]).encode())
            del node.keeper.shapes[queue_id]
            node.drop(queue_id)
        queue.deleted = node.journal.appended
        node.queues[queue_id].configure()
        node.queues[queue_id].purge()
        for entry in queue.live():
            if entry.ready:
                self._gone(queue, entry)

    def purge(self, queue_id: int) -> None:
        queue = self.queues[queue_id]
        ready = [e for e in queue.live() if e.ready]
        assert self.node.queues[queue_id].purge() == len(ready)
        for entry in ready:
            self._gone(queue, entry)

    @property
    def open_queues(self) -> list[int]:
        """Those that are not deleted."""
        return [i for i, queue in self.queues.items() if queue.deleted is None]

    # -- messages ----------------------------------------------------------------------------------

    def publish(
        self,
        queue_ids: Iterable[int],
        persistent: bool,
        size: int,
        priority: int = 0,
        before: Callable[[], None] | None = None,
    ) -> int:
        """Publish one message to some queues; the number of its record, or 0.

        `before` is called when all queues have it, and it is not written yet.
        """
        node, number = self.node, self.next_number
        self.next_number += 1
        body = body_of(number, size)
        message = make_message(ADDRESS, header_of(persistent, priority, len(body)), body)
        entries = []
        for queue_id in queue_ids:
            queue = self.queues[queue_id]
            level = min(priority, max(0, queue.shape.max_priority))
            ttl_ms = queue.shape.ttl_ms
            wall_ms = self.wall_ms + ttl_ms if ttl_ms >= 0 else 0
            logged = persistent and queue.shape.durable
            entry = Entry(number, level, len(body), logged, wall_ms, self.wall_ms)
            queue.entries[number] = entry
            queue.put(entry)
            entries.append(entry)
            assert node.queues[queue_id].offer(message, node.now_ms)
            self.read_consumers()
            self._enforce_limit(queue)
        if before is not None:
            before()
        node.journal.finish_publish(message)
        commit = node.journal.appended if any(entry.logged for entry in entries) else 0
        for entry in entries:
            entry.commit = commit
        return commit

    def _enforce_limit(self, queue: ModelQueue) -> None:
        while 0 <= queue.shape.max_length < queue.ready:
            head = queue.head()
            assert head is not None
            self._gone(queue, head, dies=True)

    def _expire(self, queue: ModelQueue) -> None:
        while (head := queue.head()) is not None and 0 < head.wall_ms <= self.wall_ms:
            self._gone(queue, head, dies=True)

    def _gone(self, queue: ModelQueue, entry: Entry, dies: bool = False) -> None:
        if entry.ready:
            entry.ready = False
            queue.ready -= 1
        if dies and queue.shape.dead_letters:
            # It is there until its letter is.
            entry.dies = True
            self._dying.append((queue.shape.name, entry))
            return
        entry.gone_after = self.node.journal.appended
        self._leaving.append(entry)

    def get(self, queue_id: int, no_ack: bool) -> bool | None:
        """Take the next message; False when it must wait for the log, None: there is none."""
        queue = self.queues[queue_id]
        found = self.node.queues[queue_id].get(no_ack, self.node.now_ms)
        self._expire(queue)
        expected = queue.head()
        if found is None:
            assert expected is None, f"{queue.shape.name}: {expected} is not there"
            return None
        assert expected is not None
        if found == 0:
            assert expected.logged
            return False
        message, slot, redelivered = found
        self._take(queue, expected, message.body, redelivered)
        if no_ack:
            self._gone(queue, expected)
        else:
            self.by_slot[queue_id, slot] = expected
        return True

    def _take(self, queue: ModelQueue, entry: Entry, body: bytes, redelivered: bool) -> None:
        assert body == body_of(entry.number, entry.size), (body[:20], entry)
        assert redelivered == entry.flagged, (queue.shape.name, entry)
        entry.handed = True
        entry.ready = False
        queue.ready -= 1

    def settle(self, queue_id: int, slot: int, how: str) -> None:
        """Settle what `get` has given."""
        self.node.queues[queue_id].settle(how, slot)
        self._settled(self.queues[queue_id], self.by_slot.pop((queue_id, slot)), how)

    def _settled(self, queue: ModelQueue, entry: Entry, how: str) -> None:
        if how == "ack":
            self._gone(queue, entry)
            return
        if how == "reject":
            self._gone(queue, entry, dies=queue.deleted is None)
            return
        entry.returned += 1
        limit = queue.shape.delivery_limit if queue.deleted is None else -1
        if 0 <= limit < entry.returned:
            self._gone(queue, entry, dies=True)
            return
        if limit >= 0 and entry.logged:
            entry.returns.append(self.node.journal.appended)
        entry.flagged = True
        queue.put(entry)
        if queue.deleted is None:
            self._enforce_limit(queue)

    # -- consumers ---------------------------------------------------------------------------------

    def consume(self, queue_id: int, prefetch: int) -> None:
        """A consumer with a channel of its own; not on queues whose messages expire."""
        channel = Channel(None, None, Outlet(LinkPort(), TurnClock()), 1, 1000)
        queue = self.node.queues[queue_id]
        consumer = Consumer(channel, "c", queue, False, False, 0, {}, prefetch)
        channel.consumers["c"] = consumer
        self.consumers[queue_id] = consumer
        self.delivered[queue_id] = {}
        queue.add_consumer(consumer)
        queue.run(self.node.now_ms)
        self.read_consumers()

    def cancel(self, queue_id: int) -> None:
        """The consumer leaves, its channel closes."""
        consumer = self.consumers.pop(queue_id, None)
        if consumer is None:
            return
        consumer.cancel()
        del consumer.channel.consumers["c"]
        queue = self.node.queues[queue_id]
        queue.remove_consumer(consumer)
        held = self.delivered.pop(queue_id)
        marks = self._requeue_marks(self.queues[queue_id], held.values())
        consumer.channel.requeue_all()
        for entry, mark in marks:
            self._settled(self.queues[queue_id], entry, "requeue")
            if entry.returns and entry.gone_after is None and mark:
                entry.returns[-1] = mark

    def _requeue_marks(
        self, queue: ModelQueue, entries: Iterable[Entry]
    ) -> list[tuple[Entry, int]]:
        """Many are put back at once: each that is counted has a record of its own, in order."""
        mark = self.node.journal.appended
        marks = []
        for entry in entries:
            counted = (
                entry.logged
                and queue.shape.delivery_limit > entry.returned
                and queue.deleted is None
            )
            mark += counted
            marks.append((entry, mark if counted else 0))
        return marks

    def settle_tag(self, queue_id: int, tag: int, multiple: bool, how: str) -> None:
        """Settle what a consumer was given."""
        held = self.delivered[queue_id]
        tags = [t for t in held if t == tag or (multiple and t < tag)]
        queue = self.queues[queue_id]
        settled = [held.pop(t) for t in tags]
        marks = self._requeue_marks(queue, settled if how == "requeue" else [])
        self.consumers[queue_id].channel.settle_tag(tag, multiple, how)
        if how == "requeue":
            for entry, mark in marks:
                self._settled(queue, entry, how)
                if entry.returns and entry.gone_after is None and mark:
                    entry.returns[-1] = mark
        else:
            for entry in settled:
                self._settled(queue, entry, how)
        self.node.queues[queue_id].run(self.node.now_ms)
        self.read_consumers()

    def read_consumers(self) -> None:
        """Take in what consumers were sent."""
        for queue_id, consumer in self.consumers.items():
            data = consumer.channel.outlet.output.take()
            at = 0
            frames = []
            while at < len(data):
                size = int.from_bytes(data[at + 3 : at + 7], "big")
                frames.append((data[at], data[at + 7 : at + 7 + size]))
                at += size + 8
            at = 0
            while at < len(frames):
                _, (_, tag, redelivered, _, _) = decode_method(frames[at][1])
                body = b""
                at += 2
                while at < len(frames) and frames[at][0] == 3:
                    body += frames[at][1]
                    at += 1
                queue = self.queues[queue_id]
                entry = queue.entries[int(body.partition(b":")[0])]
                self._take(queue, entry, body, redelivered)
                self.delivered[queue_id][tag] = entry

    # -- the log -----------------------------------------------------------------------------------

    def turn(self) -> None:
        """The end of a turn: dead letters are published, then what has left is told."""
        while self.node.effects.pending:
            self.node.effects.pending = False
            self.node.effects.take_expiries()
            self._bury(self.node.effects.take_dead_letters())
        assert not self._dying
        self.node.journal.finish_turn()
        for entry in self._leaving:
            entry.gone_by = self.node.journal.appended
        self._leaving.clear()

    def _bury(self, letters: list[tuple[Queue, Message, int, int]]) -> None:
        graves = [i for i, q in self.queues.items() if q.shape == GRAVES and q.deleted is None]
        dying, self._dying = self._dying, []
        assert [(q.name, bytes(m.body).partition(b":")[0]) for q, m, _, _ in letters] == [
            (name, b"%d" % entry.number) for name, entry in dying
        ]
        for (queue, message, reason, slot), (_, entry) in zip(letters, dying, strict=True):
            leave = partial(queue.end_burial, slot, reason, 0)
            if self.plan.gone_before_dead_letters:
                leave()
                self.node.journal.finish_turn()
                leave = None
            apart = self.plan.dead_letters_apart
            with_letter = None if leave is None else partial(leave, with_letter=not apart)
            entry.heir = self.publish(graves, message.delivery_mode == 2, 20, before=with_letter)
            entry.dies = bool(graves)
            if entry.heir and entry.logged and queue.queue_id:
                entry.gone_after, entry.gone_by = entry.heir - 1, entry.heir
            else:
                entry.gone_after = self.node.journal.appended
                self._leaving.append(entry)

    def step(self) -> None:
        """The log writes what has gathered, and whoever waited for it goes on."""
        self.node.log.step()
        try:
            self.node.journal.moved_on(self.node.now_ms)
        except OSError as error:
            raise Failed from error
        self.promised = self.node.journal.persisted
        self.read_consumers()
        if self.plan.watermark_not_awaited:
            self.node.journal.persisted = 1 << 62

    def tick(self) -> None:
        """The upkeep does a little, in a turn of its own."""
        self.turn()
        self.node.upkeep.tick()
        if self.node.upkeep.error is not None:
            raise Failed from self.node.upkeep.error

    def begin_checkpoint(self) -> None:
        """Without waiting until one is due, as a node does that has found damage."""
        self.node.upkeep.begin()
        if self.node.upkeep.error is not None:
            raise Failed from self.node.upkeep.error

    def pass_time(self, ms: int) -> None:
        """Messages at the heads expire."""
        self.wall_ms += ms
        self.node.now_ms += ms
        for queue_id, queue in self.queues.items():
            if queue.shape.ttl_ms >= 0 and queue.deleted is None:
                self.node.queues[queue_id].expire(self.node.now_ms)
                self._expire(queue)

    # -- ends and beginnings -----------------------------------------------------------------------

    def stop(self) -> None:
        """A clean stop: clients are sent away first. Then `restart`."""
        for queue_id in list(self.consumers):
            self.cancel(queue_id)
        for queue_id, slot in list(self.by_slot):
            self.settle(queue_id, slot, "requeue")
        self.turn()
        try:
            self.node.upkeep.write_now(clean=True)
        except OSError as error:
            raise Failed from error
        self.promised = self.node.log.persisted
        assert self.promised == self.node.journal.appended

    def restart(self, clean: bool = False) -> None:
        """Another process, on what is left of the disk."""
        old = self.node
        self.node = Node(self.disk, self.plan, 1000 + self.next_number, self.wall_ms)
        self.recoveries += 1
        assert self.node.recovery.damages == []
        self.compare(old, clean)

    def compare(self, old: Node, clean: bool) -> None:
        """What came back is what the log had said up to its last record."""
        node = self.node
        last = node.recovery.next_sequence - 1
        assert last >= self.promised, f"the log had promised {self.promised} and ends at {last}"
        self.promised = last
        self.by_slot.clear()
        self.consumers.clear()
        self.delivered.clear()
        self._leaving.clear()
        self._dying.clear()
        for queue_id, queue in list(self.queues.items()):
            gone = queue.deleted is not None and queue.deleted <= last
            if not queue.shape.durable or queue.created > last or gone:
                assert queue_id not in node.queues
                del self.queues[queue_id]
                continue
            queue.deleted = None
            self.compare_queue(queue, old.queues[queue_id], last, clean)
        assert node.queues.keys() == self.queues.keys()
        self.check()

    def compare_queue(self, queue: ModelQueue, old: Queue, last: int, clean: bool) -> None:
        there = self.node.queues[queue.queue_id]
        opened = [0 if m is None else max(m[1:]) for m in old.watermarks()]
        found: dict[int, Entry] = {}
        order = []
        for slot, place, flags, returns, expires_ms, body_len, ready, _ in there.walk():
            message = self.node.journal.fetch_message(place)
            assert message is not None, f"{queue.shape.name}: nothing readable at {place:#x}"
            number = int(bytes(message.body[:20]).partition(b":")[0])
            entry = queue.entries.get(number)
            assert entry is not None, f"{queue.shape.name} has {number}, which is not its own"
            assert message.body == body_of(number, entry.size)
            assert body_len == entry.size
            assert number not in found, f"{queue.shape.name} has {number} twice"
            assert entry.logged
            assert entry.commit <= last
            assert not (entry.gone_by is not None and entry.gone_by <= last), (queue.shape, entry)
            assert (slot >> LEVEL_SHIFT, ready) == (entry.level, 1)
            wall_ms = expires_ms + self.node.wall_offset_ms if expires_ms else 0
            # Long past is as good as just past: a time before the clock began is not kept.
            past = 0 < wall_ms <= self.wall_ms and 0 < entry.wall_ms <= self.wall_ms
            assert wall_ms == entry.wall_ms or past
            came_ms = arrival_ms(there, slot)
            assert came_ms is not None
            # A mark a second, and records know whole seconds.
            assert 0 <= entry.came_ms - (came_ms + self.node.wall_offset_ms) < 2000
            self._compare_flags(queue, entry, bool(flags & REDELIVERED), slot, opened, clean)
            entry.returned = len([mark for mark in entry.returns if mark <= last])
            if queue.shape.delivery_limit >= 0:
                assert returns == entry.returned, (queue.shape.name, entry, returns)
            entry.returns = [mark for mark in entry.returns if mark <= last]
            found[number] = entry
            order.append((entry.level, number))
        assert order == sorted(order)
        for number, entry in queue.entries.items():
            if number in found or not entry.logged or entry.commit > last:
                continue
            lost = entry.gone_after is None or entry.gone_after >= last
            assert not lost, f"{queue.shape.name} has lost {entry}; the log ends at {last}"
            if entry.dies:
                assert 0 < entry.heir <= last, f"{entry} is gone without a dead letter"
        queue.entries = {number: found[number] for number in sorted(found)}
        queue.waiting, queue.ready = [], 0
        for entry in queue.entries.values():
            entry.gone_after = entry.gone_by = None
            entry.dies = False
            queue.put(entry)
        assert there.ready == queue.ready
        there.check()

    def _compare_flags(
        self,
        queue: ModelQueue,
        entry: Entry,
        flagged: bool,
        slot: int,
        opened: list[int],
        clean: bool,
    ) -> None:
        if entry.handed:
            assert flagged, f"{queue.shape.name}: {entry} was handed out and is not flagged"
        elif flagged and not entry.flagged:
            position = slot & ((1 << LEVEL_SHIFT) - 1)
            assert not clean, f"{queue.shape.name}: {entry} is flagged after a clean stop"
            assert position < opened[entry.level], f"{entry} is flagged and was never opened"
        entry.flagged = flagged

    def catch_up(self) -> None:
        """What the node does after a start: limits and times to live act again."""
        for queue_id, queue in self.queues.items():
            there = self.node.queues[queue_id]
            self.node.configure(there, queue.shape)
            self._enforce_limit(queue)
            there.expire(self.node.now_ms)
            self._expire(queue)
        self.turn()

    # -- what must hold at any time ----------------------------------------------------------------

    def check(self) -> None:
        """Segments and memory are counted right; all that is needed is there."""
        node = self.node
        live: dict[int, int] = {}
        kept: dict[int, int] = {}
        used: dict[int, int] = {}
        resident = 0
        for queue_id, there in node.queues.items():
            there.check()
            queue = self.queues.get(queue_id)
            keeps = queue is not None and queue.deleted is None and queue.shape.durable
            walked = there.walk()
            for _, place, flags, _, _, body_len, _, message in walked:
                number = place >> 32
                if message is not None:
                    resident += 160 + message.header_len + message.body_len
                if flags & LOGGED and keeps:
                    kept[number] = kept.get(number, 0) + 1
                    used[number] = used.get(number, 0) + body_len
                if message is None or (flags & LOGGED and keeps):
                    live[number] = live.get(number, 0) + 1
            logged = {slot >> CHUNK_SHIFT for slot, _, flags, *_ in walked if flags & LOGGED}
            for slot, place, _, index_kept in there.index_places():
                number = place >> 32
                live[number] = live.get(number, 0) + 1
                kept[number] = kept.get(number, 0) + index_kept
                assert index_kept or not keeps or slot >> CHUNK_SHIFT not in logged
                assert keeps or not index_kept
            if queue is not None:
                assert len(walked) == len(queue.live()), queue.shape.name
        assert node.journal.resident_bytes == resident
        segments = node.journal.list_segments()
        counted = [
            (number, live.get(number, 0), kept.get(number, 0), used.get(number, 0))
            for number, *_ in segments
        ]
        assert counted == [(n, *counts) for n, _, _, *counts in segments]
        assert live.keys() <= {number for number, *_ in segments}
        self._check_files(segments)

    def _check_files(self, segments: list[tuple[int, int, int, int, int, int]]) -> None:
        there = {segment_first_sequence(name): name for name in self.disk.names()}
        firsts = [first for _, first, *_ in segments]
        assert len(set(firsts)) == len(firsts), "two segments have the same first record"
        for number, first, _, live, _, _ in segments:
            if live and number < self.node.journal.persisted_end >> 32:
                assert first in there, f"segment {number} is needed and not there"

    def settle_down(self) -> None:
        """Write everything, then checkpoints until there is nothing more to delete."""
        self.disk.faults = Faults()
        self.disk.cut_at = None
        for _ in range(3):
            self.turn()
            self.step()
            while self.node.upkeep.is_busy:
                self.tick()
                self.step()
            self.node.upkeep.begin()
            while self.node.upkeep.is_busy:
                self.tick()
                self.step()
        self.check()
        newest = self.node.log.segment
        needed = {f for n, f, _, live, _, _ in self.node.journal.list_segments() if live}
        needed |= {f for n, f, *_ in self.node.journal.list_segments() if n == newest}
        there = {segment_first_sequence(name) for name in self.disk.names()} - {None}
        assert there == needed, f"segments on the disk {there}, needed {needed}"
