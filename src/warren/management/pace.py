"""Keeps long answers off the message path: work is done in slices, and clients go in between."""

from __future__ import annotations

import asyncio
import time

#: How long the loop may be kept from its clients at a time.
SLICE_S = 0.0005


class Pace:
    """Call `rest` often; it lets others have their turn when the slice is used up."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def rest(self) -> None:
        now = time.perf_counter()
        if now - self._since >= SLICE_S:
            # As long a rest as the work was: whoever publishes meanwhile finds the loop free at
            # least every other time.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            self._since = time.perf_counter()
