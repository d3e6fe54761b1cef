"""The product with one of the rules left out that wide schedules are about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from sim import broker_store
from warren.engine import mirror, moving
from warren.engine.metadata_format import Change
from warren.engine.mirror import Mirror
from warren.engine.mirrors import Mirrors
from warren.engine.scrubbing import Scrub
from warren.node.rings import Rings
from warren.node.views import QueueViews
from warren.replication.replica import Replica

_become_local = moving.become_local
_move_home = QueueViews._move_home


class IgnoresTheFloor(Replica):
    """What is in sync is enough, however few that are."""

    has_enough = True  # type: ignore[assignment]


class PutsNothingAside(Replica):
    """What an unclean promotion has cut off goes."""

    def _salvage(self, at: int, promised_at: int) -> None: ...


def _govern_late(engine: Any, queue: Any, keep_deliveries: bool = False) -> None:
    queue.configure(now_ms=engine.clock.now_ms())
    _become_local(engine, queue, keep_deliveries)
    queue.govern(queue.effective, engine.clock.now_ms())


def _stay_absent(views: QueueViews, queue: Any, view: Any, planned: bool) -> None:
    absence = queue.absence
    _move_home(views, queue, view, planned)
    if not queue.is_remote and absence is not None:
        queue.absence = absence


def _nothing(*_: Any) -> None: ...


def _never(_: Any) -> bool:
    return False


def _only_what_is_found(_files: Any, is_found: bool, _is_partial: bool = False) -> bool:
    return is_found


#: name -> what is replaced in the product: (where, what, by what)
MUTANTS: dict[str, tuple[tuple[Any, str, Any], ...]] = {
    "IgnoresTheFloor": ((mirror, "Replica", IgnoresTheFloor),),
    "PutsNothingAside": ((mirror, "Replica", PutsNothingAside),),
    "DropsWithoutSalvage": ((Mirror, "put_aside_if_given_up", _nothing),),
    "TellsNoLoss": ((QueueViews, "_tell_unclean", _nothing),),
    "DeclaresNoDamage": (
        (Mirrors, "doubt", _nothing),
        (Mirrors, "is_damaged", property(_never)),
        (Rings, "are_damaged", property(_never)),
    ),
    "ForgetsDamage": ((broker_store, "keep_damage", _only_what_is_found),),
    "ReadsNothingOver": ((Scrub, "go_through", _nothing), (Scrub, "begin", _nothing)),
    "CountsUnread": ((Scrub, "begin", _nothing),),
    "GovernsLate": ((moving, "become_local", _govern_late),),
    "StaysAbsent": ((QueueViews, "_move_home", _stay_absent),),
    "DeletesAsAnybody": ((Change, "epoch", None),),
}


@contextmanager
def mutant(name: str) -> Iterator[None]:
    """The product is that mutant, for a while."""
    with ExitStack() as stack:
        for where, what, by in MUTANTS[name]:
            stack.enter_context(mock.patch.object(where, what, by))
        yield
