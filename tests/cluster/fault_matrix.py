"""The matrix of `make faults`: which runs, and the table that they leave in docs/faults.md."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template

from fault_ledger import Outcome
from fault_run import Finished, Plan
from fault_workloads import WORKLOADS

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
#: Of any table of outcomes; `fault_cells` has what stands in them.
FAULT_COLUMNS = (
    "lost",
    "unexpected",
    "twice, flagged",
    "twice, unflagged",
    "out of order",
    "s without a confirm",
    "longest",
)
#: What stands around the table.
TEMPLATE = Path(__file__).with_name("faults_page.txt")
COLUMNS = (
    "run",
    "seed",
    "acts",
    "confirmed",
    "delivered",
    *FAULT_COLUMNS,
    "other",
)


@dataclass(frozen=True, slots=True)
class Row:
    """A run and what came of it."""

    plan: Plan
    result: Finished


def plan(one: Plan) -> list[Plan]:
    """Plain queues, then all workloads on three nodes and on five; seeds follow on the first."""
    plain = [replace(one, mirrored=False, workload="W1", nodes=3)]
    mirrored = [
        replace(one, mirrored=True, workload=workload, nodes=nodes)
        for nodes in (3, 5)
        for workload in WORKLOADS
    ]
    return [replace(it, seed=one.seed + i) for i, it in enumerate([*plain, *mirrored])]


def fault_cells(outcome: Outcome) -> list[object]:
    """In the order of FAULT_COLUMNS."""
    return [
        outcome.lost,
        outcome.unexpected,
        outcome.flagged,
        outcome.unflagged,
        outcome.disordered,
        f"{outcome.unavailable_s:.1f}",
        f"{outcome.longest_s:.1f}",
    ]


def table(rows: Sequence[Row]) -> list[str]:
    """As Markdown."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for row in rows:
        asked, outcome = row.plan, row.result.outcome
        kind = "mirrored" if asked.mirrored else "plain"
        cells: list[object] = [
            f"{asked.workload}, {asked.nodes} nodes, {kind}, {asked.seconds:g} s",
            asked.seed,
            sum(row.result.acts.values()),
            outcome.confirmed,
            outcome.delivered,
            *fault_cells(outcome),
            "; ".join(row.result.faults[:2]).replace("|", "/")[:200] or "none",
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def document(rows: Sequence[Row], command: str) -> None:
    """Write the page."""
    acts = Counter[str]()
    for row in rows:
        acts.update(row.result.acts)
    seconds = sum(row.result.took_s for row in rows)
    did = ", ".join(f"{name} {times}" for name, times in sorted(acts.items()))
    text = Template(TEMPLATE.read_text()).substitute(
        command=command,
        runs=len(rows),
        seconds=f"{seconds:.0f}",
        cores=os.cpu_count(),
        machine=platform.machine(),
        table="\n".join(table(rows)),
        did=did,
    )
    PAGE.write_text(text)
