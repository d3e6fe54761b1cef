"""How many changes three nodes agree on in a second, and what one costs: run it as a program."""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import sys
import tempfile
import time
from pathlib import Path

from in_one_process import InOneProcess, over, propose_many


async def measure(count: int, outstanding: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        world = InOneProcess(Path(directory))
        await world.start()
        begin, cpu = time.perf_counter(), time.process_time()
        each = count // len(world.names)
        await asyncio.gather(*(propose_many(place, each, outstanding) for place in world.up()))
        took, cpu = time.perf_counter() - begin, time.process_time() - cpu
        total = each * len(world.names)
        print(f"{total} changes, {outstanding} outstanding on each of 3 nodes: ", end="")
        print(f"{total / took:.0f}/s, {cpu / total * 1e6:.0f} us of CPU each, all nodes together")
        await world.stop()


async def one_by_one(count: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        world = InOneProcess(Path(directory))
        await world.start()
        for place in (world.leader, next(p for p in world.up() if p is not world.leader)):
            times = []
            for number in range(count):
                begin = time.perf_counter()
                await over(place.agreement.propose(b"%d" % number))
                times.append(time.perf_counter() - begin)
            times.sort()
            role = "leader" if place is world.leader else "follower"
            print(f"one at a time from a {role}: p50 {times[count // 2] * 1e3:.2f} ms")
        await world.stop()


async def failover(times: int) -> None:
    took = []
    for _ in range(times):
        with tempfile.TemporaryDirectory() as directory:
            world = InOneProcess(Path(directory))
            await world.start()
            world.leader.kill()
            begin = time.perf_counter()
            await over(world.up()[0].agreement.propose(b"x"))
            took.append(time.perf_counter() - begin)
            await world.stop()
    took.sort()
    median = f"p50 {took[times // 2]:.3f} s, longest {took[-1]:.3f} s"
    print(f"leader killed, {times} times: next change done after {median}")


if __name__ == "__main__":
    if "--profile" in sys.argv:
        profile = cProfile.Profile()
        profile.enable()
        asyncio.run(measure(10_000, 100))
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(30)
    else:
        for outstanding in (1, 10, 100):
            asyncio.run(measure(10_000 if outstanding > 1 else 1_500, outstanding))
        asyncio.run(one_by_one(200))
        asyncio.run(failover(15))
