"""The node's store: brings the engine back at the start, then keeps the log going beside the loop.

The log's thread rings a descriptor whenever it has synced something: then confirms, answers and
deliveries that waited go on. Beside that a timer drives the upkeep, and pages messages out
when they take more memory than they may.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warren.engine.agreed import AgreedKeeper
from warren.engine.cursors import resume_cursors
from warren.engine.metadata import MetadataKeeper
from warren.node.errors import StartError
from warren.store.bad_sectors import read_around, read_pieces
from warren.store.checkpoint import UnknownCheckpointError
from warren.store.files import RealFiles
from warren.store.fork_files import ForkDirectory
from warren.store.records import Kind, segment_name
from warren.store.recovery import UNREADABLE_BYTES, Recovery, blame
from warren.store.salvage import SalvageDirectory
from warren.store.scan import UnknownFormatError
from warren.store.start_marks import CUT_MARK, DAMAGE_MARK, clear_mark, keep_damage
from warren.store.upkeep import Done, Upkeep, UpkeepSettings
from warren.store.writer import LogWriter
from warren.telemetry.endings import endings
from warren.telemetry.log import logger

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.delay import WaitingRoom
    from warren.engine.engine import Engine
    from warren.node.disk import DiskWatch
    from warren.node.failure import Failure
    from warren.telemetry.event_buffer import EventBuffer

MakeKeeper = Callable[["Engine", Callable[[bytes], None]], MetadataKeeper]

#: How often the upkeep gets its turn, in seconds.
TICK_S = 0.05
#: A start that had to read more records than this is followed by a checkpoint.
LONG_TAIL_RECORDS = 10_000
#: A share of the budget stays for what consumers will ask for next.
HEAD_SHARE = 0.25
MESSAGE_OVERHEAD_BYTES = 160
#: The longest a stopping node waits for a checkpoint that is under way, in seconds.
STOP_PATIENCE_S = 30.0


class NodeStore:
    """`__init__` recovers; `start` inside the event loop; `stop` writes the last checkpoint."""

    def __init__(
        self,
        path: Path,
        engine: Engine,
        budget_bytes: int,
        upkeep: UpkeepSettings | None = None,
        make_keeper: MakeKeeper = MetadataKeeper,
    ) -> None:
        """Raises StartError when the directory holds what this version cannot read."""
        self.path = path
        self.engine = engine
        #: What messages may take of memory.
        self.budget_bytes = budget_bytes
        self.log = logger("store")
        began_s = time.monotonic()
        log_path = str(path / "log")
        self.files = RealFiles(log_path)
        self.salvage = SalvageDirectory(str(path / "salvage"))
        wall_offset_ms = time.time_ns() // 1_000_000 - engine.clock.now_ms()
        self.keeper = make_keeper(engine, self._append_metadata)
        self.keeper.on_queue = self._enrol
        self.keeper.on_queue_gone = self._strike_off
        try:
            recovery = Recovery(self.files, wall_offset_ms, secrets.randbits(32), self.salvage)
            self.journal = engine.journal = recovery.journal
            if engine.mirrors is not None:
                engine.mirrors.attach_journal(self.journal)
                engine.mirrors.salvage = self.salvage
                engine.mirrors.forks.files = ForkDirectory(str(path / "forks"))
            recovery.run(self._load, self.keeper.apply)
            # Without a cluster there is nobody to be told.
            self.is_damaged = engine.mirrors is not None and keep_damage(
                self.files, bool(recovery.damages), engine.mirrors.is_damaged
            )
            writer = LogWriter(
                log_path,
                recovery.next_sequence,
                last_segment=recovery.last_segment,
                salt=self.journal.salt,
            )
        except (UnknownFormatError, UnknownCheckpointError) as error:
            raise StartError(f"{path}: {error}. It is left as it is") from error
        except OSError as error:
            raise StartError(f"the log in {path} cannot be read: {error}") from error
        self._prepare_to_tell(recovery)
        self.writer = writer
        endings.directories.add(writer.where)
        self.journal.start(writer)
        self.journal.on_unreadable = self._unreadable
        self.keeper.attach()
        self.upkeep = Upkeep(
            self.journal, self.files, self.keeper.snapshot, upkeep, aside=self._aside
        )
        self.recovered_s = time.monotonic() - began_s
        #: The event journal's buffer, which wants to know what is on the disk; None: there is none.
        self.events: EventBuffer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._in_turn: Callable[[Callable[[], None]], None] | None = None
        self._failure: Failure | None = None
        self._disk: DiskWatch | None = None
        self._told_put_off = self._has_left = False
        #: What the disk watch was told last of the room that the writer saw.
        self._free_bytes_told = -1
        self._report(recovery)
        self._wants_checkpoint = bool(recovery.damages) or recovery.records > LONG_TAIL_RECORDS

    # -- coming back -------------------------------------------------------------------------------

    def _load(self, snapshot: bytes) -> None:
        try:
            self.keeper.load(snapshot)
        except ValueError as error:
            for problem in str(error).splitlines():
                self.log.error("the checkpoint: %s", problem)

    def _prepare_to_tell(self, recovery: Recovery) -> None:
        """The cluster is to know what is, or may be, missing."""
        mirrors = self.engine.mirrors
        if mirrors is not None:
            mirrors.is_cut = recovery.is_cut
            mirrors.on_registered = self._all_is_told
            if self.is_damaged:
                mirrors.doubt()
            mirrors.is_doubtful = mirrors.is_damaged
        if self.is_damaged and isinstance(self.keeper, AgreedKeeper):
            self.keeper.is_doubtful = True

    def _all_is_told(self) -> None:
        assert self.engine.mirrors is not None
        try:
            clear_mark(self.files, CUT_MARK)
            if not self.engine.mirrors.forks.merging.is_in_doubt:
                clear_mark(self.files, DAMAGE_MARK)
        except OSError as error:
            self.log.warning(
                "a mark in %s cannot be removed (%s): the next start will tell the cluster once "
                "more that the log was cut off or damaged",
                self.files.directory,
                error.strerror,
            )

    def _report(self, recovery: Recovery) -> None:
        for note in recovery.notes:
            self.log.warning(note)
        for damage in recovery.damages:
            self.log.error(damage)
        if self.is_damaged and not recovery.damages:
            self.log.warning(
                "the log was damaged at an earlier start, and the cluster was not told: its other "
                "nodes are asked for all that is mirrored"
            )
        if recovery.damages:
            self.log.error(
                "the log was damaged; what is sound is served, what could be saved of the rest "
                "is in %s",
                self.salvage.path,
            )
        queues = self.journal.queues.values()
        self.log.info(
            "recovered %d queues with %d messages in %.2f s; %d records read",
            len(queues),
            sum(queue.ready for queue in queues),
            self.recovered_s,
            recovery.records,
        )

    def tell_damage(self) -> None:
        """The events of what the start has found; nobody listens while it is found."""
        for queue in self.journal.queues.values():
            if queue.damage:
                self.engine.emit(
                    "queue.damaged", vhost=queue.vhost.name, name=queue.name, what=queue.damage
                )

    def _append_metadata(self, payload: bytes) -> None:
        self.journal.put(Kind.METADATA, payload)

    def _enrol(self, queue: AmqpQueue | WaitingRoom) -> None:
        self.journal.queues[queue.queue_id] = queue
        queue.attach(self.journal)

    def _strike_off(self, queue: AmqpQueue | WaitingRoom) -> None:
        self.journal.queues.pop(queue.queue_id, None)
        queue.detach()

    # -- at work -----------------------------------------------------------------------------------

    def start(
        self,
        loop: asyncio.AbstractEventLoop,
        in_turn: Callable[[Callable[[], None]], None],
        failure: Failure,
        disk: DiskWatch | None,
    ) -> None:
        """Join the loop."""
        self._loop = loop
        self._in_turn = in_turn
        self._failure = failure
        self._disk = disk
        if self.engine.mirrors is not None:
            self.engine.mirrors.forks.room_bytes = self._room_bytes
            self.engine.mirrors.scrub.aside = self._read_aside
        loop.add_reader(self.writer.event_fd, self._on_persisted)
        in_turn(self._catch_up)
        if self.engine.mirrors is not None:
            self.engine.mirrors.scrub.go_through()
        if self._wants_checkpoint:
            # The next start need not read the same again, nor stumble over the same damage.
            self.upkeep.begin()
        self._timer = loop.call_later(TICK_S, self._tick)

    def _room_bytes(self) -> int | None:
        """What the disk has left above its limit; None: nobody knows."""
        if self._disk is None or self._disk.free_bytes is None:
            return None
        return self._disk.free_bytes - self._disk.limit_bytes

    def _catch_up(self) -> None:
        """What happened while the node was down: times to live ran out, limits were set."""
        now_ms = self.engine.clock.now_ms()
        self.engine.resume_delayed()
        for vhost in list(self.engine.vhosts.values()):
            for queue in list(vhost.queues.values()):
                if not queue.is_remote:
                    resume_cursors(self.engine, queue)
                if queue.ready:
                    governing = self.engine.find_governing(
                        vhost, queue.name, queue.declaration.arguments
                    )
                    self.engine.govern_queue(queue, governing)
                    queue.expire(now_ms)

    def _on_persisted(self) -> None:
        os.eventfd_read(self.writer.event_fd)
        assert self._in_turn is not None
        free_bytes = self.writer.free_bytes
        # The writer looks every few megabytes only: what it saw then is news once. Told again with
        # every batch it would clear an alarm that somebody else's files have raised since.
        if self._disk is not None and free_bytes != self._free_bytes_told:
            self._free_bytes_told = free_bytes
            self._disk.note_free_bytes(free_bytes)
        try:
            self._in_turn(self._moved_on)
        except OSError as error:
            self._fail(error)

    def _moved_on(self) -> None:
        self.journal.moved_on(self.engine.turn.now_ms)
        if self.events is not None:
            self.events.logged()
        if self.journal.resident_bytes > self.budget_bytes:
            self._page_out()

    def _tick(self) -> None:
        assert self._in_turn is not None
        assert self._loop is not None
        try:
            self._in_turn(self._keep_up)
        except OSError as error:
            self._fail(error)
            return
        if self.upkeep.error is not None:
            self._fail(self.upkeep.error)
            return
        if self._told_put_off != (self.upkeep.put_off is not None):
            self._tell_put_off()
        self._timer = self._loop.call_later(TICK_S, self._tick)

    def _tell_put_off(self) -> None:
        self._told_put_off = not self._told_put_off
        if self._told_put_off:
            self.log.error(
                "there is no room for a checkpoint of the log: %s; it is tried again, and no room "
                "of the log is given back until it is there",
                self.upkeep.put_off,
            )
        else:
            self.log.info("there is room for checkpoints again")

    def _keep_up(self) -> None:
        self.journal.finish_turn()
        self.journal.advance()
        if self.keeper.is_whole:
            self.upkeep.tick()
        if self.journal.resident_bytes > self.budget_bytes:
            self._page_out()

    def _page_out(self) -> None:
        """Only what consumers ask for next stays in memory, so much for each queue."""
        queues: list[Any] = [
            queue
            for vhost in self.engine.vhosts.values()
            for queue in vhost.queues.values()
            if queue.ready or queue.unacked or queue.retained
        ]
        if self.engine.mirrors is not None:
            queues += self.engine.mirrors.idle_copies()
        queues += [room for room in self.engine.delayed.values() if room.ready]
        share = self.budget_bytes * HEAD_SHARE / max(1, len(queues))
        for queue in queues:
            count = queue.ready + queue.unacked + queue.retained
            average = (queue.total_bytes + queue.retained_bytes) // count + MESSAGE_OVERHEAD_BYTES
            queue.page_out(int(share / average))

    def _aside(self, work: Callable[[], None], done: Done) -> None:
        assert self._loop is not None
        future = self._loop.run_in_executor(None, work)

        def tell(finished: asyncio.Future[None]) -> None:
            error = None if finished.cancelled() else finished.exception()
            done(error if isinstance(error, Exception) else None)

        future.add_done_callback(tell)

    def _read_aside(
        self, pieces: list[tuple[int, int]], done: Callable[[list[bytes]], None]
    ) -> None:
        """Read (place, size) of the log in a thread; `done` has it in a turn of the loop.

        With descriptors of its own, that are closed again: segments may be deleted meanwhile.
        """
        wanted = [
            (segment_name(self.journal.segment_first(place >> 32)), place & 0xFFFFFFFF, size)
            for place, size in pieces
        ]
        found: list[bytes] = []

        def told(_error: Exception | None) -> None:
            found.extend([b""] * (len(wanted) - len(found)))
            if self._in_turn is not None and not self._has_left:
                self._in_turn(lambda: done(found))

        self._aside(lambda: found.extend(read_pieces(self.files.directory, wanted)), told)

    def _fail(self, error: Exception) -> None:
        assert self._failure is not None
        self._leave_loop()
        self._failure.set(error)

    def _unreadable(self, queue: Any, _slot: int, place: int, count: int) -> None:
        """A message in the log cannot be read back: its queue says so, its bytes are put aside."""
        name = segment_name(self.journal.segment_first(place >> 32))
        offset = place & 0xFFFFFFFF
        what = f"{count} message{'s' * (count > 1)} at {name}:{offset} cannot be read"
        blame(queue, what)
        self.log.error("queue '%s' in vhost '%s': %s", queue.name, queue.vhost.name, what)
        self.engine.emit("queue.damaged", vhost=queue.vhost.name, name=queue.name, what=what)
        try:
            data, _ = read_around(self.files, name, offset, UNREADABLE_BYTES)
            self.salvage.keep(name, offset, data, what)
        except OSError as error:
            self.log.error("%s could not be put aside: %s", name, error.strerror)

    # -- the end -----------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Write and sync everything, and a checkpoint of it. Raises OSError."""
        deadline_s = time.monotonic() + STOP_PATIENCE_S
        while self.upkeep.is_busy and self.keeper.is_whole and time.monotonic() < deadline_s:
            await asyncio.sleep(0.01)
            self.journal.advance()
            self.upkeep.tick()
        self._leave_loop()
        if self.keeper.is_whole:
            self.upkeep.write_now(clean=True)
        self.close()

    def _leave_loop(self) -> None:
        self._has_left = True
        if self._loop is not None and self.writer.event_fd >= 0:
            self._loop.remove_reader(self.writer.event_fd)
        if self._timer is not None:
            self._timer.cancel()

    def close(self) -> None:
        """Let go of the files; what was appended is on the disk."""
        self.writer.close()
        self.files.close()
        # Queues and journal hold each other.
        self.journal.queues.clear()
