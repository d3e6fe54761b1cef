"""The definitions of a node whose log was damaged, taken once more from all that was agreed on."""

from __future__ import annotations

import logging

import pytest
from pair import method
from parliament import Parliament

from warren.cluster.member_effects import ViewsChanged
from warren.cluster.metadata import View
from warren.engine.mending import Mending
from warren.engine.metadata_format import Kind, encode_delete, pack
from warren.model.errand import Errand


class Recorded(Parliament):
    """Knows all that it has agreed on."""

    def __init__(self) -> None:
        self.agreed: list[bytes] = []
        super().__init__()

    def propose(self, command: bytes) -> Errand:
        self.agreed.append(command)
        return super().propose(command)


def view(epoch: int) -> View:
    return View(epoch, "n0", ("n0",), (), ("n0",))


@pytest.mark.parametrize(("seen", "wanted"), [(2, 2), (3, 2), (None, 2), (None, 0), (1, 0)])
def test_queues_that_went_in_an_epoch_of_their_view(seen: int | None, wanted: int) -> None:
    """A master lets an unused queue go only while it is its master: the views decide that."""
    nodes = Recorded()
    nodes.client(0).send(method(1, "queue.declare", 0, "q", durable=True))
    nodes.settle()
    declared = nodes.index
    number = nodes.engines[0].vhosts["/"].queues["q"].number
    views = [view(1), None if seen is None else view(seen)]
    for engine in nodes.engines:
        if seen is not None:
            engine.views[number] = view(seen)
    nodes.propose(pack((encode_delete(Kind.QUEUE, ("/", "q"), wanted),)))
    nodes.settle()
    keeper = nodes.keepers[0]
    before = keeper.snapshot()
    mending = Mending(nodes.engines[0], keeper, logging.getLogger("silent"))
    entries = list(enumerate(nodes.agreed, 1))
    assert mending.apply(entries[:declared]) == []
    for step in views:
        mending.views_changed(ViewsChanged(declared, {str(number): step, "other": step}, True))
    assert mending.apply(entries[declared:]) == []
    assert mending.snapshot() == before
    mending.finish()
    assert keeper.snapshot() == before
    assert ("q" in nodes.engines[0].vhosts["/"].queues) is ((seen or 0) != wanted)
