"""The event journal of a node: buffers in files, which a thread of its own turns into segments.

The loop does two things: the data plane notes events in the buffer at hand, and every so often what
queues hold is noted and the buffer exchanged. All else, room on the disk first, is the thread's.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from warren.node.errors import StartError
from warren.node.journal_numbers import QueueNumbers
from warren.queue.looking import journal_held
from warren.telemetry.event_buffer import NUMBERS, EventBuffer, bytes_for
from warren.telemetry.log import logger

if TYPE_CHECKING:
    import asyncio

    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.mirror import Mirror
    from warren.node.node import Node

#: Rows of a buffer: some 5 MB.
ROWS = 131_072
#: Events of the engine that the journal has too.
_TOLD = {
    "queue.promoted": "promote",
    "queue.deposed": "depose",
    "queue.deleted": "delete",
    "queue.sync_started": "copy",
    "queue.sync_ended": "sync",
}
STOP_S = 20.0
#: How often it is noted how far mirrors are, and of how many queues at a time: of 200 masters five
#: times a second, of 1,000 once.
POSITIONS_S = 0.2
POSITIONS_QUEUES = 200


class EventJournal:
    """See the module's text. Raises StartError when there is no place or no pyarrow for it."""

    def __init__(self, node: Node) -> None:
        settings = node.settings.journal
        if settings.directory is None and node.data_dir is None:
            raise StartError(
                "journal.enabled: the node keeps no data, so say where with journal.directory"
            )
        try:
            from warren.spark import journal_files
        except ImportError as error:
            raise StartError(
                f"journal.enabled: {error}; pip install 'warrenmq[journal]' brings it"
            ) from error
        self._files = journal_files
        self._node = node
        self._engine = node.engine
        self._settings = settings
        self._pattern = re.compile(settings.queues)
        self.directory = (
            Path(settings.directory)
            if settings.directory is not None
            else Path(str(node.data_dir), "events")
        )
        self.log = logger("store")
        self._run = str(time.time_ns() // 1_000_000)
        self._names = journal_files.Names(node.name)
        #: Buffers are counted: the one at hand, and the newest up to which all are segments.
        self._buffer = self._finished = 0
        self._named: dict[int, AmqpQueue] = {}
        self._seen: dict[int, tuple[int, ...]] = {}
        #: By number of the queue, where all its replicas were when it was last noted.
        self._positions: dict[int, tuple[int, ...]] = {}
        #: Masters that are still to be looked at.
        self._masters: list[Mirror] = []
        self._segment = 0
        self._making = threading.Lock()
        #: What the thread is to do; None: end.
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._spare: tuple[Path | None, mmap.mmap] | None = None
        self._open: tuple[Path | None, mmap.mmap] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._positions_timer: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._work_off, name="event journal", daemon=True)
        journal = None if node.store is None else node.store.journal
        self.buffer = EventBuffer(node.engine.turn, journal, self._exchange, self._name)

    # -- beginning and end -------------------------------------------------------------------------

    def start(self) -> None:
        """Inside the event loop, when all queues are there. Raises StartError."""
        import asyncio

        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._numbers = QueueNumbers(self._names, self.directory / f"{self._run}.names")
        except OSError as error:
            raise StartError(f"journal.directory {self.directory}: {error.strerror}") from error
        left = sorted(self.directory.glob("*.open"))
        self._work.put(lambda: self._finish_left(left))
        self._exchange()
        self._thread.start()
        if self._node.store is not None:
            self._node.store.events = self.buffer
        engine = self._engine
        engine.effects.on_queue = self._attach
        engine.listeners.append(self._told)
        engine.on_return = self._returned
        for vhost in engine.vhosts.values():
            for queue in vhost.queues.values():
                if not queue.is_remote:
                    self._attach(queue)
        if engine.mirrors is not None:
            for mirror in engine.mirrors.by_number.values():
                self._attach(mirror.queue)
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self._settings.interval_s, self._tick)
        if engine.mirrors is not None:
            self._positions_timer = self._loop.call_later(POSITIONS_S, self._tick_positions)

    def stop(self) -> None:
        """Note what queues hold, and write everything."""
        for timer in (self._timer, self._positions_timer):
            if timer is not None:
                timer.cancel()
        self._engine.effects.on_queue = None
        self._engine.on_return = None
        self.buffer.logged()
        self._note_held()
        for queue in self._queues():
            queue.events = None
        self._hand_over()
        self._work.put(None)
        self._thread.join(STOP_S)
        self._numbers.close()

    def _attach(self, queue: AmqpQueue) -> None:
        if self._pattern.search(queue.name):
            queue.events = self.buffer

    def _name(self, queue: AmqpQueue) -> int:
        """The number of a queue, written down before its first event."""
        incarnation = queue.number or queue.queue_id
        number = self._numbers.of_queue(queue.vhost.name, queue.name, incarnation)
        self._named[number] = queue
        return number

    def _told(self, event: str, details: dict[str, Any]) -> None:
        name = _TOLD.get(event)
        if name is None:
            return
        place = (str(details.get("vhost")), str(details.get("name")))
        queue = self._queue_at(*place)
        number = self._numbers.newest(*place) if queue is None else self._name(queue)
        if number is not None:
            epoch = int(details.get("epoch", 0 if queue is None else queue.epoch))
            if name in {"copy", "sync"}:
                number = self._numbers.of_mirror(number, str(details["node"]))
            size, is_done = int(details.get("bytes", 0)), details.get("how") == "done"
            self.buffer.record(number, epoch, NUMBERS[name], size=size, in_sync=is_done)
        if name == "delete" and number is not None:
            self._numbers.forget(*place, self._buffer)
            gone = self._named.pop(number, None)
            if gone is not None:
                # A late ack would be noted under a number that may be another's by then.
                gone.events = None
        if queue is not None and name == "promote":
            # What it holds is on all replicas, whatever the master before has said of it.
            journal_held(queue, True)

    def _queue_at(self, vhost: str, name: str) -> AmqpQueue | None:
        """A queue that is served here and watched."""
        found = self._engine.vhosts.get(vhost)
        queue = None if found is None else found.queues.get(name)
        return None if queue is None or queue.is_remote or queue.events is None else queue

    def _returned(self, vhost: str, size: int) -> None:
        self.buffer.returned(self._numbers.number((vhost, "", 0, "")), size)

    # -- how far mirrors are -----------------------------------------------------------------------

    def _tick_positions(self) -> None:
        assert self._loop is not None
        self._positions_timer = self._loop.call_later(POSITIONS_S, self._tick_positions)
        self._node.in_turn(self.note_positions)

    def note_positions(self) -> None:
        """Of queues whose master is here; so many of them, the next time others.

        Where nothing has moved and nobody is behind, nothing is noted.
        """
        if not self._masters:
            mirrors = self._engine.mirrors
            self._masters = [] if mirrors is None else mirrors.mastered()
        chosen, self._masters = (
            self._masters[:POSITIONS_QUEUES],
            self._masters[POSITIONS_QUEUES:],
        )
        for mirror in chosen:
            replica, queue = mirror.replica, mirror.queue
            if replica is None or not mirror.log.acts or queue.events is not self.buffer:
                continue
            places = replica.positions()
            last = replica.last_index
            known = (last, replica.epoch, *places.values())
            if min(places.values()) >= last and self._positions.get(queue.number) == known:
                continue
            self._positions[queue.number] = known
            own = self._name(queue)
            in_sync = () if mirror.view is None else mirror.view.in_sync
            for node, position in places.items():
                if node != self._node.name:
                    number = self._numbers.of_mirror(own, node)
                    told = (number, replica.epoch, NUMBERS["position"], position, 1, last)
                    self.buffer.record(*told, in_sync=node in in_sync)

    # -- what queues hold --------------------------------------------------------------------------

    def _queues(self) -> list[AmqpQueue]:
        return [
            queue
            for vhost in self._engine.vhosts.values()
            for queue in vhost.queues.values()
            if not queue.is_remote and queue.events is self.buffer
        ]

    def _note_held(self) -> None:
        """Of queues that are served here, and have changed."""
        for queue in self._queues():
            if queue.mirror is not None and not queue.mirror.acts:
                continue
            counts = (
                *(queue.published, queue.acked, queue.dropped, queue.drained, queue.epoch),
                *(queue.delivered_no_ack, queue.got_no_ack, queue.ready, queue.unacked),
            )
            if any(counts) and self._seen.get(id(queue)) != counts:
                self._seen[id(queue)] = counts
                journal_held(queue)

    def _tick(self) -> None:
        assert self._loop is not None
        self._timer = self._loop.call_later(self._settings.interval_s, self._tick)
        self._node.in_turn(self.rotate)

    def rotate(self) -> None:
        """Note what queues hold, and end the segment."""
        self.buffer.logged()
        self._note_held()
        if self.buffer.length:
            self._exchange()

    # -- buffers -----------------------------------------------------------------------------------

    def _exchange(self) -> None:
        """Go on in a fresh buffer; the thread gets the other."""
        self._hand_over()
        spare, self._spare = self._spare, None
        if spare is None:
            spare = self._make()
        path, memory = spare
        if path is not None:
            with contextlib.suppress(OSError):
                path = path.rename(path.with_suffix(".open"))
        offset_us = time.time_ns() // 1000 - time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self.buffer.use(memory, ROWS, offset_us)
        self._open = (path, memory)
        self._buffer += 1
        self._numbers.finished(self._finished)
        self._numbers.trim()
        self._work.put(self._make_spare)

    def _hand_over(self) -> None:
        if self._open is not None:
            path, memory = self._open
            self._open = None
            buffer = self._buffer
            self._work.put(lambda: self._finish(path, memory, buffer))

    def _make(self) -> tuple[Path | None, mmap.mmap]:
        """A buffer with room on the disk; without such, one whose events are lost in the end."""
        with self._making:
            self._segment += 1
            path = self.directory / f"{self._run}-{self._segment:06d}.spare"
        size = bytes_for(ROWS)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
            try:
                # A page without room behind it would end the process when it is written.
                os.posix_fallocate(descriptor, 0, size)
                return path, mmap.mmap(descriptor, size)
            finally:
                os.close(descriptor)
        except OSError as error:
            self.log.error(
                "the event journal in %s has a gap, its file cannot be made: %s",
                self.directory,
                error.strerror,
            )
            with contextlib.suppress(OSError):
                path.unlink()
            return None, mmap.mmap(-1, size)

    @property
    def is_behind(self) -> bool:
        """Whether a buffer that was handed over is no segment yet."""
        return self._finished + 1 < self._buffer

    # -- the thread --------------------------------------------------------------------------------

    def _work_off(self) -> None:
        while (job := self._work.get()) is not None:
            try:
                job()
            except (OSError, self._files.BadSegment) as error:
                self.log.error("the event journal: %s", error)

    def _make_spare(self) -> None:
        if self._spare is None:
            self._spare = self._make()

    def _finish(self, path: Path | None, memory: mmap.mmap, buffer: int) -> None:
        """A buffer becomes a segment. Raises OSError; then its file stays as it is."""
        if path is not None:
            table = self._files.to_table(memory, self._names, str(path))
            if table.num_rows:
                self._files.write_segment(table, path.with_suffix(".parquet"))
            path.unlink()
        if buffer == self._finished + 1:
            # One that stayed needs its names: then no number is given again in this run.
            self._finished = buffer
        if path is not None:
            self._make_room()

    def _finish_left(self, paths: list[Path]) -> None:
        """What a run before this one left."""
        for path in paths:
            names = self._files.read_names(path.with_name(f"{path.stem.partition('-')[0]}.names"))
            table = self._files.to_table(path.read_bytes(), names, str(path))
            if table.num_rows:
                self._files.write_segment(table, path.with_suffix(".parquet"))
            path.unlink()
        for path in [*self.directory.glob("*.spare"), *self.directory.glob("*.names")]:
            # Segments have names of their own.
            if not path.name.startswith(self._run):
                path.unlink()

    def _make_room(self) -> None:
        """The oldest segments go when all together take too much."""
        found = sorted(self.directory.glob("*.parquet"))
        stats = [path.stat() for path in found]
        total = sum(one.st_size for one in stats)
        for path, stat in zip(found[:-1], stats, strict=False):
            if total <= self._settings.bytes_max:
                return
            self._files.note_removed(self.directory, stat.st_mtime)
            path.unlink()
            total -= stat.st_size
