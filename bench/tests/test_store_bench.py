"""What computes in the benchmarks of the store."""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bench import disk, report, run, store_procedures
from bench.bar import Bar
from bench.bars import judge
from bench.brokers import Broker, BrokerError, RabbitMQ, StoredWarren, Warren
from bench.generator import GeneratorError, Run, build, floor_latency, sync_latency
from bench.loads import LOADS, Kind, Load
from bench.metrics import Pace, flow_metrics
from bench.outcome import Outcome
from bench.procedures import PACED, PROCEDURES
from bench.store_bars import STORE_BARS
from bench.store_loads import STORE_LOADS
from bench.watch import Watch, peak_rss_bytes, status_bytes, written_bytes

MOUNTS = """\
/dev/vda / ext4 rw 0 0
tmpfs /tmp tmpfs rw 0 0
/dev/vdb /tmp/large xfs rw 0 0
"""


def planned(*arguments: str) -> run.Plan:
    return run.make_plan(run.parse_arguments(list(arguments)))


def done(**result: float) -> Run:
    return Run(dict(result), broker_cpu_s=2.0, whole_cpu_s=3.0, broker_rss_bytes=1)


def test_used_bytes_leave_out_what_was_only_allocated(tmp_path: Path) -> None:
    with (tmp_path / "a.wal").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 3 << 20)
        file.write(b"head")
        file.seek(disk.CHUNK_BYTES + 10)
        file.write(b"tail")
    (tmp_path / "empty.wal").touch()
    assert disk.used_bytes(tmp_path) == disk.CHUNK_BYTES + 14
    assert disk.allocated_bytes(tmp_path) >= 3 << 20


def test_a_directory_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert disk.used_bytes(tmp_path / "none") == disk.allocated_bytes(tmp_path / "none") == 0


@pytest.mark.parametrize(
    ("directory", "mount"),
    [
        ("/var/tmp", ("/dev/vda", "ext4")),
        ("/tmp/x", ("tmpfs", "tmpfs")),
        ("/tmp/large", ("/dev/vdb", "xfs")),
        ("/tmp/larger", ("tmpfs", "tmpfs")),
    ],
)
def test_the_innermost_mount_holds_a_directory(directory: str, mount: tuple[str, str]) -> None:
    assert disk.mount_of(Path(directory), MOUNTS) == mount


def test_the_probe_reads_all_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not the whole machine's cache for a test.
    monkeypatch.setattr(disk, "DROP_CACHES", tmp_path / "none" / "drop")
    probe = disk.ReadProbe(tmp_path / "probe", 4 << 20)
    assert probe.path.stat().st_size == 4 << 20
    assert probe.bytes_per_s() > 0
    probe.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_may_not_be_dropped_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "DROP_CACHES", tmp_path / "none" / "drop")
    (tmp_path / "file").write_bytes(b"x")
    assert not disk.drop_cache(tmp_path)


def test_status_fields_are_in_kibibytes() -> None:
    assert status_bytes("Name:\tx\nVmHWM:\t    12 kB\n", "VmHWM") == 12 * 1024
    assert status_bytes("Name:\tx\n", "VmHWM") == 0


def test_a_watch_keeps_the_peaks(tmp_path: Path) -> None:
    with Watch(os.getpid(), tmp_path) as watch:
        (tmp_path / "large").write_bytes(b"x" * (1 << 20))
        time.sleep(0.3)
        (tmp_path / "large").unlink()
    assert watch.most_disk_bytes >= 1 << 20
    assert watch.looks[-1].disk_bytes == 0
    assert 1 << 20 < watch.most_rss_bytes <= peak_rss_bytes(os.getpid()) * 1.1


def test_bytes_written_are_seen(tmp_path: Path) -> None:
    before = written_bytes(os.getpid())
    with (tmp_path / "file").open("wb") as file:
        file.write(b"x" * (1 << 20))
        file.flush()
        os.fsync(file.fileno())
    grown = written_bytes(os.getpid()) - before
    _, kind = disk.mount_of(tmp_path.resolve(), Path("/proc/mounts").read_text())
    assert grown >= (0 if kind in disk.IN_MEMORY else 1 << 20)


def test_room_that_comes_back_ends_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_procedures, "GIVE_BACK_MB", 0.5)
    segment = tmp_path / "segment"
    segment.write_bytes(b"x" * (1 << 20))
    threading.Timer(0.2, segment.unlink).start()
    left_mb, waited_s = store_procedures.await_room(tmp_path, limit_s=60)
    assert left_mb == 0
    assert waited_s < 60


def test_room_that_does_not_come_back_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_procedures, "GIVE_BACK_MB", 0.5)
    (tmp_path / "segment").write_bytes(b"x" * (1 << 20))
    left_mb, waited_s = store_procedures.await_room(tmp_path, limit_s=0.2)
    assert left_mb >= 1
    assert waited_s >= 0.2


def test_a_broker_that_writes_nothing_has_no_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = StoredWarren(tmp_path)
    monkeypatch.setattr(StoredWarren, "pid", 1)
    monkeypatch.setattr(store_procedures, "written_bytes", lambda _: 7)
    monkeypatch.setattr(store_procedures, "run", lambda *_: done(published_in_all=10))
    with pytest.raises(BrokerError, match="took 10 persistent messages and wrote nothing"):
        store_procedures.durable_run(broker, [])


def test_bytes_a_message_count_the_warm_up() -> None:
    durable = store_procedures.DurableRun(done(published=5, published_in_all=10), 3000)
    assert durable.written_a_message == 300


def test_a_flow_without_consumer_counts_confirms() -> None:
    load = next(load for load in STORE_LOADS if load.name == "persist-fill")
    metrics = flow_metrics(done(confirmed=4, confirmed_per_s=2, generator_cpu_s=4e-6), load)
    assert metrics["rate"] == 2
    assert metrics["cpu_us"] == 0.5e6
    assert metrics["generator_us"] == 1


def test_latency_is_compared_within_one_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = iter([{"p50": 1.0, "p99": 2.0}, {"p50": 3.0, "p99": 4.0}])
    floor = iter([{"p50": 3.0, "p99": 9.0}, {"p50": 5.0, "p99": 15.0}])
    order: list[str] = []

    def measure(name: str, result: dict[str, float]) -> dict[str, float]:
        order.append(name)
        return result

    flow = {"confirm_p50_ms": 4.0, "confirm_p99_ms": 6.0}
    monkeypatch.setattr(store_procedures, "durable_flow", lambda *_: measure("flow", dict(flow)))
    monkeypatch.setattr(store_procedures, "_bare_sync", lambda _: measure("bare", next(bare)))
    monkeypatch.setattr(store_procedures, "_floor", lambda _: measure("floor", next(floor)))
    metrics = store_procedures.sync_flow(STORE_LOADS[0], StoredWarren(tmp_path), [], Pace(0.0, 1.0))
    assert metrics["bare_p99_ms"] == 3
    assert metrics["confirm_p50_of_bare"] == 2
    assert metrics["confirm_p99_of_bare"] == 2
    assert metrics["floor_p50_ms"] == 4
    assert metrics["floor_p99_ms"] == 12
    assert metrics["confirm_p50_of_floor"] == 1
    assert metrics["confirm_p99_of_floor"] == 0.5
    assert order == ["bare", "floor", "flow", "floor", "bare"]


def test_both_bars_of_the_confirm_stand_side_by_side() -> None:
    outcome = Outcome()
    ratios = {"confirm_p99_of_bare": 9.0, "confirm_p99_of_floor": 1.2}
    outcome.add(store_load("persist-5k"), "warren", ratios)
    found = [(v.limit, v.value, v.status) for v in judge(outcome) if "5,000 msg/s" in v.title]
    assert found == [("≤ 3 ×", 9.0, "missed"), ("≤ 1.5 ×", 1.2, "reached")]
    assert "confirm p99, of that server's" in report.details_table(outcome, ["warren"])


def test_the_generator_times_bare_syncs(tmp_path: Path) -> None:
    build()
    path = tmp_path / "bare"
    latency = sync_latency(path, size=300, count=20, rate=1000)
    assert latency["count"] == 20
    assert 0 < latency["p50"] <= latency["p99"] <= latency["max"]
    assert not path.exists()


@pytest.mark.parametrize(
    ("size", "count", "rate"),
    [
        (300, 200, 5_000),
        # One message a tick, none in most ticks, more in one than a write holds.
        (1, 20, 1_000),
        (7, 20, 200),
        (1_000, 1_000, 1_000_000),
        (100_000, 20, 1_000),
    ],
)
def test_the_floor_answers_every_message(tmp_path: Path, size: int, count: int, rate: int) -> None:
    build()
    path = tmp_path / "floor"
    latency = floor_latency(path, size, count, rate)
    assert latency["count"] == count
    assert 0 < latency["p50"] <= latency["p99"] <= latency["max"]
    assert not path.exists()


@pytest.mark.parametrize("measure", [sync_latency, floor_latency])
def test_the_generator_overwrites_no_file(
    tmp_path: Path, measure: Callable[..., dict[str, float]]
) -> None:
    build()
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(GeneratorError, match=r"cannot create .*File exists"):
        measure(tmp_path / "mine", size=300, count=20, rate=1000)
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize("measure", [sync_latency, floor_latency])
def test_what_outgrows_the_file_is_refused(
    tmp_path: Path, measure: Callable[..., dict[str, float]]
) -> None:
    build()
    with pytest.raises(GeneratorError, match="would outgrow the 64 MiB file"):
        measure(tmp_path / "file", size=1 << 20, count=65, rate=1000)
    assert list(tmp_path.iterdir()) == []


def test_a_floor_without_messages_to_tell_apart_is_refused(tmp_path: Path) -> None:
    build()
    with pytest.raises(GeneratorError, match="--mode floor needs a --size"):
        floor_latency(tmp_path / "file", size=0, count=20, rate=1000)


def test_store_names_all_of_them_and_quick_is_smaller() -> None:
    plan = planned("--only", "store", "--quick")
    assert [load.name for load in plan.loads] == [load.name for load in STORE_LOADS]
    assert plan.curves == []
    amounts = {load.name: load.amount for load in plan.loads}
    full = {load.name: load.amount for load in planned("--only", "store").loads}
    assert amounts["persist-paging"] < full["persist-paging"]
    assert amounts["persist-restart"] == full["persist-restart"]


def test_store_goes_together_with_others() -> None:
    names = {load.name for load in planned("--only", "store", "--only", "16B").loads}
    assert names == {"16B", *(load.name for load in STORE_LOADS)}


def test_names_are_unique_and_every_kind_has_a_procedure() -> None:
    names = [load.name for load in run.ALL_LOADS]
    assert len(names) == len(set(names))
    assert set(Kind) == {Kind.FLOW, Kind.CONNECTIONS} | set(PACED) | set(PROCEDURES)


@pytest.mark.parametrize(
    ("contestant", "in_memory", "on_disk", "alone"),
    [
        (Warren, True, False, False),
        (StoredWarren, False, True, True),
        (RabbitMQ, True, True, False),
    ],
)
def test_loads_go_to_the_brokers_that_keep_them_there(
    tmp_path: Path, contestant: type[Broker], in_memory: bool, on_disk: bool, alone: bool
) -> None:
    broker, load = contestant(tmp_path), LOADS[0]
    assert run.takes_part(broker, load) == in_memory
    stored = replace(load, on_disk=True)
    assert run.takes_part(broker, stored) == on_disk
    assert run.takes_part(broker, replace(stored, warren_only=True)) == alone


def test_the_two_warrens_do_not_share_a_directory(tmp_path: Path) -> None:
    assert Warren(tmp_path).base != StoredWarren(tmp_path).base


def test_settings_reach_the_configuration(tmp_path: Path) -> None:
    broker = StoredWarren(tmp_path)
    broker.port = 1234
    broker.settings = {"vm_memory_high_watermark.absolute": "256MB"}
    assert broker.config_text("default").splitlines() == [
        "listeners.tcp.default = 127.0.0.1:1234",
        "vm_memory_high_watermark.absolute = 256MB",
    ]


def test_a_bar_may_have_two_ends() -> None:
    bar = Bar("log", lambda _: None, at_least=1, at_most=1.5)
    assert bar.limit() == "≥ 1, ≤ 1.5 ×"
    assert [bar.verdict(value) for value in (0.0, 1.2, 1.6)] == ["missed", "reached", "missed"]


def store_load(name: str) -> Load:
    return next(load for load in STORE_LOADS if load.name == name)


def test_store_bars_are_judged_and_shown() -> None:
    outcome = Outcome()
    outcome.add(store_load("persist"), "warren", {"rate": 130.0, "cpu_us": 1.0})
    outcome.add(store_load("persist"), "rabbitmq", {"rate": 10.0, "cpu_us": 1.0})
    outcome.add(store_load("persist-paging"), "warren", {"blocked": 1.0, "peak_rss_mb": 256.0})
    status = {verdict.title: verdict.status for verdict in judge(outcome)}
    assert status["persistent with confirms, of RabbitMQ"] == "reached"
    assert status["publishers blocked while paging"] == "missed"
    assert status["most memory while paging"] == "reached"
    assert {bar.title for bar in STORE_BARS} <= set(status)
    context = report.Context("2000-01-01", "0", "machine", 1, 1.0, ["warren", "rabbitmq"], "ext4")
    text = report.render(outcome, context)
    assert "data on ext4" in text
    assert "most memory ever, MB" in text
    # It has no rate: no row of its own among the rates.
    assert store_load("persist-paging").title not in report.rates_table(outcome, ["warren"])


class Returning(StoredWarren):
    """A broker that is always there."""

    pid = 1

    def halt(self, kill: bool) -> float:
        return float(kill)

    def resume(self) -> None:
        pass


def answers(monkeypatch: pytest.MonkeyPatch, *counts: int | GeneratorError) -> None:
    left = list(counts)

    def count(*_: object) -> int:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, GeneratorError):
            raise answer
        return answer

    monkeypatch.setattr(store_procedures, "count_ready", count)
    monkeypatch.setattr(store_procedures, "_listens", lambda _: True)
    monkeypatch.setattr(store_procedures, "RECOVERY_GRACE_S", 0.1)


def test_a_start_lasts_until_all_messages_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, GeneratorError("no queue yet"), 3, 5)
    load = replace(store_load("persist-restart"), amount=5)
    stop_s, start_s = store_procedures.start_again(load, Returning(tmp_path), [], kill=True)
    assert stop_s == 1
    assert 3 * store_procedures.POLL_S <= start_s < 60


def test_messages_that_do_not_come_back_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, 3)
    load = replace(store_load("persist-restart"), amount=5)
    with pytest.raises(BrokerError, match="after a clean stop 3 of 5 messages are there"):
        store_procedures.start_again(load, Returning(tmp_path), [], kill=False)
