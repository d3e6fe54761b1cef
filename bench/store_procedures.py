"""Carries out the loads of the store; what needs a fresh broker restarts it.

Metrics, beside those of bench/procedures.py: `bare_*` (one append and fdatasync of this disk),
`floor_*` (a server that only syncs and answers), `*_of_bare` and `*_of_floor` (a latency over that
of the same turn), `*_of_body` and `*_of_record` (bytes
that reached the disk over those that had to), `*_start_s` (from the start of the process until all
messages are there again), `fill_*`, `drain_*` and `*_mb`.
"""

import socket
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from bench.brokers import READY_TIMEOUT_S, Broker, BrokerError
from bench.disk import ReadProbe, allocated_bytes, drop_cache, free_bytes, used_bytes
from bench.generator import GeneratorError, Run, count_ready, floor_latency, run, sync_latency
from bench.loads import Load
from bench.metrics import Metrics, Pace, flow_metrics
from bench.store_loads import FAN_OUT_MESSAGE_BYTES, PAGING_MESSAGE_BYTES
from bench.watch import Watch, peak_rss_bytes, written_bytes

MB = 1_000_000
#: One record of a small message, as the bare append that its confirm is measured against.
BARE_APPEND_BYTES, BARE_APPENDS, BARE_RATE = 300, 2_000, 5_000
#: Two series of them are as long as the flow between them: a tail is rare on both sides alike.
FLOOR_MESSAGES = 12_500
#: A broker that answers but has not all messages may still be reading; then they are lost.
RECOVERY_GRACE_S = 20.0
POLL_S = 0.005
#: The file whose reading speed the drain is measured against; smaller for a smaller backlog.
PROBE_BYTES_MAX = 2_000_000_000
#: What a backlog takes on the disk, with its records' headers and what is not given back at once.
ROOM_OF_BACKLOG = 1.25
#: How long the room of a drained backlog may take to come back, and how little is little enough.
GIVE_BACK_S, GIVE_BACK_MB = 30.0, 256.0
#: Messages whose room in the log gives the size of one record.
CALIBRATION_MESSAGES = 20_000
SETTLE_S = 2.0


@dataclass(frozen=True, slots=True)
class DurableRun:
    """A run, and how many bytes the broker sent to the disk meanwhile."""

    run: Run
    written_bytes: int

    @property
    def written_a_message(self) -> float:
        """Bytes for each message published, warm-up included on both sides."""
        messages = self.run.number("published_in_all")
        return self.written_bytes / messages if messages else 0.0


def durable_run(broker: Broker, arguments: list[str]) -> DurableRun:
    """Runs a load of persistent messages.

    Raises:
        BrokerError: the broker wrote nothing, so its numbers would be those of another promise.
    """
    before = sum(map(written_bytes, broker.pids))
    done = run(broker, arguments)
    written = sum(map(written_bytes, broker.pids)) - before
    if written <= 0:
        count = done.number("published_in_all")
        raise BrokerError(f"it took {count:,.0f} persistent messages and wrote nothing to disk")
    return DurableRun(done, written)


def durable_flow(load: Load, broker: Broker, prefix: list[str], pace: Pace) -> Metrics:
    """A flow whose messages are kept on disk."""
    done = durable_run(broker, [*load.arguments, *prefix, *pace.arguments()])
    return {**flow_metrics(done.run, load), "written_bytes": done.written_a_message}


def sync_flow(load: Load, broker: Broker, prefix: list[str], pace: Pace) -> Metrics:
    """A paced flow between bare syncs and floors, in the directory beside the broker's data."""
    bare, floor = [_bare_sync(broker)], [_floor(broker)]
    metrics = durable_flow(load, broker, prefix, pace)
    floor.append(_floor(broker))
    bare.append(_bare_sync(broker))
    for name, measure in (("bare", bare), ("floor", floor)):
        for quantile in ("p50", "p99"):
            own = fmean(series[quantile] for series in measure)
            metrics[f"{name}_{quantile}_ms"] = own
            confirm = metrics.get(f"confirm_{quantile}_ms")
            if confirm is not None and own:
                metrics[f"confirm_{quantile}_of_{name}"] = confirm / own
    return metrics


def _bare_sync(broker: Broker) -> dict[str, float]:
    path = broker.base / "bare-sync"
    return sync_latency(path, BARE_APPEND_BYTES, BARE_APPENDS, BARE_RATE)


def _floor(broker: Broker) -> dict[str, float]:
    return floor_latency(broker.base / "floor", BARE_APPEND_BYTES, FLOOR_MESSAGES, BARE_RATE)


def fan_out(load: Load, broker: Broker, prefix: list[str]) -> Metrics:
    """Bytes for each byte of body, as the kernel counted them and as they lie in the log."""
    broker.restart()
    used = used_bytes(broker.log_directory)
    common = [*load.arguments, *prefix, "--messages", str(load.amount)]
    filled = durable_run(broker, ["--mode", "fill", *common, "--keep"])
    bodies = load.amount * FAN_OUT_MESSAGE_BYTES
    metrics = {
        "rate": filled.run.number("confirmed_per_s"),
        "cpu_us": filled.run.cpu_us_per("confirmed"),
        "written_of_body": filled.written_bytes / bodies,
        "log_of_body": (used_bytes(broker.log_directory) - used) / bodies,
    }
    broker.restart()
    return metrics


def restart(load: Load, broker: Broker, prefix: list[str]) -> Metrics:
    """The kill comes first: a clean stop before it could leave the next start less to do."""
    broker.restart()
    common = [*load.arguments, *prefix, "--messages", str(load.amount)]
    filled = run(broker, ["--mode", "fill", *common, "--keep"])
    metrics: Metrics = {"fill_rate": filled.number("confirmed_per_s")}
    metrics["killed_start_s"] = start_again(load, broker, prefix, kill=True)[1]
    metrics["stop_s"], metrics["clean_start_s"] = start_again(load, broker, prefix, kill=False)
    broker.restart()
    return metrics


def start_again(load: Load, broker: Broker, prefix: list[str], kill: bool) -> tuple[float, float]:
    """Seconds to end, and from the start of the process until the queue tells all its messages.

    Raises:
        BrokerError: it did not come back, or not with all messages.
    """
    stop_s = broker.halt(kill)
    start = time.monotonic()
    broker.resume()
    answered: float | None = None
    ready = 0
    while ready != load.amount:
        now = time.monotonic()
        if now - (answered or now) > RECOVERY_GRACE_S:
            how = "a kill" if kill else "a clean stop"
            raise BrokerError(f"after {how} {ready:,} of {load.amount:,} messages are there")
        if now - start > READY_TIMEOUT_S and answered is None:
            raise BrokerError(f"{broker.name} did not answer within {READY_TIMEOUT_S:.0f} s")
        time.sleep(POLL_S)
        _ = broker.pid
        if not _listens(broker.port):
            continue
        try:
            ready = count_ready(broker, prefix)
        except GeneratorError:
            # Not yet: the queue, or the log-in, is still missing.
            ready = 0
        answered = answered or time.monotonic()
    return stop_s, time.monotonic() - start


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


def paging(load: Load, broker: Broker, prefix: list[str]) -> Metrics:
    """Fill, drop the cache, drain; memory all the while, and the room that comes back.

    Raises:
        BrokerError: the disk has no room for it.
    """
    backlog = load.amount * PAGING_MESSAGE_BYTES
    probe_bytes = min(PROBE_BYTES_MAX, backlog // 2)
    needed = int(ROOM_OF_BACKLOG * backlog) + probe_bytes
    if free_bytes(broker.base.parent) < needed:
        raise BrokerError(f"paging {backlog / 1e9:.0f} GB needs {needed / 1e9:.0f} GB of disk")
    broker.settings = {"vm_memory_high_watermark.absolute": load.memory_budget}
    try:
        broker.restart()
        return _page(load, broker, prefix, probe_bytes)
    finally:
        broker.settings = {}
        broker.restart()


def _page(load: Load, broker: Broker, prefix: list[str], probe_bytes: int) -> Metrics:
    common = [*load.arguments, *prefix, "--messages", str(load.amount), "--keep"]
    with Watch(broker.pid, broker.log_directory) as filling:
        filled = run(broker, ["--mode", "fill", *common])
    probe = ReadProbe(broker.base.parent / "read-probe", probe_bytes)
    try:
        disk_rates = [probe.bytes_per_s()]
        cold = drop_cache(broker.data_directory)
        with Watch(broker.pid, broker.log_directory) as draining:
            # Prefetch and acks as in the flows; nothing is published meanwhile.
            drained = run(broker, ["--mode", "drain", *common, "--prefetch", "1000"])
        peak = peak_rss_bytes(broker.pid)
        left_mb, waited_s = await_room(broker.log_directory)
        disk_rates.append(probe.bytes_per_s())
    finally:
        probe.remove()
    disk_mb = fmean(disk_rates) / MB
    drain_mb = drained.number("consumed_per_s") * PAGING_MESSAGE_BYTES / MB
    return {
        "backlog_mb": load.amount * PAGING_MESSAGE_BYTES / MB,
        "fill_mb_s": filled.number("confirmed_per_s") * PAGING_MESSAGE_BYTES / MB,
        "blocked": filled.number("blocked"),
        "drain_mb_s": drain_mb,
        "disk_mb_s": disk_mb,
        "drain_of_disk": drain_mb / disk_mb,
        "cold": float(cold),
        "fill_rss_mb": filling.most_rss_bytes / MB,
        "drain_rss_mb": draining.most_rss_bytes / MB,
        "peak_rss_mb": max(peak, filling.most_rss_bytes, draining.most_rss_bytes) / MB,
        "log_most_mb": max(filling.most_disk_bytes, draining.most_disk_bytes) / MB,
        "log_left_mb": left_mb,
        "log_left_s": waited_s,
    }


def await_room(directory: Path, limit_s: float = GIVE_BACK_S) -> tuple[float, float]:
    """The room in MB once it is little, or after the time for that; and how long that was."""
    start = time.monotonic()
    while True:
        left_mb = allocated_bytes(directory) / MB
        waited_s = time.monotonic() - start
        if left_mb <= GIVE_BACK_MB or waited_s >= limit_s:
            return left_mb, waited_s
        time.sleep(min(0.25, limit_s / 10))


def steady(load: Load, broker: Broker, prefix: list[str]) -> Metrics:
    """The most room ever taken, and the bytes that reach the disk for each message."""
    broker.restart()
    record = _record_bytes(broker)
    broker.restart()
    pace = Pace(1.0, float(load.amount))
    with Watch(broker.pid, broker.log_directory) as watch:
        metrics = durable_flow(load, broker, [*prefix, "--keep"], pace)
    time.sleep(SETTLE_S)
    metrics |= {
        "log_most_mb": watch.most_disk_bytes / MB,
        "log_left_mb": allocated_bytes(broker.log_directory) / MB,
        "record_bytes": record,
    }
    if record:
        metrics["written_of_record"] = metrics["written_bytes"] / record
    broker.restart()
    return metrics


def _record_bytes(broker: Broker) -> float:
    """What one 200 B message takes in the log, found out by looking."""
    before = used_bytes(broker.log_directory)
    fill = ["--mode", "fill", "--size", "200", "--persistent", "--keep", "--prefix", "record"]
    run(broker, [*fill, "--messages", str(CALIBRATION_MESSAGES)])
    return (used_bytes(broker.log_directory) - before) / CALIBRATION_MESSAGES
