"""What a client's method sent off to other nodes, when it comes again to hear the outcome.

A verb that cannot be finished here raises `Postponed` with an errand, which the connection keeps;
the method then comes again from its beginning. So every verb that may do this first takes the
errand of its last run, if there is one, and derives all else from the state that it finds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from warren.gateway.errors import HomeGoneError

if TYPE_CHECKING:
    from warren.model.errand import Errand
    from warren.session.connection import Connection

Memo = TypeVar("Memo")


@dataclass(frozen=True, slots=True)
class NewQueue:
    """The queue with this name, which may have been made up, is being declared."""

    name: str


@dataclass(frozen=True, slots=True)
class Removal:
    """A queue is being removed that had so many messages."""

    count: int


@dataclass(frozen=True, slots=True)
class Asked:
    """The home of a queue was asked for something; the errand's value is the answer."""

    verb: str


class Undone:
    """A memo of what must be undone at a queue's home if the client leaves before it hears."""

    def abandon(self, errand: Errand) -> None:
        """The errand has ended, well or not, and nobody takes what came of it."""
        raise NotImplementedError


def abandon_errand(connection: Connection) -> None:
    """The connection is over: nobody will come again for what it sent off."""
    errand: Errand | None = connection.errand
    connection.errand = None
    undone = memo_of(errand, Undone)
    if errand is not None and undone is not None:
        errand.when_done(partial(undone.abandon, errand))


def undo(errand: Errand | None) -> None:
    """Nobody takes what came of an errand that has ended: its queue cannot be used any more."""
    undone = memo_of(errand, Undone)
    if errand is not None and undone is not None:
        undone.abandon(errand)


def take_errand(connection: Connection) -> Errand | None:
    """The errand that the same method has started before; raises the error that it ended with.

    None when it came to nothing because a home went down: what is there now says what is answered.
    """
    errand: Errand | None = connection.errand
    connection.errand = None
    if errand is not None:
        try:
            errand.result()
        except HomeGoneError:
            return None
    return errand


def memo_of(errand: Errand | None, kind: type[Memo]) -> Memo | None:
    """What was noted with the errand, if it is of a kind; else None."""
    return errand.memo if errand is not None and isinstance(errand.memo, kind) else None


def answer_to(errand: Errand | None, verb: str) -> Any:
    """What the home of a queue answered to a verb, if that is what was waited for; else None."""
    asked = memo_of(errand, Asked)
    return errand.result() if errand is not None and asked == Asked(verb) else None
