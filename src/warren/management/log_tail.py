"""The last lines of the node's log, kept for who looks at them over HTTP."""

from __future__ import annotations

import logging
from collections import deque

import msgspec

from warren.telemetry.log import add_handler, remove_handler

LINES_KEPT_MAX = 2000
#: A traceback can be long; the log itself has all of it.
LINE_CHARACTERS_MAX = 8000


class LogLine(msgspec.Struct, frozen=True, gc=False):
    """A line with its number, which grows by one."""

    number: int
    level: int
    category: str
    json: str


class LogTail(logging.Handler):
    """Listens from `start` to `stop`."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[LogLine] = deque(maxlen=LINES_KEPT_MAX)
        self._count = 0

    def start(self) -> None:
        add_handler(self, "json")

    def stop(self) -> None:
        remove_handler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Called by the logging library, which holds this handler's lock."""
        try:
            text = self.format(record)
        except Exception:  # noqa: BLE001 - as the library's own handlers do: logging never raises
            self.handleError(record)
            return
        if len(text) > LINE_CHARACTERS_MAX:
            text = msgspec.json.encode({"msg": text[:LINE_CHARACTERS_MAX] + " ..."}).decode()
        self._count += 1
        category = record.name.rpartition(".")[2]
        self._lines.append(LogLine(self._count, record.levelno, category, text))

    @property
    def last_number(self) -> int:
        return self._count

    def since(self, number: int, level: int = 0, category: str = "") -> list[LogLine]:
        """What is kept of what came after a number, of a level or above it."""
        return [
            line
            for line in list(self._lines)
            if line.number > number and line.level >= level and category in {"", line.category}
        ]
