"""A queue that goes when nobody uses it, and its master that goes elsewhere and comes back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pair import make_engine

from warren.engine import moving
from warren.engine.homes import Homes
from warren.engine.queues import LOOK_AGAIN_MS, add_queue
from warren.model.errand import Errand
from warren.model.queue_arguments import QueueDeclaration

EXPIRES_MS = 1200


class Home:
    """A node with such a queue, and the wishes to have it removed that others have to agree on."""

    def __init__(self) -> None:
        self.engine: Any = make_engine(node_name="a")
        self.engine.cluster = Homes(self.engine, lambda _: 0)
        self.engine.cluster.nodes_are({"a": (1, True), "b": (1, True)})
        self.engine.agreed = SimpleNamespace(remove_queue=self.remove_queue)
        self.asked: list[Errand] = []
        declaration = QueueDeclaration(True, False, False, {"x-expires": EXPIRES_MS})
        vhost = self.engine.vhost("/")
        self.queue: Any = add_queue(self.engine, vhost, "q", declaration, None, "a")
        self.queue.number = 7

    def remove_queue(self, *_them: Any) -> Errand:
        self.asked.append(Errand())
        return self.asked[-1]

    def wait(self, ms: int) -> None:
        self.engine.clock.ms += ms
        self.engine.tick()


@pytest.fixture
def home() -> Home:
    """It has wanted its queue removed, in vain."""
    home = Home()
    home.wait(EXPIRES_MS)
    home.asked.pop().fail(TimeoutError("no majority"))
    assert home.queue.dropping is None
    return home


def test_a_queue_that_could_not_be_removed_is_looked_at_again(home: Home) -> None:
    home.wait(LOOK_AGAIN_MS)
    home.wait(1)
    assert len(home.asked) == 1


def test_what_stood_for_a_queue_before_does_not_look_again(home: Home) -> None:
    """It would never see that the queue is used: others stand for it when it is back here."""
    moving.become_remote(home.engine, home.queue, "b")
    home.wait(LOOK_AGAIN_MS)
    home.wait(2 * EXPIRES_MS)
    assert home.asked == []
