"""Keeps the table of `docs/compatibility.md` in step with the baselines and the last runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.catalogue import SUITES
from harness.paths import PROJECT_DIR
from harness.verdict import Verdict, Waiver, load_baseline, waived

DOCUMENT = PROJECT_DIR / "docs" / "compatibility.md"
BEGIN = "<!-- suites: begin -->"
END = "<!-- suites: end -->"
NOT_RUN = "not run yet"


def update_document(
    verdicts: Sequence[Verdict], waivers: Sequence[Waiver], path: Path = DOCUMENT
) -> None:
    """Rewrite the table; suites that were not run now keep what Warren's column says of them."""
    text = path.read_text()
    head, _, rest = text.partition(BEGIN)
    old_table, _, tail = rest.partition(END)
    warren = _read_column(old_table)
    warren |= {verdict.suite: _describe(verdict) for verdict in verdicts}
    lines = [
        "| client | version | pass on RabbitMQ 3.10.8 | of these excepted | pass on Warren |",
        "|---|---|--:|--:|---|",
    ]
    for suite in SUITES:
        baseline = load_baseline(suite.name)
        excepted = len(waived(suite.name, baseline, waivers))
        lines.append(
            f"| {suite.name} | {suite.version} | {len(baseline)} | {excepted} "
            f"| {warren.get(suite.name, NOT_RUN)} |"
        )
    table = "\n".join(lines)
    path.write_text(f"{head}{BEGIN}\n{table}\n{END}{tail}")


def _describe(verdict: Verdict) -> str:
    if verdict.trouble is not None:
        return "could not be run"
    return f"{verdict.passed} of {verdict.expected}"


def _read_column(table: str) -> dict[str, str]:
    """Suite name -> last cell, of the rows there are."""
    cells = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return {row[0]: row[-1] for row in cells[1:]}
