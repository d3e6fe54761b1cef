"""Warren and RabbitMQ under the same faults, by the same clients, judged by the same checker.

    PYTHONPATH=. python tests/cluster/compare.py --seconds 90 --document

Three nodes each, queues mirrored on all of them by the same policy. Every way of handling
partitions gets two runs: `ends`, in which nodes are killed, stopped and suspended, and
`partitions`. The same seed rolls the same dice for all. `--only rabbitmq:autoheal` has one of them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from string import Template
from typing import Any

from bench.brokers import RabbitMQ
from fault_matrix import FAULT_COLUMNS, fault_cells
from fault_run import DRAIN_S, Finished, Plan, Run, go, unfinished
from rabbit_nodes import TICK_S, RabbitNodes
from rings import RingsGoOn

from warren.node.local_nodes import LocalNodeError
from warren.testing import Cluster
from warren.testing.cluster import ClusterFault

PAGE = Path(__file__).parents[2] / "docs" / "comparison.md"
TEMPLATE = Path(__file__).with_name("comparison_page.txt")
#: Whose, and how partitions are handled.
CONTESTANTS = (
    "rabbitmq:ignore",
    "rabbitmq:autoheal",
    "rabbitmq:pause_minority",
    "warren:ignore",
    "warren:autoheal",
    "warren:pause_minority",
)
#: What happens in a run; only what both can be done to.
RUNS = {
    "ends": ("kill", "kill_two", "kill_all", "restart", "rolling_restart", "pause"),
    "partitions": ("single", "halves", "random_halves", "majority_ring", "one_way"),
}
#: Longer than RabbitMQ's nodes take to notice.
LASTING_S = (8.0, 15.0)
COLUMNS = (
    "broker",
    "partitions are handled by",
    "what happened",
    "confirmed",
    *FAULT_COLUMNS,
    "mended by hand",
    "other",
)


@dataclass(frozen=True, slots=True)
class Compared:
    """One run of one contestant, as it stands in the table."""

    contestant: str
    kind: str
    cells: list[str]
    is_faulty: bool


class ComparedRun(Run):
    """What is only there in Warren is not asked for."""

    async def _kept_everywhere(self) -> list[str]:
        try:
            await asyncio.to_thread(RingsGoOn(self._cluster).wait_synchronised, DRAIN_S)
        except TimeoutError as error:
            return [f"not synchronised: {error}"]
        finally:
            queue = self.workload.kept
            if queue is not None:
                for message in await self._look_into(queue):
                    self.ledger.arrive(queue, message, redelivered=False)
                await self._with_channel(lambda channel: channel.queue_purge(queue))
        return []


@contextlib.contextmanager
def nodes_of(contestant: str, say: Callable[[str], None]) -> Iterator[Any]:
    """Three of them."""
    broker, _, mode = contestant.partition(":")
    if broker == "rabbitmq":
        with RabbitNodes(3, mode, say) as nodes:
            yield nodes
    else:
        with Cluster(
            3, config={"cluster_partition_handling": mode}, proxied_links=True, ready_s=180
        ) as cluster:
            yield cluster


def run_one(contestant: str, kind: str, seconds: float, seed: int) -> Compared:
    """On a cluster of its own."""
    began_s = time.monotonic()

    def say(text: str) -> None:
        print(f"{contestant} {time.monotonic() - began_s:7.2f}  {text}", flush=True)

    plan = Plan(seconds, seed, 3, mirrored=True, only=RUNS[kind], lasting_s=LASTING_S)
    say(f"{kind}, seed {seed}")
    result: Finished | None = None
    by_hand = 0
    try:
        with nodes_of(contestant, say) as nodes:
            try:
                result = go(nodes, plan, say, kind=ComparedRun)
            finally:
                by_hand = getattr(nodes, "mended_by_hand", 0)
    except (ClusterFault, LocalNodeError) as error:
        result = result or unfinished()
        result.faults.append(str(error))
    for text in result.faults[:10]:
        say(f"WRONG: {text[:500]}")
    say(f"{result.outcome}, mended by hand {by_hand}")
    return compared(contestant, kind, result, by_hand)


def compared(contestant: str, kind: str, result: Finished, mended_by_hand: int) -> Compared:
    """The row of a run."""
    outcome = result.outcome
    broker, _, mode = contestant.partition(":")
    acts = ", ".join(f"{name} {times}" for name, times in sorted(result.acts.items()))
    cells: list[object] = [
        {"rabbitmq": "RabbitMQ", "warren": "Warren"}[broker],
        f"`{mode}`",
        acts or "–",
        outcome.confirmed,
        *fault_cells(outcome),
        mended_by_hand,
        other_faults(result),
    ]
    return Compared(contestant, kind, [str(cell) for cell in cells], bool(result.faults))


def table(rows: Sequence[Compared]) -> str:
    """As Markdown."""
    lines = [COLUMNS, ["---"] * len(COLUMNS), *(row.cells for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def other_faults(result: Finished) -> str:
    """What no column counts."""
    counted = (
        "confirmed messages are lost",
        "without a word",
        "came after",
        "never sent",
        # Nothing waits anywhere: what has not come is lost.
        "not drained: {}",
    )
    rest = [text for text in result.faults if not any(it in text for it in counted)]
    return "; ".join(rest[:2]).replace("|", "/").replace("\n", " ")[:160] or "none"


def document(rows: Sequence[Compared], seconds: float, seed: int) -> None:
    """Write the page."""
    text = Template(TEMPLATE.read_text()).substitute(
        seconds=f"{seconds:g}",
        seed=seed,
        cores=os.cpu_count(),
        machine=platform.machine(),
        ticks=TICK_S,
        least=f"{LASTING_S[0]:g}",
        most=f"{LASTING_S[1]:g}",
        table="\n\n".join(
            f"### {title}\n\n{table([row for row in rows if row.kind == kind])}"
            for kind, title in (
                ("ends", "Nodes killed, stopped, suspended"),
                ("partitions", "Partitions"),
            )
        ),
    )
    PAGE.write_text(text)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help=f"these, with commas: {', '.join(CONTESTANTS)}")
    parser.add_argument("--runs", help=f"these, with commas: {', '.join(RUNS)}")
    parser.add_argument("--rows", type=Path, help="where rows are kept: go on after those in it")
    parser.add_argument("--document", action="store_true", help="write docs/comparison.md")
    options = parser.parse_args(arguments)
    missing = RabbitMQ.missing()
    contestants = options.only.split(",") if options.only else CONTESTANTS
    if missing and any(it.startswith("rabbitmq") for it in contestants):
        print(missing)
        return 2
    rows = read_rows(options.rows)
    for number, kind in enumerate(RUNS):
        for contestant in contestants:
            if kind in (options.runs or kind).split(","):
                seed = options.seed + number
                rows.append(run_one(contestant, kind, options.seconds, seed))
            if options.rows:
                options.rows.write_text(json.dumps([asdict(row) for row in rows]))
            if options.document:
                document(rows, options.seconds, options.seed)
    print(table(rows))
    return 1 if any(row.is_faulty for row in rows if "warren" in row.contestant) else 0


def read_rows(path: Path | None) -> list[Compared]:
    """Of earlier calls."""
    if path is None or not path.exists():
        return []
    return [Compared(**row) for row in json.loads(path.read_text())]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
