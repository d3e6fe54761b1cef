"""Healing: what a replica cannot read on its own disk, the other replicas in sync still have.

A message that cannot be read when its turn comes stays in its slot, and the queue delivers nothing
past it. The others in sync are asked for it, one after the other; slots are the same everywhere.
What comes is written here once more. It is lost only when nobody else is in sync, or when all who
are have said that they do not have it either. Who does not answer is asked again, until the view
says that it is not in sync any more. Mirrors and learners ask as well as the master: for what is
found before anybody wants it (`scrubbing.py`), and for ranges that they are read.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from warren.gateway.errors import HomeGoneError, LinkLostError, MovedError
from warren.model.errors import AmqpError

if TYPE_CHECKING:
    from warren.engine.mirror import Mirror
    from warren.engine.mirrors import Mirrors
    from warren.model.errand import Errand

#: Who has not answered by then is passed over; a long message may still come later.
ANSWER_MS = 2_000
#: When nobody has answered, all are asked again after so long.
AGAIN_MS = 50


class _Missing:
    """A message that the others are asked for."""

    __slots__ = ("asked", "known", "place", "slot", "tries", "without")

    def __init__(self, slot: int, known: int, place: int) -> None:
        self.slot = slot
        #: Where it stood in the log: another message may be given its slot, but not its place.
        self.place = place
        #: The message came with one of the operations up to here.
        self.known = known
        #: Who does not have it either.
        self.without: set[str] = set()
        #: Who was asked in this round.
        self.asked: set[str] = set()
        self.tries = 0


class Healing:
    """Of one mirrored queue. It acts while the others have what this replica has."""

    def __init__(self, mirrors: Mirrors, mirror: Mirror) -> None:
        self._mirrors = mirrors
        self._mirror = mirror
        self._engine = mirrors.engine
        self._missing: dict[int, _Missing] = {}
        #: Slots of what nobody has.
        self._given_up: set[int] = set()

    @property
    def _others(self) -> list[str]:
        view, here = self._mirror.view, self._engine.settings.node_name
        return [] if view is None else [name for name in view.in_sync if name != here]

    @property
    def has_others(self) -> bool:
        """Whether there are others that have everything, or may be: nobody has said so far."""
        return self._mirror.view is None or bool(self._others)

    @property
    def _is_part(self) -> bool:
        """Whether those in sync have the same messages as this replica.

        Of who is not in sync that is known when its log is a beginning of the master's.
        """
        replica, view = self._mirror.replica, self._mirror.view
        if replica is None or view is None:
            return False
        here = self._engine.settings.node_name
        return here == view.master or here in view.in_sync or replica.is_matched

    def ask(self, slot: int) -> bool:
        """Have a message brought that cannot be read here; False: nobody is asked for it."""
        if slot in self._given_up or not self._is_part or not self._others:
            return False
        if slot not in self._missing:
            queue, place = self._mirror.queue, self._mirror.log.missing_at(slot)
            missing = self._missing[slot] = _Missing(slot, queue.operations, place)
            # Not in the middle of what the queue does.
            self._engine.later(lambda _now_ms: self._ask_next(missing))
        return True

    def is_given_up(self, slot: int) -> bool:
        """Whether nobody has a message that cannot be read here, or nobody can be asked."""
        view = self._mirror.view
        is_alone = view is not None and view.in_sync == (self._engine.settings.node_name,)
        return is_alone or slot in self._given_up

    def view_changed(self) -> None:
        """Others may be in sync, or none, or another is the master."""
        self._given_up.clear()
        if not self._is_part:
            self._missing.clear()
        for missing in list(self._missing.values()):
            self._engine.later(partial(self._look_again, missing))

    def _look_again(self, missing: _Missing, _now_ms: int) -> None:
        """Whom it waits for may be out of sync."""
        if self._is_wanted(missing) and not set(self._others) - missing.without:
            self._give_up(missing)

    def _is_wanted(self, missing: _Missing) -> bool:
        return self._is_part and self._missing.get(missing.slot) is missing

    def _ask_next(self, missing: _Missing) -> None:
        if not self._is_wanted(missing):
            return
        others = [name for name in self._others if name not in missing.without]
        cluster = self._engine.cluster
        if not others or cluster is None:
            self._give_up(missing)
            return
        missing.tries += 1
        node = next((name for name in others if name not in missing.asked), None)
        if node is None:
            missing.asked.clear()
            self._again_after(AGAIN_MS, missing)
            return
        missing.asked.add(node)
        queue = self._mirror.queue
        arguments = (queue.vhost.name, queue.number, missing.slot)
        self._again_after(ANSWER_MS, missing)
        errand = cluster.request(node, "copy", arguments, once=True)
        answered = partial(self._answered, missing, missing.tries, node, errand)
        # Not in the middle of what the link brings.
        errand.when_done(lambda: self._engine.later(answered))

    def _again_after(self, pause_ms: int, missing: _Missing) -> None:
        tries = missing.tries

        def ring(_now_ms: int) -> None:
            if missing.tries == tries:
                self._ask_next(missing)

        self._engine.timers.at(self._engine.clock.now_ms() + pause_ms, ring)

    def _answered(
        self, missing: _Missing, tries: int, node: str, errand: Errand, _now_ms: int
    ) -> None:
        if not self._is_wanted(missing):
            return
        try:
            data, last = _parts_of(errand.result())
            if self._mirror.log.missing_at(missing.slot) != missing.place:
                # It has left meanwhile, or has come another way.
                self._end(missing)
                return
            if data:
                self._mirror.log.mend(missing.slot, data)
                self._mended(missing, node)
                return
            if last >= missing.known:
                missing.without.add(node)
        except (HomeGoneError, LinkLostError, MovedError, AmqpError):
            # It is asked again later, unless the view says that it is gone.
            pass
        except ValueError as error:
            self._engine.log.error("a message of %s that is none: %s", node, error)
            missing.without.add(node)
        if missing.tries == tries:
            self._ask_next(missing)

    def _mended(self, missing: _Missing, node: str) -> None:
        cause = "a message could not be read on the disk of this node"
        self._mirrors.mended += 1
        self._mirrors.note(
            "queue.mended", self._mirror.queue, slot=missing.slot, node=node, cause=cause
        )
        self._end(missing)

    def _give_up(self, missing: _Missing) -> None:
        """Nobody has it: the queue loses it when it tries again."""
        self._given_up.add(missing.slot)
        self._end(missing)

    def _end(self, missing: _Missing) -> None:
        del self._missing[missing.slot]
        mirror = self._mirror
        if mirror.log.acts:
            mirror.queue.mending_ended(self._engine.clock.now_ms())
            mirror.log.wake(mirror.log.commit_index)


def _parts_of(answer: Any) -> tuple[bytes, int]:
    """(message, how far the other's log is). Raises ValueError for what is no answer."""
    if (
        not isinstance(answer, list | tuple)
        or len(answer) != 2
        or not isinstance(answer[0], bytes)
        or not isinstance(answer[1], int)
    ):
        raise ValueError("an answer that no node gives")
    return answer[0], answer[1]
