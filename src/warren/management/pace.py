"""Keeps long answers off the message path: work is done in slices, and clients go in between."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warren.model.ports import TurnClock

#: How long the loop may be kept from its clients at a time.
SLICE_S = 0.0005
#: The same for lists, which are asked for again and again: as long as a publish takes that meets
#: nobody, so that none takes more than twice as long.
LIST_SLICE_S = 0.00008
#: How long it is theirs then; the shortest time that loops can tell.
REST_S = 0.001
#: How long work for programs that read all they can may keep the loop: a fifth of the time that a
#: publish takes that meets nobody. With the rest between, some 400,000 rows a second.
CALM_SLICE_S = 0.00006
#: The same while no client is there: each look at them costs a tenth of it.
ALONE_SLICE_S = 0.00025
#: A client that has acted is expected to act again within this time.
CLIENTS_STAY_S = 1.0


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


class Calm:
    """What all work shares that goes on for as long as somebody reads; see `CalmPace`."""

    __slots__ = ("clients_until", "order", "seen_us", "turn")

    def __init__(self, turn: TurnClock) -> None:
        self.turn = turn
        self.order = asyncio.Lock()
        #: When a client was last heard of, as far as that was looked at.
        self.seen_us = turn.heard_us
        #: So long clients count as there, since one has acted.
        self.clients_until = 0.0

    @property
    def has_clients(self) -> bool:
        """Whether one has acted not long ago."""
        return time.perf_counter() < self.clients_until


class CalmPace:
    """As Pace, for work that programs ask for again and again, as fast as it is done.

    While clients are there, it leaves them most of the time, after every slice: one may just wait
    for the disk, and a thread that does not rest is the one that the system makes wait then. While
    there are none, slices are longer, and it goes on after a look at them. However many programs
    ask, there is one slice at a time.
    """

    __slots__ = ("_calm", "_since")

    def __init__(self, calm: Calm) -> None:
        self._calm = calm
        # Whoever begins has been at work in this turn already: the first rest is due at once.
        self._since = 0.0

    @property
    def is_due(self) -> bool:
        """Whether `rest` would do anything: for those who ask more often than every few µs."""
        slice_s = CALM_SLICE_S if self._calm.has_clients else ALONE_SLICE_S
        return time.perf_counter() - self._since >= slice_s

    async def rest(self) -> None:
        if not self.is_due:
            return
        calm = self._calm
        async with calm.order:
            await asyncio.sleep(0)
            now = time.perf_counter()
            if calm.turn.heard_us != calm.seen_us:
                calm.seen_us = calm.turn.heard_us
                calm.clients_until = now + CLIENTS_STAY_S
            if now < calm.clients_until:
                await asyncio.sleep(REST_S)
        self._since = time.perf_counter()
