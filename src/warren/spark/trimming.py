"""Trims what is done with while the next batch is read: the broker takes its time over a long one.

Nothing depends on when that happens, but two things do on that it happens: what is refused ends the
query, and a query that has come to the end of its queues has trimmed all that it has read.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from warren.spark.errors import Refused

if TYPE_CHECKING:
    from warren.spark.queues import Cursors


class Trims:
    """See the module's text. One thread, and of each queue the furthest position asked for."""

    def __init__(self, cursors: Cursors, fail_on_loss: bool) -> None:
        self._cursors = cursors
        self._fail_on_loss = fail_on_loss
        self._asked: dict[str, int] = {}
        #: By queue: the token of its cursor, and the position.
        self._due: dict[str, tuple[str, int]] = {}
        self._is_busy = False
        self._error: Exception | None = None
        self._changed = threading.Condition()
        threading.Thread(target=self._work, daemon=True).start()

    def ask(self, queue: str, token: str, upto: int) -> None:
        """Trim a queue, soon. Raises what an earlier one was refused with."""
        with self._changed:
            self._raise()
            if upto > self._asked.get(queue, 0):
                self._asked[queue] = upto
                self._due[queue] = token, upto
                self._changed.notify_all()

    def finish(self) -> None:
        """Until all that was asked for is done. Raises what it was refused with."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._due or self._is_busy))
            self._raise()

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _work(self) -> None:
        while True:
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: bool(self._due))
                queue = next(iter(self._due))
                token, upto = self._due.pop(queue)
                self._is_busy = True
            try:
                self._cursors.trim(queue, token, upto)
            except Refused as error:
                if error.word not in {"no_queue", "no_cursor"} or self._fail_on_loss:
                    told = self._cursors.explained(error)
                    told.__cause__ = error
                    self._failed(told)
            except Exception as error:  # noqa: BLE001
                # Whatever it is, the query is told: nobody else waits for this thread.
                self._failed(error)

    def _failed(self, error: Exception) -> None:
        with self._changed:
            self._error = error
            # They end with the query, which begins again where it was.
            self._due.clear()
