"""Turns an outcome into tables, a JSON record with the commit, and the page in docs."""

import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.bars import judge
from bench.cluster_loads import CLUSTER_LOADS
from bench.loads import CURVES, LOADS, Load
from bench.mirror_loads import MIRROR_LOADS, REPLICAS
from bench.operating_loads import OPERATING_LOADS
from bench.outcome import Outcome
from bench.store_loads import STORE_LOADS

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
#: Around the tables in the page; a part of the loads has a place of its own.
MARK = "<!-- results{part}: {edge} -->"

Row = list[str]


@dataclass(frozen=True, slots=True)
class Context:
    """What has to be known to read the numbers."""

    date: str
    commit: str
    machine: str
    rounds: int
    measure_s: float
    brokers: list[str]
    #: What the data directories are on.
    disk: str = ""


def describe_run(brokers: list[str], rounds: int, measure_s: float, disk: str) -> Context:
    """The context of a run that begins now."""
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    return Context(date, _commit(), _machine(), rounds, measure_s, brokers, disk)


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def _commit() -> str:
    commit = _git("rev-parse", "--short=10", "HEAD") or "unknown"
    # Only what could change the numbers counts as a change.
    return f"{commit}-changed" if _git("status", "--porcelain", "--", "src", "bench") else commit


def _machine() -> str:
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    cores = len(os.sched_getaffinity(0))
    return f"{cores} × {model}, Linux {platform.release()}, Python {platform.python_version()}"


def number(value: float | None) -> str:
    """A number with three significant digits and a letter for thousands and millions."""
    if value is None:
        return "–"
    for limit, divisor, letter in ((1e6, 1e6, " M"), (1e4, 1e3, " k")):
        if abs(value) >= limit:
            return f"{value / divisor:.3g}{letter}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def markdown(header: Row, rows: list[Row]) -> str:
    """A table that reads well on a terminal too: the columns are padded."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: Row) -> str:
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
        return f"| {' | '.join(padded)} |"

    rule = f"|{'|'.join('-' * (width + 2) for width in widths)}|"
    return "\n".join([line(header), rule, *map(line, rows)])


def _measured(outcome: Outcome) -> list[Load]:
    loads = (*LOADS, *STORE_LOADS, *CLUSTER_LOADS, *MIRROR_LOADS, *OPERATING_LOADS)
    return [load for load in loads if load.name in outcome.samples]


def rates_table(outcome: Outcome, brokers: list[str]) -> str:
    """Rate, ratios, and the CPU of the broker with the generator's own beside it."""
    header = ["load", *(f"{broker} /s" for broker in brokers), "of rabbitmq", "of prototype"]
    header += [f"{broker} CPU µs (+ generator)" for broker in brokers]
    rows = []
    for load in _measured(outcome):
        if all(outcome.median(load.name, broker, "rate") is None for broker in brokers):
            continue
        row = [load.title]
        row += [number(outcome.median(load.name, broker, "rate")) for broker in brokers]
        for other in ("rabbitmq", "prototype"):
            ratio = outcome.ratio(load.name, "rate", "warren", other)
            row.append("–" if ratio is None else f"{ratio:.2f} ×")
        row += [_cpu_cell(outcome, load, broker) for broker in brokers]
        rows.append(row)
    return markdown(header, rows) if rows else ""


def _cpu_cell(outcome: Outcome, load: Load, broker: str) -> str:
    text = number(outcome.median(load.name, broker, "cpu_us"))
    own = outcome.median(load.name, broker, "generator_us")
    return text if own is None else f"{text} (+ {number(own)})"


def latency_table(outcome: Outcome, brokers: list[str]) -> str:
    """Milliseconds from the due time to the delivery and to the confirm."""
    header = ["load, ms from the due time", "broker"]
    kinds = ("deliver", "confirm")
    quantiles = ("p50", "p99", "p999")
    header += [f"{kind} {quantile}" for kind in kinds for quantile in quantiles]
    rows = [
        [load.title, broker]
        + [
            number(outcome.median(load.name, broker, f"{kind}_{quantile}_ms"))
            for kind in kinds
            for quantile in quantiles
        ]
        for load in _measured(outcome)
        if load.latencies
        for broker in outcome.samples[load.name]
        if broker in brokers
    ]
    return markdown(header, rows) if rows else ""


#: Everything else that a load yields: metric, what it says.
DETAILS = (
    ("memory_bytes", "memory each, B"),
    ("connect_rate", "connections opened /s"),
    ("delete_rate", "deletes /s"),
    ("fill_rate", "fill, msg/s"),
    ("drain_rate", "drain, msg/s"),
    ("bare_p50_ms", "bare append and fdatasync, p50 ms"),
    ("bare_p99_ms", "bare append and fdatasync, p99 ms"),
    ("confirm_p50_of_bare", "confirm p50, of the bare one"),
    ("confirm_p99_of_bare", "confirm p99, of the bare one"),
    ("floor_p50_ms", "a server that only syncs and answers, p50 ms"),
    ("floor_p99_ms", "a server that only syncs and answers, p99 ms"),
    ("confirm_p50_of_floor", "confirm p50, of that server's"),
    ("confirm_p99_of_floor", "confirm p99, of that server's"),
    ("written_of_body", "written to disk, of the body"),
    ("log_of_body", "in the log, of the body"),
    ("killed_start_s", "start after a kill, s"),
    ("stop_s", "clean stop, s"),
    ("clean_start_s", "start after it, s"),
    ("backlog_mb", "backlog, MB"),
    ("fill_mb_s", "fill, MB/s"),
    ("blocked", "times a publisher was blocked"),
    ("drain_mb_s", "drain, MB/s"),
    ("disk_mb_s", "plain sequential reading, MB/s"),
    ("cold", "page cache dropped before the drain (1: all)"),
    ("fill_rss_mb", "most memory in the fill, MB"),
    ("drain_rss_mb", "most memory in the drain, MB"),
    ("peak_rss_mb", "most memory ever, MB"),
    ("log_most_mb", "most room of the log, MB"),
    ("log_left_mb", "room of the log afterwards, MB"),
    ("log_left_s", "waited for that, s"),
    ("record_bytes", "a record in the log, B"),
    ("written_bytes", "written to disk for a message, B"),
    ("direct_rate", "both clients on the queue's node, msg/s"),
    ("via_rate", "the producer on another node, msg/s"),
    ("via_of_direct", "that, of the first"),
    ("both_rate", "the clients on two other nodes, msg/s"),
    ("both_of_direct", "that, of the first"),
    ("direct_cpu_us", "CPU µs of all nodes, both clients on the queue's"),
    ("via_cpu_us", "CPU µs of all nodes, the producer on another"),
    ("both_cpu_us", "CPU µs of all nodes, the clients on two others"),
    ("failover_s", "kill of a node to the next declare, median s"),
    ("failover_most_s", "kill of a node to the next declare, most s"),
    ("failed_declares", "connections lost by declares on other nodes"),
    ("import_s", "import through one of two nodes, s"),
    ("catch_up_s", "start of the third, empty node, s"),
    ("direct_fill_rate", "no consumer, the producer on the master's node, msg/s"),
    ("via_fill_rate", "no consumer, the producer on another node, msg/s"),
    ("direct_drained_rate", "consumed meanwhile, the producer on the master's node, msg/s"),
    ("via_drained_rate", "consumed meanwhile, the producer on another node, msg/s"),
    ("direct_fill_cpu_us", "CPU µs of all nodes, no consumer, on the master's node"),
    ("via_fill_cpu_us", "CPU µs of all nodes, no consumer, on another node"),
    ("direct_drained_cpu_us", "CPU µs of all nodes, consumed, on the master's node"),
    ("via_drained_cpu_us", "CPU µs of all nodes, consumed, on another node"),
    ("kills", "kills"),
    ("gap_p50_s", "gap in the confirms, median s"),
    ("gap_p99_s", "gap in the confirms, p99 s"),
    ("stop_gap_s", "gap in the confirms, s"),
    ("failed_publishes", "publishes that failed on other nodes"),
    ("baseline_p99_ms", "publish to confirm before it, p99 ms"),
    ("sync_p99_ms", "publish to confirm during it, p99 ms"),
    ("sync_most_ms", "publish to confirm during it, most ms"),
    ("sync_of_baseline", "p99 during it, of that before"),
    ("sync_s", "synchronised within, s"),
    ("sync_mb", "received by the new mirror, MB"),
    ("rejoin_s", "start of the node to synchronised, s"),
    ("moved_mb", "received by it meanwhile, MB"),
    ("moved_percent", "that, % of the backlog"),
    ("mirrored_queues", "mirrored queues"),
    ("mirror_s", "declared and synchronised within, s"),
    ("all_serve_s", "kill of a node until all serve again, s"),
    ("refused_publishes", "publishes refused meanwhile, and sent again"),
    ("waits_rate", "confirms wait for the mirrors, msg/s"),
    ("early_rate", "they do not, msg/s"),
    ("early_of_waits", "that, of the first"),
    ("waits_cpu_us", "CPU µs of all nodes, they wait"),
    ("early_cpu_us", "CPU µs of all nodes, they do not"),
    ("waits_p50_ms", "publish to confirm at 1,000 msg/s, they wait, p50 ms"),
    ("waits_p99_ms", "publish to confirm at 1,000 msg/s, they wait, p99 ms"),
    ("early_p50_ms", "publish to confirm at 1,000 msg/s, they do not, p50 ms"),
    ("early_p99_ms", "publish to confirm at 1,000 msg/s, they do not, p99 ms"),
    ("rebalance_s", "masters spread within, s"),
    ("moved_masters", "masters moved"),
    ("rebalance_p99_ms", "publish to confirm meanwhile, p99 ms"),
    ("rebalance_most_ms", "publish to confirm meanwhile, most ms"),
    ("rebalance_of_baseline", "that p99, of that before"),
    ("idle_rate", "with nobody who lists, msg/s"),
    ("idle_p50_ms", "publish to confirm then, p50 ms"),
    ("idle_p99_ms", "publish to confirm then, p99 ms"),
    ("listing_rate", "with a lister, msg/s"),
    ("listing_p50_ms", "publish to confirm then, p50 ms"),
    ("listing_p99_ms", "publish to confirm then, p99 ms"),
    ("listing_of_idle", "that p99, of the idle one"),
    ("lists", "lists made meanwhile"),
    ("list_s", "a list, s"),
    *((f"replicas_{n}_rate", f"no consumer, {n} replicas, msg/s") for n in REPLICAS),
    *((f"replicas_{n}_cpu_us", f"CPU µs of all nodes, {n} replicas") for n in REPLICAS),
)


def details_table(outcome: Outcome, brokers: list[str]) -> str:
    """Memory and the rates of the parts."""
    rows = [
        [load.title, title, *(number(outcome.median(load.name, b, metric)) for b in brokers)]
        for load in _measured(outcome)
        for metric, title in DETAILS
        if any(outcome.median(load.name, b, metric) is not None for b in brokers)
    ]
    return markdown(["load", "what", *brokers], rows) if rows else ""


def curves_table(outcome: Outcome, brokers: list[str]) -> str:
    """The cost at 1, 2, 4 and 8 times the size, and how much it grew."""
    rows = []
    for curve in CURVES:
        for broker in brokers:
            costs = outcome.curve_cost(curve, broker)
            if costs is None:
                continue
            sizes = f"{curve.sizes[0]:,} to {curve.sizes[-1]:,}"
            growth = f"{costs[-1] / costs[0]:.2f} ×" if costs[0] else "–"
            cells = [number(cost) for cost in costs]
            rows.append([curve.title, sizes, curve.unit, broker, *cells, growth])
    header = ["over", "sizes", "cost", "broker", "1×", "2×", "4×", "8×", "growth"]
    return markdown(header, rows) if rows else ""


def bars_table(outcome: Outcome, whole: bool = True) -> str:
    """Each bar with its number and verdict; of a part of the loads, those that were measured."""
    rows = []
    for verdict in judge(outcome):
        if verdict.value is None and not whole:
            continue
        value = "–" if verdict.value is None else f"{verdict.value:.3g} {verdict.unit}"
        rows.append([verdict.title, verdict.limit, value, verdict.status])
    return markdown(["bar", "limit", "Warren", "verdict"], rows)


def render(outcome: Outcome, context: Context, whole: bool = True) -> str:
    """All tables, in Markdown."""
    took_part = ", ".join(context.brokers)
    seconds = f"{context.measure_s:g} s"
    parts = [
        f"{context.date}, commit {context.commit}: medians of {context.rounds} interleaved "
        f"round(s), {seconds} each; {took_part}.\n{context.machine}; data on {context.disk}.",
        rates_table(outcome, context.brokers),
        latency_table(outcome, context.brokers),
        details_table(outcome, context.brokers),
        curves_table(outcome, context.brokers),
        bars_table(outcome, whole),
    ]
    if outcome.failures:
        parts.append("Not measured:\n" + "\n".join(f"- {line}" for line in outcome.failures))
    return "\n\n".join(part for part in parts if part)


def write_record(outcome: Outcome, context: Context, part: str = "") -> Path:
    """The JSON record: every sample, not only the medians."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{context.date}-{context.commit}{part and f'-{part}'}.json"
    record = {
        **asdict(context),
        "samples": outcome.samples,
        "failures": outcome.failures,
        "bars": [asdict(verdict) for verdict in judge(outcome)],
    }
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def write_page(text: str, part: str = "") -> bool:
    """Replaces the results in the page; False when the page has no place for them."""
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    name = part and f" of the {part}"
    opening, closing = (MARK.format(part=name, edge=edge) for edge in ("start", "end"))
    before, start, rest = page.partition(opening)
    _, end, after = rest.partition(closing)
    if not start or not end:
        return False
    page = f"{before}{opening}\n{text}\n{closing}{after}"
    PAGE.write_text(page, encoding="utf-8")
    return True
