"""Masters move at a pace: clients have their turn in between."""

from __future__ import annotations

import asyncio

from warren.management.rebalancer import MOVES_AT_A_TIME, PACE_S, at_a_pace
from warren.management.rebalancing import Move

MOVES = [Move("/", f"q{i}", "a", "b") for i in range(20)]


def test_moves_that_cost_nothing_are_spread_over_time() -> None:
    made: list[str] = []

    async def make(move: Move) -> None:
        made.append(move.name)

    async def run() -> float:
        clock = asyncio.get_running_loop().time
        began_s = clock()
        await at_a_pace(MOVES, make)
        return clock() - began_s

    took_s = asyncio.run(run())
    assert made == [move.name for move in MOVES]
    assert took_s >= (len(MOVES) - 1) * PACE_S


def test_slow_moves_hold_the_next_ones_back() -> None:
    under_way = most = 0

    async def make(_move: Move) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(PACE_S * 3 * MOVES_AT_A_TIME)
        under_way -= 1

    asyncio.run(at_a_pace(MOVES, make))
    assert most == MOVES_AT_A_TIME


def test_nothing_to_move_takes_no_time() -> None:
    async def make(_move: Move) -> None:
        raise AssertionError

    asyncio.run(at_a_pace([], make))
