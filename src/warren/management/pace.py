"""Keeps long answers off the message path: work is done in slices, and clients go in between."""

from __future__ import annotations

import asyncio
import time

#: How long the loop may be kept from its clients at a time.
SLICE_S = 0.0005
#: How long it is theirs then; the shortest time that loops can tell.
REST_S = 0.001


class Pace:
    """Call `rest` often; it lets others have their turn when the slice is used up."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def rest(self) -> None:
        now = time.perf_counter()
        if now - self._since >= SLICE_S:
            # Not just a turn of the loop: a process that works without a pause is the first that
            # the system makes wait when another wants the processor.
            await asyncio.sleep(REST_S)
            self._since = time.perf_counter()
