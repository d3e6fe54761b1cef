"""Replicas where policies want them: the work of whoever leads the agreement.

It looks again at every queue that something has happened to, and proposes what differs. One
proposal for a queue at a time; each holds only for the view that it was made for, so whatever
changes meanwhile makes it void, and the queue is looked at again. So the last policy wins.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from warren.cluster.metadata_commands import DropView, UncleanPromote
from warren.cluster.placement import Decision, Loads, Subject, Wish, decide, may_lack
from warren.engine.mirror_links import links_of
from warren.engine.mirroring import is_to_be_mirrored
from warren.telemetry.log import logger

if TYPE_CHECKING:
    from warren.cluster.metadata import Node, View
    from warren.engine.amqp_queue import AmqpQueue
    from warren.model.errand import Errand
    from warren.node.views import QueueViews

#: Proposals under way at a time: what clients change goes with them.
PROPOSALS_MAX = 128
#: A queue that nobody has in full waits this long for one who does, whatever its policy.
PATIENCE_MS = 3_000


def wish_of(queue: AmqpQueue) -> Wish:
    """What the policies of a queue want, and operators besides."""
    effective, links = queue.effective, links_of(queue)
    if not is_to_be_mirrored(queue):
        return Wish(links=links)
    params = effective.ha_params
    if isinstance(params, tuple):
        return Wish(effective.ha_mode, names=params, links=links)
    return Wish(effective.ha_mode, count=params if params is not None else 1, links=links)


def promotions_of(queue: AmqpQueue) -> tuple[bool, bool]:
    """Whether a replica that may lack messages is taken: after a failure, and after a stop."""
    effective = queue.effective
    on_failure = effective.ha_promote_on_failure == "always"
    # Who says that a failure must not lose anything does not want a stop to.
    is_forbidden = effective.mirroring.get("ha-promote-on-failure") == "when-synced"
    return on_failure, effective.ha_promote_on_shutdown == "always" and not is_forbidden


class Placement:
    """`run` proposes what is due; it is called soon after `wake` was asked for."""

    def __init__(
        self,
        queues: QueueViews,
        views: Callable[[], dict[str, View]],
        nodes: Callable[[], dict[str, Node]],
        propose: Callable[[Decision], Errand],
        wake: Callable[[], None],
        now_ms: Callable[[], int],
        find_best: Callable[[AmqpQueue, tuple[str, ...]], Errand],
    ) -> None:
        """`find_best`: which of these nodes has the most of a queue; the errand ends with it."""
        self._queues = queues
        self._views, self._nodes = views, nodes
        self._propose, self._wake = propose, wake
        self._now_ms, self._find_best = now_ms, find_best
        self._log = logger("cluster")
        self._leads = False
        #: Numbers of queues to be looked at, in the order they came; with `_all`, all of them.
        self._due: dict[int, None] = {}
        self._all = False
        #: Number -> the proposal that is under way.
        self._proposed: dict[int, Errand] = {}
        #: Numbers of queues whose proposals have failed: they are looked at a moment later.
        self._failed: set[int] = set()
        #: Number of a queue that nobody has in full -> since when it is seen so.
        self._lost_ms: dict[int, int] = {}
        queues.on_touched = self.touched

    def leads_changed(self, leads: bool) -> None:
        """Whether this node leads the agreement."""
        if leads is not self._leads:
            self._leads = leads
            self._due.clear()
            self._proposed.clear()
            self._failed.clear()
            self._lost_ms.clear()
            if leads:
                self.touched(None)

    def touched(self, number: int | None) -> None:
        """Something has happened to a queue, its policies or its view; None: to all."""
        if not self._leads:
            return
        if number is None:
            self._all = True
        else:
            self._proposed.pop(number, None)
            self._due[number] = None
        self._wake()

    def look(self) -> None:
        """Now and then: what has failed is tried again."""
        if self._failed:
            self._due |= dict.fromkeys(sorted(self._failed))
            self._failed.clear()
            self._wake()

    def run(self) -> None:
        """Propose what has to be agreed on."""
        if not self._leads:
            return
        views, nodes = self._views(), self._nodes()
        if self._all:
            self._all = False
            orphans = (int(key) for key in views if key.isdecimal())
            self._due |= dict.fromkeys((*self._queues.numbers(), *orphans))
        loads = Loads(views.values())
        while self._due and len(self._proposed) < PROPOSALS_MAX:
            number = next(iter(self._due))
            del self._due[number]
            if number not in self._proposed:
                decision = self._decide(number, views.get(str(number)), nodes, loads)
                if decision is not None:
                    self._go(number, decision)

    def _decide(
        self, number: int, view: View | None, nodes: dict[str, Node], loads: Loads
    ) -> Decision | None:
        queue = self._queues.queue(number)
        if queue is None:
            return None if view is None else DropView(str(number), view.epoch)
        subject = Subject(
            str(number),
            queue.home,
            wish_of(queue),
            queue.born_mirrored,
            self._queues.empty_since(number),
        )
        if view is not None and self._promotes(number, queue, view, nodes):
            return None
        decision = decide(subject, view, nodes, loads)
        if decision is not None:
            loads.moved(view, decision.replicas)
        return decision

    def _promotes(self, number: int, queue: AmqpQueue, view: View, nodes: dict[str, Node]) -> bool:
        """Whether a replica that may lack messages is about to become master."""
        candidates = may_lack(view, nodes, *promotions_of(queue))
        if not candidates:
            self._lost_ms.pop(number, None)
            return False
        since_ms = self._lost_ms.setdefault(number, self._now_ms())
        if self._now_ms() - since_ms < PATIENCE_MS:
            self._failed.add(number)  # To be looked at again.
            return False
        errand = self._proposed[number] = self._find_best(queue, candidates)
        errand.when_done(partial(self._promote, number, view, errand))
        return True

    def _promote(self, number: int, view: View, errand: Errand) -> None:
        if self._proposed.get(number) is errand:
            self._log.warning(
                "queue %d has lost all replicas that have everything: %s becomes its master, "
                "as its policy wants",
                number,
                errand.result(),
            )
            self._go(number, UncleanPromote(str(number), view.epoch, errand.result()))

    def _go(self, number: int, decision: Decision) -> None:
        self._log.debug("proposing %r", decision)
        errand = self._proposed[number] = self._propose(decision)
        errand.when_done(partial(self._ended, number, errand))

    def _ended(self, number: int, errand: Errand) -> None:
        if self._proposed.get(number) is not errand:
            return
        del self._proposed[number]
        try:
            errand.result()
        except Exception as error:  # noqa: BLE001 - whatever it was, it is tried again
            self._log.debug("placing queue %d: %s", number, error)
            self._failed.add(number)
        if self._due:
            self._wake()
