"""What is told of a promotion: who was the master before, how long it took, and what it cost.

Each replica keeps who was the master, and since when it knows that this one is gone. Clocks are
this node's own, so what it takes is measured on the node that takes over: from the moment when it
lost its link to the old master, or heard of the new view, to the moment when it serves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren.engine.ring_changes import UNWANTED

if TYPE_CHECKING:
    from warren.replication.types import View

#: The old master is there and has everything still: it was asked to hand over.
HANDOVER = "handover"
#: The policy wants no replica on its node any more, and a mirror that has everything took over.
POLICY = "policy"
#: It is gone, and a mirror that had everything took its place.
FAILURE = "failure"
#: It is gone, and a mirror that may lack messages took its place.
UNCLEAN = "unclean"
#: ... where the old master had not waited for the others.
MAY_LOSE = {FAILURE, POLICY}
#: Nobody else was the master before: the queue was down, and its replica is back.
RETURN = "return"


def why_deposed(view: View | None, here: str) -> dict[str, Any]:
    """Who is the master in the place of this node, and why: it has everything still, or not."""
    if view is None:
        return {"master": None, "cause": "the queue is gone, or not mirrored any more"}
    cause = "the others have gone on without this node"
    if here in view.in_sync:
        cause = HANDOVER
    elif _is_unwanted(here, view):
        cause = UNWANTED
    return {"master": view.master, "cause": cause}


def _is_unwanted(node: str, view: View) -> bool:
    wanted: tuple[str, ...] = getattr(view, "wanted", ())
    return bool(wanted) and node not in wanted


class Succession:
    """Of one replica on this node."""

    __slots__ = ("_before", "_here", "_is_policy", "_is_unclean", "_noticed_ms", "_view")

    def __init__(self, here: str) -> None:
        self._here = here
        self._view: View | None = None
        #: Who was the last master, if it was another.
        self._before: str | None = None
        self._noticed_ms: int | None = None
        #: It is the master by a view that gave up what it may lack; that wants the other no more.
        self._is_unclean = self._is_policy = False

    def view_changed(self, view: View, now_ms: int) -> None:
        """The cluster has agreed on another view."""
        was = None if self._view is None else self._view.master
        if was is not None and was != self._here:
            self._before = was
            # Later ones may want another in the place of one that is dead.
            self._is_policy = view.master == self._here and _is_unwanted(was, view)
        if view.master == self._here and was != self._here and self._noticed_ms is None:
            self._noticed_ms = now_ms
        elif view.master is not None and view.master != self._here:
            # Another one serves: what was noticed before is over.
            self._noticed_ms = None
            self._is_unclean = False
        # Later views of the same master, before it serves, do not say so any more.
        self._is_unclean |= view.master == self._here and view.unclean == view.epoch
        self._view = view

    def peer_down(self, peer: str, now_ms: int) -> None:
        """The link to a node is lost."""
        is_master = self._view is not None and self._view.master == peer
        if is_master and self._noticed_ms is None:
            self._noticed_ms = now_ms

    def peer_up(self, peer: str) -> None:
        """It was only the link."""
        if self._view is not None and self._view.master == peer:
            self._noticed_ms = None

    def served(self, now_ms: int, flagged: int, was_early: bool = False) -> dict[str, Any]:
        """This node serves; `flagged` messages go out as redelivered.

        `was_early`: the old master has confirmed before its mirrors had everything.
        """
        view, before = self._view, self._before
        cause = RETURN
        if self._is_unclean:
            cause = UNCLEAN
        elif before is not None:
            is_there = view is not None and before in view.in_sync
            cause = HANDOVER if is_there else POLICY if self._is_policy else FAILURE
        took_ms = 0 if self._noticed_ms is None else now_ms - self._noticed_ms
        self._before = self._noticed_ms = None
        self._is_unclean = self._is_policy = False
        return {
            "node": self._here,
            "from": before,
            "cause": cause,
            "took_ms": took_ms,
            # Of a master that is gone nobody knows how much more it had, until it is back.
            "dropped": None if cause == UNCLEAN or (was_early and cause in MAY_LOSE) else 0,
            # After a handover clients keep what they hold.
            "redelivered": None if cause == HANDOVER else flagged,
        }
