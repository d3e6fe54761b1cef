"""Many schedules in a row: `make sim SEEDS=20000`, or one again, with all that happened."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from sim.run import Result, run_seed
from sim.run_aimed import run_aimed
from sim.run_async import run_async
from sim.run_autoheal import run_autoheal
from sim.run_broker import BrokerResult, run_broker
from sim.run_cursors import run_cursors
from sim.run_dead_letters import run_dead_letters
from sim.run_members import MemberResult, run_members
from sim.run_operators import run_operators
from sim.run_passing import run_passing
from sim.run_placed import PlacedResult, run_placed
from sim.run_ring import RingResult, run_ring
from sim.run_survivors import run_survivors
from sim.run_wide import run_wide
from sim.world import World

AnyResult = Result | MemberResult | PlacedResult | RingResult | BrokerResult
#: What a schedule is about, as `--show` takes it: `17` for Raft alone, `members:17`,
#: `places:17` for policies and where mirrors go, `rings:17` for the core of mirrored queues,
#: `brokers:17` for all of it: brokers with clients, queues, store and links; `wide:17` for the same
#: with limits, lifetimes, priorities, promotions that lose, damage, and nodes that come and go;
#: `aimed:17` for such with trouble that is aimed at one rule, `letters:17` for dead letters,
#: `passing:17` for transient queues and clients that acknowledge nothing, `early:17` for queues
#: that confirm before their mirrors have it, `cursors:17` for readers by position and batches,
#: `forks:17` for partitions that heal by merging, and `operators:17` for nodes that are drained,
#: mirrors by name, and masters that are moved.
RUNNERS: dict[str, Callable[..., AnyResult]] = {
    "raft": run_seed,
    "members": run_members,
    "places": run_placed,
    "rings": run_ring,
    "brokers": run_broker,
    "wide": run_wide,
    "aimed": run_aimed,
    "letters": run_dead_letters,
    "passing": run_passing,
    "early": run_async,
    "cursors": run_cursors,
    "forks": run_autoheal,
    "operators": run_operators,
    "survivors": run_survivors,
}


CORES = os.cpu_count() or 1

#: Schedules that a worker gets at a time, and how often before another takes its place.
CHUNK = 8
CHUNKS_OF_A_WORKER = 25


def attempt(named: tuple[str, int]) -> AnyResult | str:
    """Run a seed; a failure as text, with what happened last."""
    worlds: list[World] = []
    kind, seed = named
    try:
        return RUNNERS[kind](seed, seen=worlds.append)
    except Exception as error:
        recent = worlds[0].recent[-40:] if worlds else []
        return "\n".join([*recent, f"{kind}:{seed}: {type(error).__name__}: {error}"])


def results(numbers: list[tuple[str, int]], jobs: int) -> Iterator[AnyResult | str]:
    """In the order of the numbers; a worker ends after a while, and its memory with it."""
    with multiprocessing.Pool(jobs, maxtasksperchild=CHUNKS_OF_A_WORKER) as pool:
        yield from pool.imap(attempt, numbers, chunksize=CHUNK)


def show_one(name: str) -> int:
    """Everything that happens in one schedule."""

    def talk(world: World) -> None:
        world.verbose = True

    kind, _, seed = name.rpartition(":")
    print(RUNNERS[kind or "raft"](int(seed), seen=talk))
    return 0


#: Of a hundred schedules, so many are of a kind: whole brokers tell most, and take longest.
SHARES = {
    "raft": 15,
    "members": 5,
    "places": 5,
    "rings": 20,
    "brokers": 17,
    "wide": 13,
    "aimed": 5,
    "letters": 8,
    "passing": 6,
    "early": 6,
    "cursors": 6,
    "forks": 4,
    "operators": 6,
    "survivors": 2,
}


def spread(total: int, kinds: Sequence[str], first: int) -> list[tuple[str, int]]:
    """Schedules of all kinds by their shares, in turn: whoever stops early has seen them all."""
    whole = sum(SHARES[kind] for kind in kinds)
    placed = []
    for kind in kinds:
        count = -(-total * SHARES[kind] // whole)
        placed += [((i + 0.5) / count, kind, first + i) for i in range(count)]
    return [(kind, seed) for _, kind, seed in sorted(placed)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2_000, help="how many schedules (2000)")
    parser.add_argument("--only", default="", help=f"kinds, with commas: {', '.join(RUNNERS)}")
    parser.add_argument("--first", type=int, default=1_000_000, help="the first seed (1000000)")
    parser.add_argument("--jobs", type=int, default=CORES, help="processes (one a core)")
    parser.add_argument("--show", metavar="SEED", help="run this one and tell everything: rings:17")
    options = parser.parse_args()
    if options.show is not None:
        return show_one(options.show)
    kinds = options.only.split(",") if options.only else [*RUNNERS]
    unknown = sorted(set(kinds) - set(RUNNERS))
    if unknown:
        parser.error(f"no such kind: {', '.join(unknown)}; there are {', '.join(RUNNERS)}")
    numbers = spread(options.seeds, kinds, options.first)
    begin = told = time.monotonic()
    failed = events = virtual = commits = strikes = reads = 0
    seen = Counter[str]()
    total = len(numbers)
    for done, result in enumerate(results(numbers, options.jobs), 1):
        seen[numbers[done - 1][0]] += 1
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
    print(", ".join(f"{kind} {count}" for kind, count in seen.items()))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
