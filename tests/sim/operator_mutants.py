"""The product with one of the rules left out that schedules with operators are about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from warren.cluster.placement import Wish
from warren.management import transferring
from warren.management.rebalancer import Rebalancer
from warren.management.rebalancing import MirroredQueue
from warren.node import placement
from warren.node.draining import Draining

_mirrored = Rebalancer._mirrored
_wish_of = placement.wish_of


def _all_heirs(rebalancer: Rebalancer, order: Any, facts: Any) -> list[MirroredQueue]:
    """All who are to have a replica may be masters."""
    found = []
    engine = rebalancer._context.engine
    for it in _mirrored(rebalancer, order, facts):
        view = engine.views[engine.vhosts[it.vhost].queues[it.name].number]
        heirs = tuple(name for name in view.wanted if name != it.master and name in facts)
        found.append(MirroredQueue(it.vhost, it.name, it.master, heirs, it.messages))
    return found


def _without_links(queue: Any) -> Wish:
    wish = _wish_of(queue)
    return Wish(wish.mode, wish.count, wish.names)


def _move_nothing(_draining: Draining) -> int:
    return 0


async def _send_nobody_away(draining: Draining) -> None:
    draining._is_done = True


def _nothing(*_: Any) -> None: ...


#: name -> what is replaced in the product: (where, what, by what)
MUTANTS: dict[str, tuple[tuple[Any, str, Any], ...]] = {
    "PlansForAnybody": ((Rebalancer, "_mirrored", _all_heirs),),
    "TransfersToAnybody": ((transferring, "_check_successor", _nothing),),
    "KeepsItsMasters": ((Draining, "_begin_moves", _move_nothing),),
    "KeepsItsClients": ((Draining, "_drain", _send_nobody_away),),
    "ForgetsMirrorLinks": ((placement, "wish_of", _without_links),),
}


@contextmanager
def mutant(name: str) -> Iterator[None]:
    """The product is that mutant, for a while."""
    with ExitStack() as stack:
        for where, what, by in MUTANTS[name]:
            stack.enter_context(mock.patch.object(where, what, by))
        yield
