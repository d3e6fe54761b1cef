"""Waiting until the next message of a queue may be delivered."""

from __future__ import annotations

from typing import Any

from warren.model.errand import Errand
from warren.model.errors import Postponed


def until_open(queue: Any, mark: int) -> Postponed:
    """To be raised by who was told to wait; `mark` is what the queue has said to wait for.

    A plain queue waits for its node's log, a mirrored one until all replicas have an operation.
    """
    if queue.mirror is None:
        return Postponed(mark)
    errand = Errand()
    queue.mirror.when_committed(mark, errand.finish)
    return Postponed(errand=errand)
