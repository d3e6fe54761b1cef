"""What a query has read is trimmed behind its back, and what goes wrong there ends it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from warren.spark.errors import Refused, WarrenError
from warren.spark.trimming import Trims


class Broker:
    """Takes its time, and may refuse."""

    def __init__(self, *, refuses: Exception | None = None) -> None:
        self.may_go_on = threading.Event()
        self.begun = threading.Event()
        self.refuses = refuses
        self.trimmed: list[tuple[str, str, int]] = []

    def trim(self, queue: str, token: str, upto: int) -> None:
        self.begun.set()
        assert self.may_go_on.wait(30)
        if self.refuses is not None:
            raise self.refuses
        self.trimmed.append((queue, token, upto))

    @staticmethod
    def explained(error: Refused) -> WarrenError:
        return WarrenError(f"in other words: {error}")


def trims_of(broker: Any, *, fail_on_loss: bool = True) -> Trims:
    return Trims(broker, fail_on_loss)


def test_a_query_goes_on_meanwhile_and_waits_at_its_end() -> None:
    broker = Broker()
    trims = trims_of(broker)
    trims.ask("q", "t", 10)
    assert broker.begun.wait(30)
    # Of what is asked meanwhile the furthest counts, and nothing twice.
    for upto in (20, 30, 30, 25):
        trims.ask("q", "t", upto)
    broker.may_go_on.set()
    trims.finish()
    assert broker.trimmed == [("q", "t", 10), ("q", "t", 30)]
    trims.ask("q", "t", 30)
    trims.finish()
    assert len(broker.trimmed) == 2


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (Refused(412, "precondition_failed", "not yours"), "in other words: not yours"),
        (Refused(404, "no_cursor", "dropped"), "in other words: dropped"),
        (ValueError("no JSON"), "no JSON"),
    ],
)
def test_what_is_refused_ends_the_query(refusal: Exception, words: str) -> None:
    broker = Broker(refuses=refusal)
    broker.may_go_on.set()
    trims = trims_of(broker)
    trims.ask("q", "t", 10)
    with pytest.raises((WarrenError, ValueError), match=words):
        trims.finish()


def test_what_is_lost_may_be_lost() -> None:
    broker = Broker(refuses=Refused(404, "no_queue", "gone"))
    broker.may_go_on.set()
    trims = trims_of(broker, fail_on_loss=False)
    trims.ask("q", "t", 10)
    trims.finish()
