"""Compares a run with what RabbitMQ passes, less the exceptions that are written down."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.execute import Outcome
from harness.paths import BASELINE_DIR, EXCEPTIONS_FILE

#: Marks a baseline test that RabbitMQ itself passed at the second try only.
FLAKY_MARK = "~ "


@dataclass(frozen=True, slots=True)
class Waiver:
    """One entry of the exceptions file: tests that need not pass, and why."""

    suite: str
    tests: str
    reason: str
    #: False: the test is not even run, because it must not be (it leaves the machine).
    run: bool = True

    def covers(self, node_id: str) -> bool:
        """Whether the pattern, in which only `*` is special, matches the node id."""
        pattern = ".*".join(re.escape(part) for part in self.tests.split("*"))
        return re.fullmatch(pattern, node_id, re.DOTALL) is not None


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a suite did: what was expected, what is missing, what came on top."""

    suite: str
    version: str
    expected: int
    missing: tuple[str, ...]
    waived: int
    waived_but_passing: tuple[str, ...]
    beyond: int
    flaky: tuple[str, ...]
    seconds: float
    trouble: str | None

    @property
    def passed(self) -> int:
        """How many of the expected tests passed."""
        return self.expected - len(self.missing)

    @property
    def is_good(self) -> bool:
        """Whether every expected test passed, and there were any."""
        return not self.missing and self.expected > 0 and self.trouble is None


def load_waivers(path: Path = EXCEPTIONS_FILE) -> list[Waiver]:
    """Read the exceptions file.

    Raises: ValueError when an entry gives no reason.
    """
    waivers = []
    for entry in tomllib.loads(path.read_text())["exception"]:
        if not entry.get("reason", "").strip():
            raise ValueError(f"{path}: {entry.get('tests')} has no reason")
        waivers.append(Waiver(**entry))
    return waivers


def load_baseline(suite: str) -> set[str]:
    """The node ids RabbitMQ passes; empty when none were recorded."""
    return {line.removeprefix(FLAKY_MARK) for line in _baseline_lines(suite)}


def _baseline_lines(suite: str) -> list[str]:
    path = BASELINE_DIR / f"{suite}.txt"
    if not path.exists():
        return []
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


def write_baseline(suite: str, outcome: Outcome, server: str, *, add: bool) -> None:
    """Record what passed on the broker that judges; `add` keeps what is recorded already."""
    lines = {(FLAKY_MARK if name in outcome.flaky else "") + name for name in outcome.passed}
    if add:
        kept = _baseline_lines(suite)
        lines |= {line for line in kept if line.removeprefix(FLAKY_MARK) not in outcome.passed}
    BASELINE_DIR.mkdir(exist_ok=True)
    head = [
        f"# {len(lines)} tests pass on {server}; recorded by run.py --record.",
        f"# '{FLAKY_MARK.strip()}' marks those that passed at the second try only.",
    ]
    text = "\n".join([*head, *sorted(lines)])
    (BASELINE_DIR / f"{suite}.txt").write_text(text + "\n")


def judge(
    suite: str,
    version: str,
    baseline: Iterable[str],
    outcome: Outcome,
    waivers: Sequence[Waiver],
    *,
    only_under: Sequence[str] | None = None,
) -> Verdict:
    """Compare; `only_under` narrows the expectation to the targets that were run."""
    wanted = set(baseline)
    if only_under is not None:
        wanted = {node_id for node_id in wanted if _is_under(node_id, only_under)}
    excepted = waived(suite, wanted, waivers)
    expected = wanted - excepted
    return Verdict(
        suite=suite,
        version=version,
        expected=len(expected),
        missing=tuple(sorted(expected - outcome.passed)),
        waived=len(excepted),
        waived_but_passing=tuple(sorted(excepted & outcome.passed)),
        beyond=len(outcome.passed - wanted),
        flaky=tuple(sorted(outcome.flaky)),
        seconds=outcome.seconds,
        trouble=outcome.trouble,
    )


def waived(suite: str, node_ids: Iterable[str], waivers: Sequence[Waiver]) -> set[str]:
    """Those of the suite's tests that some exception covers."""
    relevant = [waiver for waiver in waivers if waiver.suite == suite]
    return {node_id for node_id in node_ids if any(w.covers(node_id) for w in relevant)}


def _is_under(node_id: str, targets: Sequence[str]) -> bool:
    return any(
        node_id == target or node_id.startswith((f"{target}/", f"{target}::", f"{target}["))
        for target in targets
    )
