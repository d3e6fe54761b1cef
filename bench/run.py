#!/usr/bin/env python3
"""The benchmark program: brokers up, every load against each of them in turn, report.

All brokers stay up and take turns load by load, round by round, so that what the machine does
besides falls on all of them alike; before each turn all must have come to rest.
"""

import argparse
import os
import resource
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

if not __package__:
    # Started as a file: let `bench` be found beside it.
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import report
from bench.brokers import (
    PROTOTYPE_DEFAULT,
    Broker,
    BrokerError,
    Prototype,
    RabbitMQ,
    StoredWarren,
    Warren,
)
from bench.cluster_loads import CLUSTER_LOADS
from bench.clusters import RabbitCluster, WarrenCluster
from bench.disk import describe
from bench.generator import GeneratorError, build
from bench.loads import CURVES, LOADS, Curve, Load
from bench.measure import await_rest
from bench.metrics import Metrics, Pace
from bench.mirror_loads import MIRROR_LOADS
from bench.operating_loads import OPERATING_LOADS
from bench.outcome import Outcome
from bench.procedures import carry_out
from bench.store_loads import DEEP_LOADS, STORE_LOADS

FULL_PACE, QUICK_PACE = Pace(1.0, 5.0), Pace(0.5, 1.5)
#: Curves compare points of one broker with each other: short runs do.
CURVE_PACE = Pace(1.0, 2.0)
ROUNDS = 3
#: Loads that have a name together, and then a record and a place in the page of their own.
PARTS = {
    "store": STORE_LOADS,
    "cluster": CLUSTER_LOADS,
    "mirrors": MIRROR_LOADS,
    "operating": OPERATING_LOADS,
    "deep": DEEP_LOADS,
}
#: What is run unless --only says otherwise.
USUAL_LOADS = (*LOADS, *STORE_LOADS, *CLUSTER_LOADS, *MIRROR_LOADS, *OPERATING_LOADS)
ALL_LOADS = (*USUAL_LOADS, *DEEP_LOADS)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is going to be run."""

    loads: list[Load]
    curves: list[Curve]
    rounds: int
    pace: Pace

    @property
    def all_loads(self) -> list[Load]:
        """Those of the curves too."""
        return [*self.loads, *(point for curve in self.curves for point in curve.points)]


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round, no curves")
    parser.add_argument("--rounds", type=int, help=f"rounds of every load ({ROUNDS})")
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="a load, store, cluster, mirrors, operating, deep or curve:NAME",
    )
    parser.add_argument("--brokers", default="warren,rabbitmq,prototype", help="who takes part")
    parser.add_argument("--prototype", type=Path, help="source of the data-plane prototype")
    parser.add_argument("--base", type=Path, help="where the data directories are made")
    parser.add_argument("--no-record", action="store_true", help="print only, write no file")
    parser.add_argument("--list", action="store_true", help="print the names for --only")
    return parser.parse_args(arguments)


def make_plan(arguments: argparse.Namespace) -> Plan:
    """Chooses loads, curves and their length.

    Raises:
        SystemExit: --only names something unknown.
    """
    loads, curves = list(USUAL_LOADS), [] if arguments.quick else list(CURVES)
    if arguments.only:
        wanted = set(arguments.only)
        for part in wanted & PARTS.keys():
            wanted = wanted - {part} | {load.name for load in PARTS[part]}
        loads = [load for load in ALL_LOADS if load.name in wanted]
        curves = [curve for curve in CURVES if f"curve:{curve.name}" in wanted]
        known = {load.name for load in loads} | {f"curve:{curve.name}" for curve in curves}
        if unknown := wanted - known:
            raise SystemExit(f"bench: no load named {', '.join(sorted(unknown))}; see --list")
    if arguments.quick:
        loads = [replace(load, amount=load.quick_amount or load.amount) for load in loads]
    rounds = arguments.rounds or (1 if arguments.quick else ROUNDS)
    return Plan(loads, curves, rounds, QUICK_PACE if arguments.quick else FULL_PACE)


def choose_brokers(arguments: argparse.Namespace, base: Path) -> list[Broker]:
    """Those that were asked for and can take part; the others are named with the reason."""
    from_environment = os.environ.get("WARREN_BENCH_PROTOTYPE")
    source = arguments.prototype or Path(from_environment or PROTOTYPE_DEFAULT)
    candidates: list[tuple[Broker, str | None]] = [
        (Warren(base), Warren.missing()),
        (StoredWarren(base), Warren.missing()),
        (RabbitMQ(base), RabbitMQ.missing()),
        (Prototype(base, source.resolve()), Prototype.missing(source)),
        (WarrenCluster(base), Warren.missing()),
        (RabbitCluster(base), RabbitMQ.missing()),
    ]
    wanted = arguments.brokers.split(",")
    if unknown := set(wanted) - {broker.name for broker, _ in candidates}:
        raise SystemExit(f"bench: no broker named {', '.join(sorted(unknown))}")
    taking_part = []
    for broker, missing in candidates:
        if broker.name not in wanted:
            continue
        if missing:
            print(f"{broker.name} is left out: {missing}", flush=True)
        else:
            taking_part.append(broker)
    return taking_part


def start_all(brokers: list[Broker]) -> list[Broker]:
    """Starts them; one that cannot start is left out, loudly."""
    started = []
    for broker in brokers:
        print(f"starting {broker.name}", flush=True)
        try:
            broker.start()
        except (BrokerError, OSError) as error:
            print(f"{broker.name} is left out: {error}", flush=True)
            broker.stop()
        else:
            started.append(broker)
    return started


def summary(metrics: Metrics) -> str:
    """The progress line's end."""
    if "rate" not in metrics:
        return ", ".join(f"{name} {report.number(value)}" for name, value in metrics.items())
    text = f"{report.number(metrics['rate'])} /s, {metrics['cpu_us']:.2f} CPU µs"
    if "deliver_p99_ms" in metrics:
        text += f", p50 {metrics['deliver_p50_ms']:.2f} ms, p99 {metrics['deliver_p99_ms']:.2f} ms"
    if "memory_bytes" in metrics:
        text += f", {report.number(metrics['memory_bytes'])} B each"
    return text


def take_turn(outcome: Outcome, label: str, load: Load, broker: Broker, pace: Pace) -> None:
    """One load against one broker."""
    print(f"{label} {broker.name:9} {load.name:23} ... ", end="", flush=True)
    start = time.monotonic()
    try:
        metrics = carry_out(load, broker, pace)
    except (GeneratorError, BrokerError) as error:
        reason = str(error)
        outcome.fail(load, broker.name, reason.splitlines()[0] if reason else "no reason given")
        print(f"failed: {reason}", flush=True)
        if not broker.is_running:
            broker.restart()
        return
    outcome.add(load, broker.name, metrics)
    print(f"{summary(metrics)} (took {time.monotonic() - start:.0f} s)", flush=True)


def takes_part(broker: Broker, load: Load) -> bool:
    """Whether this load is asked of this broker."""
    if load.warren_only and broker.name != "warren":
        return False
    if load.clustered or broker.clustered:
        return load.clustered and broker.clustered
    kept = broker.on_disk if load.on_disk else broker.in_memory
    return kept and (load.prototype or broker.full)


def run_loads(plan: Plan, brokers: list[Broker], outcome: Outcome) -> None:
    """All rounds of all loads; the order of the brokers turns with the rounds."""
    for round_number in range(1, plan.rounds + 1):
        for load in plan.loads:
            if load.once and round_number > 1:
                continue
            shift = round_number % len(brokers)
            for broker in brokers[shift:] + brokers[:shift]:
                if takes_part(broker, load):
                    await_rest(pid for other in brokers for pid in other.pids)
                    label = f"round {round_number}/{plan.rounds}"
                    take_turn(outcome, label, load, broker, plan.pace)


def run_curves(plan: Plan, brokers: list[Broker], outcome: Outcome) -> None:
    """Every point of every curve once; points that the loads have measured are kept."""
    for curve in plan.curves:
        for point in curve.points:
            for broker in brokers:
                known = broker.name in outcome.samples.get(point.name, {})
                if broker.full and takes_part(broker, point) and not known:
                    await_rest(pid for other in brokers for pid in other.pids)
                    take_turn(outcome, f"curve {curve.name}", point, broker, CURVE_PACE)


def run_stage(plan: Plan, brokers: list[Broker], outcome: Outcome) -> list[str]:
    """Starts these brokers, has them measured and ends them; the names of those that started."""
    try:
        started = start_all(brokers)
        if started:
            run_loads(plan, started, outcome)
            run_curves(plan, started, outcome)
        return [broker.name for broker in started]
    finally:
        for broker in brokers:
            broker.stop()


def publish(outcome: Outcome, context: report.Context, record: bool, part: str) -> None:
    """Prints the tables; writes the record and the page when asked to."""
    text = report.render(outcome, context, whole=not part)
    print(f"\n{text}\n")
    if record:
        print(f"recorded in {report.write_record(outcome, context, part).relative_to(report.ROOT)}")
        if report.write_page(text, part):
            print(f"tables in {report.PAGE.relative_to(report.ROOT)}")


def main(arguments: list[str] | None = None) -> int:
    """Runs the benchmarks; 0 when all that was asked for could be measured."""
    parsed = parse_arguments(arguments)
    if parsed.list:
        print("\n".join(f"{load.name:23} {load.title}" for load in ALL_LOADS))
        print("store                   all whose names begin with persist")
        print("cluster                 all whose names begin with cluster")
        print("mirrors                 all whose names begin with mirrors")
        print("operating               listing-10000 and warrenctl-calls")
        print("deep                    deep-paging, which is run by name only")
        print("\n".join(f"curve:{curve.name:17} {curve.title}" for curve in CURVES))
        return 0
    plan = make_plan(parsed)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    # The brokers inherit it: thousands of connections need more than the usual soft limit.
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # Ended from outside, the brokers must not outlive us: take the way of an interrupt.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    outcome = Outcome()
    with tempfile.TemporaryDirectory(prefix="warren-bench-", dir=parsed.base) as base:
        try:
            build()
            candidates = choose_brokers(parsed, Path(base))
            brokers = [b for b in candidates if any(takes_part(b, load) for load in plan.all_loads)]
            disk = describe(Path(base))
            context = report.describe_run([], plan.rounds, plan.pace.measure_s, disk)
            # Clusters come by themselves: their idle nodes would be many beside the others.
            singles = [broker for broker in brokers if not broker.clustered]
            clusters = [broker for broker in brokers if broker.clustered]
            names = [
                name for stage in (singles, clusters) for name in run_stage(plan, stage, outcome)
            ]
            if not names:
                print("no broker to measure", file=sys.stderr)
                return 1
            # Whatever has one name is one in the tables.
            context = replace(context, brokers=list(dict.fromkeys(names)))
        except (GeneratorError, BrokerError) as error:
            print(f"bench: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\ninterrupted; stopping the brokers", file=sys.stderr)
            return 130
    # Some parts have a record of their own; any other is no record of the whole.
    part = parsed.only[0] if parsed.only and len(parsed.only) == 1 else ""
    part = part if part in PARTS else ""
    is_part = bool(parsed.only) and not part
    publish(outcome, context, not (parsed.no_record or is_part or parsed.quick), part)
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
