"""Many schedules in a row: `make sim SIM="--seeds 20000"`, or one again, with all that happened."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterator

from sim.run import Result, run_seed
from sim.run_members import MemberResult, run_members
from sim.world import World


def attempt(seed: int) -> Result | MemberResult | str:
    """Run a seed, a negative one for members; a failure as text, with what happened last."""
    worlds: list[World] = []
    try:
        if seed < 0:
            return run_members(-seed, seen=worlds.append)
        return run_seed(seed, seen=worlds.append)
    except Exception as error:
        recent = worlds[0].recent[-40:] if worlds else []
        return "\n".join([*recent, f"seed {seed}: {type(error).__name__}: {error}"])


def results(
    first: int, seeds: int, members: int, jobs: int
) -> Iterator[Result | MemberResult | str]:
    numbers = [*range(first, first + seeds), *(-seed for seed in range(first, first + members))]
    if jobs == 1:
        yield from map(attempt, numbers)
        return
    with multiprocessing.Pool(jobs) as pool:
        yield from pool.imap(attempt, numbers, chunksize=16)


def show_one(seed: int) -> int:
    """Everything that happens in one schedule."""

    def talk(world: World) -> None:
        world.verbose = True

    print(run_seed(seed, seen=talk) if seed >= 0 else run_members(-seed, seen=talk))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2_000, help="how many schedules (2000)")
    parser.add_argument("--members", type=int, default=150, help="and with whole members (150)")
    parser.add_argument("--first", type=int, default=1_000_000, help="the first seed (1000000)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    parser.add_argument(
        "--show",
        type=int,
        metavar="SEED",
        help="run this one and tell everything; a negative one is with members",
    )
    options = parser.parse_args()
    if options.show is not None:
        return show_one(options.show)
    begin = told = time.monotonic()
    failed = events = virtual = commits = strikes = reads = 0
    total = options.seeds + options.members
    outcomes = results(options.first, options.seeds, options.members, options.jobs)
    for done, result in enumerate(outcomes, 1):
        if isinstance(result, str):
            failed += 1
            print(f"\n{result}", flush=True)
        else:
            events += result.events
            virtual += result.virtual_ms
            commits += result.commits
            strikes += result.strikes
            reads += result.reads if isinstance(result, Result) else 0
        now = time.monotonic()
        if now - told > 2 or done == total:
            told = now
            print(
                f"\r{done}/{total} schedules, {failed} violations, "
                f"{done / (now - begin):.1f}/s, {virtual / 3_600_000:.1f} virtual hours, "
                f"{events} events, {strikes} faults, {commits} commits, {reads} reads",
                end="",
                flush=True,
            )
    print()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
