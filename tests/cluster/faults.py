"""A cluster under load whose nodes, links, disks and clocks fail at random, from a seed.

    python tests/cluster/faults.py --seconds 180 --seed 7
    python tests/cluster/faults.py --seconds 180 --seed 7 --mirrored --workload W3 --nodes 5
    python tests/cluster/faults.py --matrix --seconds 60 --document

Producers with confirms publish again what was refused or not answered; consumers take and
acknowledge. In the end all is healed and drained: nothing that was confirmed may be missing,
nothing may come that was never sent, what comes twice must say so, and a queue with one consumer
keeps the order of every producer. Mirrored queues must be synchronised everywhere in the end, and
whichever replica is master has the same messages. What clients do is in fault_workloads.py, what
happens to nodes in fault_acts.py; `--faults kill,disk_full` has these only.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bad_disks import BadDisks
from fault_acts import ALWAYS, DAMAGE, MIRRORED, ON_BAD_DISKS
from fault_matrix import Row, document, plan, table
from fault_run import Finished, Plan, go, unfinished
from fault_workloads import WORKLOADS

from warren.node.local_nodes import LocalNodeError
from warren.testing import Cluster
from warren.testing.cluster import ClusterFault


@contextlib.contextmanager
def faulty_cluster(
    nodes: int = 3, directory: str | None = None, ready_s: float = 180
) -> Iterator[tuple[Cluster, BadDisks]]:
    """Nodes whose links and disks can be broken."""
    with tempfile.TemporaryDirectory(prefix="warren-disks-") as made:
        disks = BadDisks(Path(made), nodes)
        with Cluster(
            nodes,
            directory=directory,
            proxied_links=True,
            node_env=disks.env,
            ready_s=ready_s,
        ) as cluster:
            yield cluster, disks


def run_one(asked: Plan, directory: str | None = None) -> Row:
    """One run on a cluster of its own; tells what happens, and what was wrong."""
    began_s = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began_s:7.2f}  {text}", flush=True)

    say(f"seed {asked.seed}: {asked}")
    result: Finished | None = None
    try:
        with faulty_cluster(asked.nodes, directory) as (cluster, disks):
            result = go(cluster, asked, say, disks)
    except (ClusterFault, LocalNodeError) as error:
        # A fault in a node's log is as wrong as what clients see, and so is one that does not come.
        result = result or unfinished()
        result.faults.append(str(error))
    for text in result.faults[:20]:
        say(f"WRONG: {text}")
    say(f"{result.outcome}")
    return Row(asked, result)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--mirrored", action="store_true", help="with mirrored queues")
    parser.add_argument("--workload", choices=[*WORKLOADS], default="W1")
    every = [*ALWAYS, *ON_BAD_DISKS, *MIRRORED, *DAMAGE]
    parser.add_argument("--faults", help=f"only these, with commas: {', '.join(every)}")
    parser.add_argument("--matrix", action="store_true", help="all workloads on 3 and 5 nodes")
    parser.add_argument("--runs", type=int, help="of the matrix, only so many")
    parser.add_argument("--document", action="store_true", help="write docs/faults.md")
    parser.add_argument("--directory", help="where the nodes' files are kept; else they are not")
    options = parser.parse_args(arguments)
    only = tuple(options.faults.split(",")) if options.faults else ()
    one = Plan(
        seconds=options.seconds,
        seed=options.seed,
        nodes=options.nodes,
        mirrored=options.mirrored,
        workload=options.workload,
        only=only,
    )
    plans = plan(one)[: options.runs] if options.matrix else [one]
    rows: list[Row] = []
    for asked in plans:
        rows.append(run_one(asked, options.directory))
        if options.document:
            document(rows, "make faults" if options.matrix else " ".join(sys.argv))
    print("\n".join(table(rows)))
    return 1 if any(row.result.faults for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
