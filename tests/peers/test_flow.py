"""Credit and precedence: data waits where it is granted no room, control frames overtake it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

from peer_nodes import CONTROL, DATA, FAST, RING, join, node, run, until

from warren.net.peers.settings import PeerOptions

SMALL_WINDOW = replace(FAST, window_bytes=1 << 16)
KIB = bytes(1024)


def test_data_waits_for_credit() -> None:
    async def scenario() -> None:
        a, b = node("a"), node("b", options=SMALL_WINDOW)
        await join(a, b)
        b.network.hold_credit(True)
        link = a.link("b")
        for number in range(2000):
            link.send(DATA if number % 2 else RING, number.to_bytes(4, "big") + KIB)
        assert a.network.send("b", CONTROL, b"overtakes")
        await until(lambda: b.notes.control and len(b.notes.frames) >= (1 << 16) // 1033)
        await asyncio.sleep(0.05)
        taken = len(b.notes.frames)
        # The window, and no more than one frame beyond it.
        assert (1 << 16) // 1033 <= taken <= (1 << 16) // 1033 + 1
        assert link.pending_bytes == (2000 - taken) * 1033
        assert a.network.status()[0].pending == link.pending_bytes
        # Pings keep the link alive meanwhile.
        await asyncio.sleep(0.4)
        assert len(b.notes.frames) == taken
        drained: list[int] = []
        link.on_drained = lambda: drained.append(link.pending_bytes)
        b.network.hold_credit(False)
        await until(lambda: len(b.notes.frames) == 2000)
        numbers = [int.from_bytes(payload[:4], "big") for _, _, payload in b.notes.frames]
        assert numbers == list(range(2000))
        assert link.pending_bytes == 0
        assert len(drained) == 1
        assert drained[0] <= 1 << 18

    run(scenario)


def test_credit_that_is_held_from_the_start() -> None:
    async def scenario() -> None:
        a, b = node("a"), node("b")
        b.network.hold_credit(True)
        await join(a, b)
        a.link("b").send(DATA, b"x")
        await asyncio.sleep(0.05)
        assert b.notes.frames == []
        b.network.hold_credit(False)
        await until(lambda: b.notes.frames)

    run(scenario)


def test_deliveries_are_not_limited_by_credit() -> None:
    async def scenario() -> None:
        a, b = node("a", options=SMALL_WINDOW), node("b", options=SMALL_WINDOW)
        a.network.hold_credit(True)
        b.network.hold_credit(True)
        await join(a, b)
        for _ in range(1000):
            b.came("a").send(DATA, KIB)
        await until(lambda: len(a.notes.frames) == 1000)

    run(scenario)


def test_a_large_backlog_does_not_delay_control_frames() -> None:
    async def scenario() -> None:
        a, b = node("a"), node("b")
        await join(a, b)
        link = b.came("a")
        for _ in range(100):
            link.send(DATA, bytes(1 << 20))
        await until(lambda: a.notes.frames)
        assert link.pending_bytes > 80 << 20
        began = time.monotonic()
        link.send(CONTROL, b"vote")
        before = len(a.notes.frames)
        await until(lambda: a.notes.control)
        between = len(a.notes.frames) - before
        # What the kernels of both sides hold cannot be overtaken; what we hold is.
        assert between < 30, f"{between} MiB in {time.monotonic() - began:.3f} s"
        await until(lambda: len(a.notes.frames) == 100)

    run(scenario)


def test_a_peer_that_takes_nothing_is_given_up(judge_time: Callable[[float, float], None]) -> None:
    async def scenario() -> None:
        a, b = node("a"), node("b", options=PeerOptions())
        await join(a, b)
        # It hears us no more, but goes on talking: as bad as silence.
        b.came("a").set_reading(False)
        talking = asyncio.create_task(keep_talking(b.came("a")))
        for _ in range(30):
            a.network.send("b", CONTROL, bytes(1 << 19))
        began = time.monotonic()
        await until(lambda: a.notes.count("down", "b"))
        judge_time(time.monotonic() - began, 5 * FAST.silence_ms / 1000)
        talking.cancel()

    run(scenario)


async def keep_talking(link: object) -> None:
    while True:
        link.send(CONTROL, b"still here")  # type: ignore[attr-defined]
        await asyncio.sleep(0.02)


def test_control_frames_for_one_who_takes_nothing_are_dropped() -> None:
    async def scenario() -> None:
        options = PeerOptions(control_backlog_bytes=1 << 20)
        a, b = node("a", options=options), node("b", options=options)
        await join(a, b)
        b.came("a").set_reading(False)
        outcomes = []
        for _ in range(100):
            outcomes.append(a.network.send("b", CONTROL, bytes(1 << 18)))
            await asyncio.sleep(0)
        assert outcomes[0]
        assert not outcomes[-1]
        assert a.link("b").control_pending_bytes < 2 << 20

    run(scenario)
