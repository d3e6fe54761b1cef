"""Keeps long answers off the message path: work is done in slices, and clients go in between."""

from __future__ import annotations

import asyncio
import time

#: How long the loop may be kept from its clients at a time.
SLICE_S = 0.0005
#: The same for lists, which are asked for again and again: as long as a publish takes that meets
#: nobody, so that none takes more than twice as long.
LIST_SLICE_S = 0.00008
#: How long it is theirs then; the shortest time that loops can tell.
REST_S = 0.001


class Pace:
    """Call `rest` often; it lets others have their turn when the slice is used up."""

    __slots__ = ("_since", "_slice_s")

    def __init__(self, slice_s: float = SLICE_S) -> None:
        self._slice_s = slice_s
        self._since = time.perf_counter()

    async def rest(self) -> None:
        now = time.perf_counter()
        if now - self._since >= self._slice_s:
            # Not just a turn of the loop: a process that works without a pause is the first that
            # the system makes wait when another wants the processor.
            await asyncio.sleep(REST_S)
            self._since = time.perf_counter()
