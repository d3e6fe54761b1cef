"""Forks: what a side without the majority serves of mirrored queues, with `autoheal`.

A fork is a plain queue of this node, made of what its replica had when the others were lost. It
stands for the queue until the majority is back; then it is closed, and merged into the queue
(`fork_merging.py`). The replica itself is not touched: for the ring nothing has happened. See
docs/adr/0011-a-fork-is-a-queue-of-its-own.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from warren.engine import moving
from warren.engine.fork_merging import LEVEL_SHIFT, Merging
from warren.engine.fork_slots import (
    CHUNK,
    copy_some,
    end_levels,
    flag_all,
    level_ends,
    mark_far,
)
from warren.queue.queue import Queue
from warren.store.fork_files import FORK_BIT, ForkFiles, ForkNote, Lost

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.effects import Effects
    from warren.engine.mirror import Mirror
    from warren.engine.mirrors import Mirrors

#: Messages that are copied in one turn.
COPIED_A_TURN = 1000
#: A priority queue has no more levels; what came back from the log may be one.
LEVEL_MAX = 255


class KeptFork(Queue):
    """A fork that came back from the log: it serves nobody, and is merged."""

    def __init__(self, number: int, effects: Effects) -> None:
        Queue.__init__(self, f"fork {number & ~FORK_BIT}", effects, max_priority=LEVEL_MAX)
        self.vhost = SimpleNamespace(name="")
        self.queue_id = number
        self.durable = True


@dataclass(eq=False)
class Fork:
    """One that is open, or waits to be merged."""

    note: ForkNote
    queue: Queue
    #: The log may lack something of it: nobody knows what clients have acknowledged.
    is_doubtful: bool = False
    #: Slots that its disk could not give back: nobody has acknowledged those.
    lost: list[Lost] = field(default_factory=list)


@dataclass(eq=False)
class _Copy:
    """A fork that is being made."""

    number: int
    mirror: Mirror
    source: AmqpQueue
    queue: AmqpQueue
    cause: str
    rows: bytearray = field(default_factory=bytearray)
    levels: list[tuple[int, int, int]] = field(default_factory=list)
    bases: dict[int, int] = field(default_factory=dict)
    is_given_up: bool = False


class Forks:
    """All forks of a node. Made before the node's log is read."""

    def __init__(self, mirrors: Mirrors) -> None:
        self._mirrors = mirrors
        self._engine = mirrors.engine
        #: None: without a disk for them there are no forks.
        self.files: ForkFiles | None = None
        #: By the queue's number: those that stand for their queues, and those being made.
        self.open: dict[int, Fork] = {}
        self._making: dict[int, _Copy] = {}
        self.merging = Merging(mirrors, self._strike_off)
        #: Forks that the log has spoken of, by their own number.
        self._found: dict[int, KeptFork] = {}
        self._is_doubtful = False
        #: Those whose files cannot be read: nobody knows which queues they are forks of.
        self.unmergeable: list[KeptFork] = []
        #: Number of a queue here -> when another node has last told of a fork of it, and what its
        #: messages wait for.
        self.told: dict[int, tuple[int, str]] = {}
        #: What free room there is for copies; None: nobody knows.
        self.room_bytes: Callable[[], int | None] = _unknown_room

    # -- coming back from the disk -----------------------------------------------------------------

    def found(self, number: int) -> KeptFork:
        """The log speaks of a fork, which may be over by now."""
        assert self._mirrors.journal is not None
        fork = self._found[number] = KeptFork(number, self._engine.effects)
        self._mirrors.journal.queues[number] = fork
        fork.attach(self._mirrors.journal)
        return fork

    def doubt(self) -> None:
        """The log was damaged."""
        self._is_doubtful = True

    def start(self) -> None:
        """All that is in the log has come: what has its file is to be merged, the rest is over."""
        notes = [] if self.files is None else self.files.notes()
        for note in notes:
            queue = self._found.pop(note.number, None)
            lost = None if self.files is None else self.files.lost(note.number)
            is_doubtful = self._is_doubtful or queue is None or lost is None
            if queue is None:
                queue = KeptFork(note.number, self._engine.effects)
                queue.queue_id, queue.durable = 0, False
            queue.vhost.name = note.vhost
            self._to_merge(Fork(note, queue, is_doubtful, lost or []), "the node was stopped")
        unreadable = set() if self.files is None else self.files.unreadable()
        for number in list(self._found):
            if number in unreadable:
                self._engine.log.error(
                    "fork %d: its file cannot be read, so it cannot be merged; its messages stay "
                    "in the log",
                    number & ~FORK_BIT,
                )
                self.unmergeable.append(self._found[number])
            else:
                self._strike_off(self._found.pop(number), number)

    def lost(self, queue: object, slot: int, _place: int, count: int) -> None:
        """The log cannot give something of a queue back, which leaves it: perhaps one of a fork.

        Here it is gone. The others may have it, and must not take it for acknowledged.
        """
        fork = next((it for it in self.open.values() if it.queue is queue), None)
        if fork is None or self.files is None:
            return
        # A whole chunk begins at its first slot, whether that has a message or not.
        is_chunk = count > 1 or slot % CHUNK == 0
        new = count if fork.note.is_new(slot, LEVEL_SHIFT) else 0
        fork.lost.append((slot, slot + CHUNK if is_chunk else slot + 1, new))
        try:
            # Before the log can say that it has left.
            self.files.lose(fork.note.number, fork.lost)
        except OSError as error:
            self._engine.log.error("what fork %s has lost is not kept: %s", fork.note.tag, error)
            fork.is_doubtful = True

    def _strike_off(self, queue: Queue, number: int) -> None:
        """Nobody needs it any more."""
        if self._mirrors.journal is not None:
            self._mirrors.journal.queues.pop(number, None)
        queue.detach()

    # -- opening -----------------------------------------------------------------------------------

    def may_fork(self, queue: Any) -> bool:
        """Whether this node could serve the queue by itself: it has all, and so will keep it."""
        mirror = self._mirrors.by_number.get(queue.number)
        declaration = queue.declaration
        is_lasting = (
            declaration.durable
            and queue.owner is None
            and not declaration.auto_delete
            and queue.effective.expires_ms is None
        )
        if mirror is None or not is_lasting or self.files is None or mirror.replica is None:
            return False
        log = mirror.log
        return not (log.is_broken or log.is_dropped or log.gap[0] < log.gap[1])

    def is_forking(self, number: int) -> bool:
        """Whether there is a fork, or will be in a moment."""
        return number in self.open or number in self._making

    def begin(self, number: int, cause: str) -> bool:
        """Make a fork of the replica here; False: there is no room for it."""
        mirror = self._mirrors.by_number[number]
        room = self.room_bytes()
        if room is not None and mirror.queue.total_bytes * 2 > room:
            return False
        assert self.files is not None
        try:
            own_number = self.files.reserve()
        except OSError as error:
            self._engine.log.warning("no forks: %s", error)
            return False
        if mirror.log.acts:
            mirror.stand_aside()
        source = mirror.queue
        fork = self._mirrors.successor_of(source)
        fork.queue_id = own_number
        fork.durable = True
        assert self._mirrors.journal is not None
        self._mirrors.journal.queues[fork.queue_id] = fork
        fork.attach(self._mirrors.journal)
        copy = self._making[number] = _Copy(number, mirror, source, fork, cause)
        copy.levels = level_ends(source)
        copy.bases = {level: end for level, _, end in copy.levels}
        self._copy_on(copy, 0)
        return True

    def _copy_on(self, copy: _Copy, _now_ms: int) -> None:
        """So much in a turn; other clients of this node have theirs in between."""
        if copy.is_given_up:
            return
        journal = self._mirrors.journal
        assert journal is not None
        limit = COPIED_A_TURN
        while copy.levels and limit > 0:
            level, position, end = copy.levels[0]
            count = len(copy.rows)
            position = copy_some(
                copy.source, copy.queue, journal, level, position, end, limit, copy.rows
            )
            limit -= (len(copy.rows) - count) // 24
            if position < end:
                copy.levels[0] = (level, position, end)
                break
            copy.levels.pop(0)
        if copy.levels:
            at_ms = self._engine.clock.now_ms() + 1
            self._engine.timers.at(at_ms, partial(self._copy_on, copy))
        elif journal.appended > journal.persisted:
            journal.when_persisted(journal.appended, partial(self._copied, copy))
        else:
            # An empty queue of a node that has nothing to write: no sync would come to tell of.
            self._copied(copy)

    def _copied(self, copy: _Copy) -> None:
        """All of it is on the disk: from now on it may be relied on."""
        if copy.is_given_up:
            return
        queue = copy.queue
        end_levels(queue, copy.bases)
        note = ForkNote(
            queue.queue_id,
            copy.number,
            queue.vhost.name,
            queue.name,
            self._engine.settings.node_name,
            copy.bases,
            int(self._engine.clock.wall_s()),
        )
        assert self.files is not None
        try:
            self.files.keep(note, bytes(copy.rows))
        except OSError as error:
            self._engine.log.warning("no fork of queue '%s': %s", queue.name, error)
            self._give_up(copy)
            return
        del self._making[copy.number]
        self.open[copy.number] = Fork(note, queue)
        self._mirrors.note(
            "queue.fork_opened", queue, fork=note.tag, messages=queue.ready, cause=copy.cause
        )
        self._serve(queue)

    def _serve(self, queue: AmqpQueue) -> None:
        now_ms = self._engine.clock.now_ms()
        flag_all(queue)
        mark_far(queue)
        queue.govern(queue.effective, now_ms)
        moving.become_local(self._engine, queue, torn=True)
        queue.begin_acting(now_ms)
        queue.run(now_ms)

    def _give_up(self, copy: _Copy) -> None:
        """It has served nobody."""
        copy.is_given_up = True
        del self._making[copy.number]
        self._strike_off(copy.queue, copy.queue.queue_id)
        copy.mirror.serve_again()

    # -- closing -----------------------------------------------------------------------------------

    def close_all(self) -> None:
        """The majority is back, or about to be: what it says of the queues counts from now on."""
        for copy in list(self._making.values()):
            self._give_up(copy)
        for number in list(self.open):
            self.close(number)

    def close(self, number: int) -> None:
        """The queue is where its master is; what its fork has is merged."""
        copy = self._making.get(number)
        if copy is not None:
            self._give_up(copy)
        fork = self.open.pop(number, None)
        if fork is None:
            return
        queue: Any = fork.queue
        view = self._engine.views.get(number)
        master = None if view is None else view.master
        moving.become_remote(self._engine, queue, master, torn=True)
        mirror = self._mirrors.by_number.get(number)
        if mirror is not None:
            mirror.serve_again()
        self._to_merge(fork, "the majority is back")

    def _to_merge(self, fork: Fork, cause: str) -> None:
        note = fork.note
        self._engine.emit(
            "queue.fork_closed", vhost=note.vhost, name=note.name, fork=note.tag, cause=cause
        )
        self._engine.log.info(
            "fork %s of queue '%s' in vhost '%s' is to be merged: %s",
            note.tag,
            note.name,
            note.vhost,
            cause,
        )
        self.merging.add(fork)

    def describe(self) -> list[dict[str, Any]]:
        """All forks of this node, for operators."""
        shown = [
            {
                "vhost": copy.queue.vhost.name,
                "queue": copy.queue.name,
                "state": "opening",
                "messages": copy.queue.ready,
            }
            for copy in self._making.values()
        ]
        shown += [
            {
                "vhost": fork.note.vhost,
                "queue": fork.note.name,
                "fork": fork.note.tag,
                "state": "open",
                "opened": fork.note.opened_s,
                "messages": fork.queue.ready + fork.queue.unacked,
            }
            for fork in self.open.values()
        ]
        shown += [
            {
                "vhost": "?",
                "queue": "?",
                "fork": f"{self._engine.settings.node_name}/{queue.queue_id & ~FORK_BIT}",
                "state": "unreadable",
                "messages": queue.ready,
                "waits_for": "its file in forks/ cannot be read; its messages stay in the log",
            }
            for queue in self.unmergeable
        ]
        return shown + self.merging.describe()


def _unknown_room() -> int | None:
    return None
