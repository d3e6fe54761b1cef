"""Work for programs that read all they can: it leaves the loop to clients while there are any."""

from __future__ import annotations

import asyncio
import time

from warren.management.pace import ALONE_SLICE_S, CALM_SLICE_S, REST_S, Calm, CalmPace
from warren.model.ports import TurnClock


def test_it_rests_only_while_there_are_clients() -> None:
    async def slept_s(meets_somebody: bool) -> float:
        turn = TurnClock()
        pace = CalmPace(Calm(turn))
        time.sleep(CALM_SLICE_S)
        turn.heard_us += meets_somebody
        began_s = time.perf_counter()
        await pace.rest()
        return time.perf_counter() - began_s

    assert asyncio.run(slept_s(True)) >= REST_S / 2
    assert min(asyncio.run(slept_s(False)) for _ in range(5)) < REST_S / 2


def test_a_client_that_has_acted_counts_as_there_for_a_while() -> None:
    """It may wait for the disk, which shows in no turn of the node."""

    async def slept_s() -> list[float]:
        turn = TurnClock()
        pace = CalmPace(Calm(turn))
        times = []
        for meets_somebody in (True, False):
            time.sleep(CALM_SLICE_S)
            turn.heard_us += meets_somebody
            began_s = time.perf_counter()
            await pace.rest()
            times.append(time.perf_counter() - began_s)
        return times

    assert min(asyncio.run(slept_s())) >= REST_S / 2


def test_there_is_one_slice_in_a_turn_of_the_loop() -> None:
    """However many read."""
    turns, slices = 0, []

    async def work(calm: Calm) -> None:
        pace = CalmPace(calm)
        for _ in range(20):
            slices.append(turns)
            # There are no clients.
            time.sleep(ALONE_SLICE_S)
            await pace.rest()

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def all_of_it() -> None:
        calm = Calm(TurnClock())
        counting = asyncio.create_task(count())
        await asyncio.gather(*(work(calm) for _ in range(3)))
        counting.cancel()

    asyncio.run(all_of_it())
    # All three begin at once.
    later = slices[3:]
    assert len(set(later)) == len(later) == 57
