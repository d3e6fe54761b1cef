"""Which queues a query reads, and their cursors, as the driver knows them."""

from __future__ import annotations

import re
import time
import uuid
from typing import Any

from warren.spark.client import Client
from warren.spark.errors import OptionError, Refused, WarrenError, hint
from warren.spark.options import CURSOR_EXPIRY_S, EARLIEST, Options

#: What a queue says of a cursor that it cannot have, and the options that are about that.
_ABOUT = (
    ("another query", "option 'cursor'"),
    ("has priorities", "option 'queues'"),
    ("first opened", "options 'mode' and 'cursor'"),
    ("mode=follow", "option 'mode'"),
    ("is about to be drained", "option 'mode'"),
)
#: The broker takes a reader that is not heard of for 10 s for dead; a new one waits longer.
TAKE_OVER_S = 20.0


class Queues:
    """The queues of the options, named or by pattern."""

    def __init__(self, client: Client, options: Options) -> None:
        self.client = client
        self.options = options
        self.named = options.queues
        self._pattern = None
        if not self.named:
            try:
                self._pattern = re.compile(options.text("queuePattern"))
            except re.error as error:
                raise OptionError(f"option 'queuePattern' is no pattern: {error}") from error
        self._interval_s = options.number("discoverIntervalMs", 10_000) / 1000
        self._known: list[str] = []
        self._looked_s = 0.0

    @property
    def is_pattern(self) -> bool:
        return self._pattern is not None

    def names(self, fresh: bool = False) -> list[str]:
        """All queues of the query; a pattern is looked up again now and then."""
        if self._pattern is None:
            return self.named
        if fresh or not self._looked_s or time.monotonic() - self._looked_s >= self._interval_s:
            pattern = self._pattern
            try:
                self._known = [n for n in self.client.queue_names() if pattern.fullmatch(n)]
            except Refused as error:
                raise WarrenError(hint(error)) from error
            self._looked_s = time.monotonic()
        return self._known


class Cursors:
    """The cursors of a running query; `owner` tells this run of it from others."""

    def __init__(self, client: Client, options: Options) -> None:
        self.client = client
        self.options = options
        self.name = options.text("cursor")
        self.mode = options.mode
        self.owner = uuid.uuid4().hex
        self.held: dict[str, dict[str, Any]] = {}

    def open(self, queue: str, token: str = "", start: Any = None) -> dict[str, Any]:
        """The cursor of a queue; its start was decided when it was opened for the first time."""
        said = {
            "mode": self.mode,
            "owner": self.owner,
            "token": token,
            "start": self._start(queue) if start is None else start,
            "expires_s": self.options.number("cursorExpiry", CURSOR_EXPIRY_S),
        }
        deadline_s = time.monotonic() + TAKE_OVER_S
        while True:
            try:
                told = self.client.open_cursor(queue, self.name, said)
                break
            except Refused as error:
                # The query that was killed a moment ago may still count as alive.
                waits = error.word == "cursor_in_use" and queue not in self.held
                if not waits or time.monotonic() > deadline_s:
                    raise self.explained(error) from error
                time.sleep(0.5)
        self.held[queue] = told
        return told

    def _start(self, queue: str) -> Any:
        at_ms = self.options.timestamp_ms("startingTimestamp")
        if at_ms is not None:
            return {"timestamp": at_ms}
        given = self.options.offsets("startingOffsets", EARLIEST)
        return given.get(queue, EARLIEST) if isinstance(given, dict) else given

    @staticmethod
    def explained(error: Refused) -> WarrenError:
        """A refusal in words that name the option to change."""
        if error.word == "precondition_failed":
            about = "options 'cursor', 'mode' and 'startingOffsets'"
            about = next((names for words, names in _ABOUT if words in str(error)), about)
            return WarrenError(f"{error} ({about})")
        if error.word == "trimmed":
            return WarrenError(
                f"{error} (set the option 'startingOffsets' to that position, to a later one or to "
                "'earliest')"
            )
        return WarrenError(hint(error))

    def poll(self, queue: str, token: str, after: int, **limits: int) -> dict[str, Any]:
        """Raises Refused."""
        said = {"token": token, "owner": self.owner, "after": after, **limits}
        told = self.client.poll(queue, self.name, said)
        self.held[queue] = told
        return told

    def trim(self, queue: str, token: str, upto: int) -> None:
        """Raises Refused."""
        said = {"token": token, "owner": self.owner, "upto": upto}
        self.client.trim(queue, self.name, said)

    def release_all(self) -> None:
        """The run ends: whoever comes next need not wait. What fails here does not matter."""
        for queue in self.held:
            try:
                self.client.release(queue, self.name, self.owner)
            except WarrenError:
                return
