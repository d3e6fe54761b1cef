"""Prints verdicts: a table for all suites and the names behind each number."""

from __future__ import annotations

from collections.abc import Sequence

from harness.verdict import Verdict

#: A broken broker fails hundreds of tests; the rest of the names are in the result files.
NAMES_SHOWN_MAX = 60


def render_table(verdicts: Sequence[Verdict]) -> str:
    """One Markdown row a suite."""
    lines = [
        "| suite | passed | expected | missing | excepted | beyond RabbitMQ | second try | time |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {verdict.suite} {verdict.version} | {verdict.passed} | {verdict.expected} "
        f"| {len(verdict.missing)} | {verdict.waived} | {verdict.beyond} | {len(verdict.flaky)} "
        f"| {verdict.seconds:.0f} s |"
        for verdict in verdicts
    ]
    return "\n".join(lines)


def render_details(verdict: Verdict) -> str:
    """What is wrong with one suite, and what passed at the second try only."""
    lines: list[str] = []
    if verdict.trouble is not None:
        lines.append(f"{verdict.suite}: {verdict.trouble}")
    lines += _named(f"{verdict.suite}: expected, but did not pass", verdict.missing)
    lines += _named(f"{verdict.suite}: passed at the second try", verdict.flaky)
    lines += _named(f"{verdict.suite}: excepted, yet passes", verdict.waived_but_passing)
    return "\n".join(lines)


def _named(title: str, node_ids: Sequence[str]) -> list[str]:
    if not node_ids:
        return []
    lines = [f"{title} ({len(node_ids)}):"]
    lines += [f"  {node_id}" for node_id in node_ids[:NAMES_SHOWN_MAX]]
    if len(node_ids) > NAMES_SHOWN_MAX:
        lines.append(f"  … and {len(node_ids) - NAMES_SHOWN_MAX} more")
    return lines
