"""`make crash`: many lives of the broker under load, and what is left of the promises.

make crash CRASH="--kills 200 --seed 7 --out crash.json"
make crash CRASH="--stops 50"
make crash CRASH="--check <kept directory>/history.jsonl"
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from broker_process import Kind, StartError
from campaign import Campaign, Options, Outcome, run_campaign
from checker import Verdict, check
from history import History

SHOWN_PROBLEMS = 40


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="times the broker is killed")
    parser.add_argument("--stops", type=int, default=0, help="stop it in order so often instead")
    parser.add_argument("--seed", type=int, help="of the moments and the load; else drawn")
    parser.add_argument("--out", type=Path, help="write the numbers here, as JSON")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="configure the broker"
    )
    parser.add_argument(
        "--kind", choices=[kind.value for kind in Kind], default="as served", help="which broker"
    )
    parser.add_argument("--keep", action="store_true", help="keep the data directory in any case")
    parser.add_argument("--check", type=Path, help="only judge the history of an earlier run")
    return parser.parse_args()


def show(verdict: Verdict) -> None:
    """The numbers and the problems."""
    width = max(map(len, verdict.numbers), default=0)
    for name, number in verdict.numbers.items():
        print(f"  {name:{width}}  {number:9,}")
    kinds = Counter(problem.kind for problem in verdict.problems)
    for kind, count in kinds.most_common():
        print(f"  PROBLEM {kind}: {count}")
    for problem in verdict.problems[:SHOWN_PROBLEMS]:
        print(f"    {problem}")


def write(outcome: Outcome, path: Path) -> None:
    """The numbers for later."""
    found = {
        "seed": outcome.options.seed,
        "seconds": round(outcome.seconds, 1),
        "ends": dict(outcome.ends),
        "numbers": outcome.verdict.numbers,
        "problems": [str(problem) for problem in outcome.verdict.problems],
    }
    path.write_text(json.dumps(found, indent=2) + "\n")


def main() -> int:
    """Run or judge; whether all promises were kept, as an exit code."""
    arguments = _arguments()
    if arguments.check:
        verdict = check(History.load(arguments.check))
        show(verdict)
        return 1 if verdict.problems else 0
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().getrandbits(32)
    base = Path(tempfile.mkdtemp(prefix=f"crash-{seed}-"))
    options = Options(
        ends=arguments.stops or arguments.kills,
        seed=seed,
        base=base,
        orderly=bool(arguments.stops),
        settings=arguments.set,
        kind=Kind(arguments.kind),
        say=lambda line: print(line, flush=True),
    )
    how = "stops" if options.orderly else "kills"
    print(f"{options.ends} {how}, seed {seed}, in {base}", flush=True)
    campaign = Campaign(options)
    begun = time.monotonic()
    try:
        outcome = run_campaign(campaign)
    except Exception as error:
        campaign.history.save(base / "history.jsonl")
        print(f"the run broke off after {time.monotonic() - begun:.0f} s: {error}")
        print(f"seed {seed}; data directory, log and history kept in {base}")
        if isinstance(error, StartError):
            return 1
        raise
    print(f"\n{options.ends} {how} in {outcome.seconds:.0f} s, seed {seed}")
    for name, count in outcome.ends.most_common():
        print(f"  {count:4d} {name}")
    show(outcome.verdict)
    if arguments.out:
        write(outcome, arguments.out)
    if outcome.verdict.problems or arguments.keep:
        campaign.history.save(base / "history.jsonl")
        print(f"data directory, log and history kept in {base}")
    else:
        shutil.rmtree(base)
    print("FAILED" if outcome.verdict.problems else "every promise kept")
    return 1 if outcome.verdict.problems else 0


if __name__ == "__main__":
    sys.exit(main())
