"""Errands: what was sent off to another node, or to all of them, and is answered later.

A verb that needs one starts it and raises `Postponed`; the client's method comes again when it is
over, and finds the outcome. Until then nothing more is taken from that client.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Errand:
    """The outcome of something that is under way elsewhere: a value or an error, once."""

    __slots__ = ("_error", "_value", "_waiting", "is_done", "memo")

    def __init__(self, memo: Any = None) -> None:
        #: What the one who started it must not make up anew when it comes again.
        self.memo = memo
        self.is_done = False
        self._value: Any = None
        self._error: Exception | None = None
        self._waiting: list[Callable[[], None]] = []

    def finish(self, value: Any = None) -> None:
        """It has come to a good end; a second end is ignored."""
        if not self.is_done:
            self._value = value
            self._end()

    def fail(self, error: Exception) -> None:
        """It has failed."""
        if not self.is_done:
            self._error = error
            self._end()

    def _end(self) -> None:
        self.is_done = True
        waiting, self._waiting = self._waiting, []
        for action in waiting:
            action()

    def when_done(self, action: Callable[[], None]) -> None:
        """Call when it is over; at once if it is."""
        if self.is_done:
            action()
        else:
            self._waiting.append(action)

    def result(self) -> Any:
        """The value; raises the error it ended with."""
        assert self.is_done
        if self._error is not None:
            raise self._error
        return self._value
