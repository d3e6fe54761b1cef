"""Forks that are over are merged into their queues: nothing that a client was told of is dropped.

This node reads its forks and tells the master, piece by piece: new messages, which are published
under numbers of their own, so that each is taken once however often it is told; and what clients
have let go of, by slot and digest. The master answers how far all its replicas have it, and this
goes on until they have everything. Whoever dies meanwhile, it begins anew and finds what is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from warren.engine.fork_slots import (
    BUSY,
    DIGEST_BYTES,
    bring_in,
    is_there,
    left_ms,
    let_leave,
    message_at,
)
from warren.engine.salvaging import marked
from warren.gateway.errors import HomeGoneError, LinkLostError, MovedError
from warren.gateway.identity import gateway_id
from warren.gateway.messages import decode_message, encode_message
from warren.model.errors import AmqpError
from warren.queue.picking import withdraw
from warren.store.fork_files import FORK_BIT
from warren.wire.content import make_message

if TYPE_CHECKING:
    from warren.engine.engine import Engine
    from warren.engine.forks import Fork
    from warren.engine.mirrors import Mirrors
    from warren.model.errand import Errand
    from warren.model.message import Message

#: Says of a message where it was published during a partition.
AUTOHEAL = "x-autoheal"
LEVEL_SHIFT = 55
ROW_BYTES = 8 + DIGEST_BYTES
#: Messages, their bytes, and settlements that the master is told of at a time.
MESSAGES = 100
MESSAGE_BYTES = 256 * 1024
SETTLED = 2000
#: A message that cannot be read is tried so often; a disk may recover.
TRIES_MAX = 3
#: What is not on all replicas yet, or cannot be told now, is told again after so long.
AGAIN_MS, AGAIN_MS_MAX = 20, 1000

#: What a master answers: how it went, up to which number its replicas have the messages, the
#: numbers that took no place in the queue, and the slots that are not gone yet.
Answer = tuple[str, int, list[int], list[int]]
DONE, LATER, FULL, NO_ROOM, OTHER = "done", "later", "full", "no room", "another queue"
#: In words, for operators.
WHY = {
    LATER: "its master does not serve yet",
    FULL: "the queue is full",
    NO_ROOM: "its master's node is short of memory or disk",
}


@dataclass(eq=False)
class Merge:
    """One fork on its way into its queue."""

    fork: Fork
    #: Who publishes its messages, in the words of the queue.
    gateway: int
    #: Slots of new messages that are not known to be in the queue, in order.
    new: deque[int] = field(default_factory=deque)
    #: What clients have let go of: slot -> digest.
    settled: dict[int, bytes] = field(default_factory=dict)
    #: New ones that the log has not given back, and how often that was tried.
    unread: list[int] = field(default_factory=list)
    tries: int = 0
    #: New ones that are lost for good, as far as anybody knows.
    unreadable: int = 0
    is_told: bool = False
    appended: int = 0
    expired: int = 0
    acknowledged: int = 0
    #: What keeps it from going on.
    waits_for: str = ""
    wait_ms: int = AGAIN_MS


class Merging:
    """All forks of a node that are over. `strike_off` is called with what is done with."""

    def __init__(self, mirrors: Mirrors, strike_off: Callable[[Any, int], None]) -> None:
        self._mirrors = mirrors
        self._engine = mirrors.engine
        self._strike_off = strike_off
        self._merges: dict[int, Merge] = {}
        self._is_awake = False
        #: Whether what this node knows of queues is what the cluster has agreed on.
        self.may_go_on = False
        #: How many forks were merged since the start, and messages brought back.
        self.merged_forks = self.merged_messages = self.salvaged_messages = 0
        self.unreadable_messages = 0

    @property
    def is_in_doubt(self) -> bool:
        """Whether the log may lack something of a fork, so that nobody knows what has left it."""
        return any(merge.fork.is_doubtful for merge in self._merges.values())

    def add(self, fork: Fork) -> None:
        """Merge this one, too."""
        note = fork.note
        merge = Merge(fork, gateway_id(f"fork {note.tag}", note.opened_s))
        self._merges[note.number] = merge
        before = fork.queue.unreadable
        slots = sorted(row[0] for row in fork.queue.walk())
        if fork.queue.unreadable > before:
            # An index of messages: which ones it had, nobody knows any more.
            fork.is_doubtful = True
            merge.unreadable += fork.queue.unreadable - before
        merge.unreadable += sum(new for _, _, new in fork.lost)
        merge.new.extend(slot for slot in slots if note.is_new(slot, LEVEL_SHIFT))
        merge.settled = self._find_settled(fork, set(slots))
        if self._is_awake:
            self._again(merge, AGAIN_MS)

    def look(self, is_ready: bool) -> None:
        """The node runs, and has, or has not, a part in a majority."""
        self.may_go_on = is_ready
        if not self._is_awake:
            # Not earlier: while a node starts nobody looks at its timers.
            self._is_awake = True
            for merge in self._merges.values():
                self._again(merge, AGAIN_MS)

    @property
    def count(self) -> int:
        """Forks that are not merged yet."""
        return len(self._merges)

    def queues(self) -> list[int]:
        """The numbers of the queues that they are forks of."""
        return [merge.fork.note.queue for merge in self._merges.values()]

    def _find_settled(self, fork: Fork, there: set[int]) -> dict[int, bytes]:
        """What was there at the beginning and is not there any more."""
        files = self._mirrors.forks.files
        rows = None if fork.is_doubtful or files is None else files.rows(fork.note.number)
        if rows is None:
            # They come again, which they may.
            return {}
        there.update(chain.from_iterable(range(first, end) for first, end, _ in fork.lost))
        return {slot: digest for slot, digest in _split(rows) if slot not in there}

    # -- telling the master ------------------------------------------------------------------------

    def _again(self, merge: Merge, wait_ms: int, why: str = "") -> None:
        merge.waits_for = why
        merge.wait_ms = min(wait_ms * 2, AGAIN_MS_MAX)
        at_ms = self._engine.clock.now_ms() + wait_ms
        self._engine.timers.at(at_ms, partial(self._go_on, merge))

    def _go_on(self, merge: Merge, now_ms: int) -> None:
        if not self.may_go_on:
            self._again(merge, AGAIN_MS_MAX, "this node has no part in a majority")
            return
        note = merge.fork.note
        vhost = self._engine.vhosts.get(note.vhost)
        queue: Any = None if vhost is None else vhost.queues.get(note.name)
        if queue is None or queue.number != note.queue:
            self._put_aside(merge)
            return
        rows = self._next_messages(merge, now_ms)
        settled = [[*row] for row in islice(merge.settled.items(), SETTLED)]
        if not rows and not settled:
            if merge.new:
                # So many could not be read; those behind them may be.
                self._again(merge, 1)
            elif merge.unread and merge.tries < TRIES_MAX:
                merge.tries += 1
                merge.new.extend(merge.unread)
                merge.unread.clear()
                self._again(merge, AGAIN_MS_MAX, "the disk does not give some of it back")
            else:
                self._over(merge)
            return
        arguments = (note.name, note.queue, merge.gateway, rows, settled)
        here = self._engine.settings.node_name
        if not queue.is_remote:
            self._told(merge, rows, settled, take_in(self._engine, queue, *arguments[1:]))
        elif queue.home == here or queue.absence is not None or self._engine.cluster is None:
            self._again(merge, merge.wait_ms, "the queue has no master")
        else:
            errand = self._engine.cluster.request(
                queue.home, "merge", (note.vhost, *arguments), once=True
            )
            errand.when_done(partial(self._answered, merge, rows, settled, errand))

    def _next_messages(self, merge: Merge, now_ms: int) -> list[list[Any]]:
        """The next ones as they come to the queue: number, message, and how long it has to live.

        What is over is told, too: if it is to be a dead letter, the master sees to that.
        """
        rows: list[list[Any]] = []
        size = 0
        fork = merge.fork
        for slot in list(islice(merge.new, MESSAGES)):
            message = message_at(fork.queue, slot)
            if message is None:
                merge.new.remove(slot)
                if is_there(fork.queue, slot):
                    merge.unread.append(slot)
                continue
            data = encode_message(marked(message, fork.note.tag, AUTOHEAL))
            rows.append([slot + 1, data, left_ms(fork.queue, slot, now_ms)])
            size += len(rows[-1][1])
            if size > MESSAGE_BYTES:
                break
        return rows

    def _answered(self, merge: Merge, rows: Any, settled: Any, errand: Errand) -> None:
        try:
            answer = errand.result()
        except (AmqpError, HomeGoneError, LinkLostError, MovedError) as error:
            self._again(merge, merge.wait_ms, str(error))
            return
        self._told(merge, rows, settled, answer)

    def _told(self, merge: Merge, rows: Any, settled: Any, answer: Answer) -> None:
        how, seen, skipped, busy = answer
        if how == OTHER:
            # This node is about to hear that the queue is gone.
            self._again(merge, merge.wait_ms, "the queue is another one")
            return
        skips, left = frozenset(skipped), frozenset(busy)
        before = len(merge.new), len(merge.settled)
        for number, _, to_live_ms in rows:
            if number <= seen or number in skips:
                merge.new.remove(number - 1)
                is_over = to_live_ms == 0 or number in skips
                merge.appended += not is_over
                merge.expired += is_over
        if how == DONE:
            for slot, _ in settled:
                if slot not in left:
                    del merge.settled[slot]
                    merge.acknowledged += 1
                elif len(merge.settled) > SETTLED:
                    # Others have their turn before this one is asked for again.
                    merge.settled[slot] = merge.settled.pop(slot)
        if (len(merge.new), len(merge.settled)) != before:
            self._again(merge, 1)
        else:
            self._again(merge, merge.wait_ms, WHY.get(how, ""))

    # -- the end -----------------------------------------------------------------------------------

    def _tell_unread(self, merge: Merge) -> None:
        """They are given up: what stands at their places is put aside, as of any other queue."""
        note, queue = merge.fork.note, merge.fork.queue
        places = {row[0]: row[1] for row in queue.walk()} if merge.unread else {}
        journal = self._mirrors.journal
        for slot in merge.unread:
            merge.unreadable += 1
            if journal is not None and journal.on_unreadable is not None and places.get(slot):
                journal.on_unreadable(queue, slot, places[slot], 1)
        merge.unread.clear()
        if merge.unreadable and not merge.is_told:
            merge.is_told = True
            self.unreadable_messages += merge.unreadable
            self._engine.log.warning(
                "fork %s of queue '%s' in vhost '%s': %d messages that were published to it cannot "
                "be read on this node's disk, and nobody else has them",
                note.tag,
                note.name,
                note.vhost,
                merge.unreadable,
            )

    def _over(self, merge: Merge) -> None:
        note = merge.fork.note
        self._tell_unread(merge)
        if not self._drop(merge):
            return
        self.merged_forks += 1
        self.merged_messages += merge.appended
        told = {
            "fork": note.tag,
            "messages": merge.appended,
            "acknowledged": merge.acknowledged,
            "expired": merge.expired,
            "unreadable": merge.unreadable,
        }
        self._engine.emit("queue.fork_merged", vhost=note.vhost, name=note.name, **told)
        self._engine.log.info(
            "fork %s of queue '%s' in vhost '%s' is merged: %d messages brought back, %d "
            "acknowledged here and gone, %d expired",
            note.tag,
            note.name,
            note.vhost,
            merge.appended,
            merge.acknowledged,
            merge.expired,
        )

    def _put_aside(self, merge: Merge) -> None:
        """The queue was deleted meanwhile: what was published to its fork is kept."""
        note, queue = merge.fork.note, merge.fork.queue
        found = ((slot, message_at(queue, slot)) for slot in merge.new)
        rows: list[tuple[int, Message]] = []
        for slot, message in found:
            if message is not None:
                rows.append((slot, message))
            elif is_there(queue, slot) and slot not in merge.unread:
                merge.unread.append(slot)
        what: Any = SimpleNamespace(
            name=note.name, number=note.queue, vhost=SimpleNamespace(name=note.vhost)
        )
        if self._mirrors.salvage is None:
            self._again(merge, AGAIN_MS_MAX, "there is no room to put it aside")
            return
        try:
            self._mirrors.keep_salvage(
                what, note.number & ~FORK_BIT, rows, reason=f"fork {note.tag} has lost its queue"
            )
        except OSError as error:
            self._again(merge, AGAIN_MS_MAX, str(error))
            return
        self._tell_unread(merge)
        self.salvaged_messages += len(rows)
        merge.new.clear()
        self._drop(merge)

    def _drop(self, merge: Merge) -> bool:
        """False: the disk does not forget it; what is done already is found done then."""
        number, queue = merge.fork.note.number, merge.fork.queue
        assert self._mirrors.forks.files is not None
        try:
            self._mirrors.forks.files.drop(number)
        except OSError as error:
            self._again(merge, AGAIN_MS_MAX, str(error))
            return False
        del self._merges[number]
        self._strike_off(queue, number)
        return True

    def describe(self) -> list[dict[str, Any]]:
        """For operators."""
        return [
            {
                "vhost": merge.fork.note.vhost,
                "queue": merge.fork.note.name,
                "fork": merge.fork.note.tag,
                "state": "merging",
                "opened": merge.fork.note.opened_s,
                "messages": len(merge.new),
                "acknowledgements": len(merge.settled),
                "unreadable": merge.unreadable + len(merge.unread),
                "waits_for": merge.waits_for,
            }
            for merge in self._merges.values()
        ]


def _split(rows: bytes) -> Iterator[tuple[int, bytes]]:
    for at in range(0, len(rows), ROW_BYTES):
        yield int.from_bytes(rows[at : at + 8], "little"), rows[at + 8 : at + ROW_BYTES]


# -- at the master ---------------------------------------------------------------------------------


def came_before(log: Any, gateway: int, sequence: int, message: Message) -> bool:
    """Whether a message of a fork has been taken already, by whichever master."""
    return log.has_taken(gateway, sequence, message) is not False


def _note_told(engine: Engine, number: int, how: str) -> None:
    """For operators, who ask the master."""
    if engine.mirrors is not None:
        engine.mirrors.forks.told[number] = (engine.clock.now_ms(), WHY.get(how, ""))


def take_in(
    engine: Engine, queue: Any, number: int, gateway: int, rows: list[Any], settled: list[Any]
) -> Answer:
    """A node tells of a fork that it had: what was published there, and what has left there.

    What is done is told only when all replicas have it, so the same is asked for again.
    """
    log = queue.mirror
    slots = [slot for slot, _ in settled]
    if queue.number != number:
        return OTHER, 0, [], slots
    if log is None or not log.acts or not engine.passing.may_take_from(queue):
        return LATER, 0, [], slots
    if engine.alarms:
        _note_told(engine, number, NO_ROOM)
        return NO_ROOM, log.seen.get(gateway, 0), [], slots
    busy = [slot for slot, digest in settled if let_leave(queue, slot, digest, withdraw) == BUSY]
    now_ms = engine.clock.now_ms()
    skipped: list[int] = []
    is_full = has_new = False
    for sequence, data, to_live_ms in rows:
        message = decode_message(data)
        message = make_message(message.address, message.header, message.body)
        if came_before(log, gateway, sequence, message):
            continue
        taken = bring_in(queue, message, now_ms, gateway, sequence, to_live_ms)
        if engine.journal is not None:
            engine.journal.finish_publish(message)
        if taken is None:
            is_full = True
            break
        has_new |= taken
        if not taken:
            skipped.append(sequence)
    if has_new:
        # Whoever is the master next flags them, too.
        queue.open_ahead(1 << 50)
    queue.run(now_ms)
    _note_told(engine, number, FULL if is_full else DONE)
    return FULL if is_full else DONE, log.seen.get(gateway, 0), skipped, busy
