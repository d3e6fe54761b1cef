"""Runs one step of `make test` within a time limit and says how long it took.

Usage: step.py [--second-chance] NAME SECONDS COMMAND...    step.py --begin    step.py --summary
With `--second-chance` COMMAND is pytest: tests that failed are run once more after all others,
each alone in a process of its own. Those that pass then are named loudly, here and in the summary;
a test that fails twice fails the step. Exit status: that of COMMAND, or 1.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: What the steps of a run have come to, one JSON object a line.
RECORD = ROOT / "build" / "steps.jsonl"
#: More failures than this are a broken tree, not a busy machine.
SECOND_CHANCES_MAX = 8
#: pytest's status for "some tests failed"; all others mean that it could not run them.
SOME_FAILED = 1
#: How long tracebacks may take to be written before the processes are killed.
LAST_WORDS_S = 3.0
TIMED_OUT = 124


def main(words: list[str]) -> int:
    """Run what the command line asks for."""
    # An orderly exit, so that what this step has started ends with it.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    if words == ["--begin"]:
        RECORD.parent.mkdir(exist_ok=True)
        RECORD.unlink(missing_ok=True)
        return 0
    if words == ["--summary"]:
        print(summary(read_record()), flush=True)
        return 0
    again = words[:1] == ["--second-chance"]
    name, limit, *command = words[1:] if again else words
    return run_step(name, float(limit), command, again)


def run_step(name: str, limit_s: float, command: list[str], again: bool) -> int:
    """Run the command; keep and print what came of it."""
    print(f"\n=== {name} (at most {limit_s:.0f} s) ===", flush=True)
    began_s = time.monotonic()
    until_s = began_s + limit_s
    passed_again: list[str] = []
    if again:
        with tempfile.TemporaryDirectory(prefix="warren-step-") as cache:
            status = run([*command, "-o", f"cache_dir={cache}"], until_s)
            if status == SOME_FAILED:
                failed = failed_tests(Path(cache))
                passed_again = run_again(command[0], failed, until_s)
                status = 0 if failed and passed_again == failed else status
    else:
        status = run(command, until_s)
    took_s = time.monotonic() - began_s
    entry = {"name": name, "took_s": took_s, "limit_s": limit_s, "status": status}
    entry["passed_again"] = passed_again
    RECORD.parent.mkdir(exist_ok=True)
    with RECORD.open("a") as record:
        record.write(json.dumps(entry) + "\n")
    print("\n".join(["", *told_again(passed_again), told_step(entry)]), flush=True)
    return status


def run(command: list[str], until_s: float) -> int:
    """Its exit status; at the limit all its processes tell where they stand and are killed."""
    with subprocess.Popen(command, cwd=ROOT, process_group=0) as process:
        try:
            return process.wait(max(0.0, until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            print(f"\nTOO LONG: {' '.join(command)}\nits tracebacks, where it has any:", flush=True)
            end_group(process.pid, signal.SIGABRT)
            time.sleep(LAST_WORDS_S)
            return TIMED_OUT
        finally:
            end_group(process.pid, signal.SIGKILL)


def end_group(group: int, number: signal.Signals) -> None:
    """A signal for what is left of a command; pytest answers SIGABRT with all its stacks."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def failed_tests(cache: Path) -> list[str]:
    """The tests that pytest notes as failed; none if a whole file failed or there are too many."""
    noted = cache / "v" / "cache" / "lastfailed"
    names = sorted(json.loads(noted.read_text())) if noted.exists() else []
    if any("::" not in name for name in names) or len(names) > SECOND_CHANCES_MAX:
        print(f"\n{len(names)} failures: too much for a second chance", flush=True)
        return []
    return names


def run_again(pytest: str, tests: list[str], until_s: float) -> list[str]:
    """Those that pass when each is run alone."""
    passed = []
    for test in tests:
        print(f"\n--- once more, alone: {test}", flush=True)
        with tempfile.TemporaryDirectory(prefix="warren-step-") as cache:
            command = [pytest, "-q", "-p", "no:xdist", "-o", f"cache_dir={cache}", test]
            if run(command, until_s) == 0:
                passed.append(test)
    return passed


def told_again(passed_again: list[str]) -> list[str]:
    """Lines that nobody can miss."""
    if not passed_again:
        return []
    names = [f"!!!   {test}" for test in passed_again]
    return [f"!!! passed only when run again ({len(names)}):", *names]


def told_step(entry: dict[str, object]) -> str:
    outcome = "ok" if entry["status"] == 0 else f"FAILED (status {entry['status']})"
    took = f"{entry['took_s']:5.0f} s of at most {entry['limit_s']:.0f} s"
    return f"=== {entry['name']:<24} {took:<28} {outcome}"


def read_record() -> list[dict[str, object]]:
    """The steps since `--begin`."""
    if not RECORD.exists():
        return []
    return [json.loads(line) for line in RECORD.read_text().splitlines()]


def summary(entries: list[dict[str, object]]) -> str:
    """Every step with its time, and all tests that needed a second chance."""
    again = [test for entry in entries for test in entry["passed_again"]]  # type: ignore[attr-defined]
    total_s = sum(float(entry["took_s"]) for entry in entries)  # type: ignore[arg-type]
    lines = ["", *(told_step(entry) for entry in entries)]
    return "\n".join([*lines, *told_again(again), f"=== all steps: {total_s / 60:.1f} minutes"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
