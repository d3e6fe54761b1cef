"""What computes in the benchmarks of operating."""

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import lister, operating_procedures, run
from bench.bars import judge
from bench.brokers import Broker, BrokerError, RabbitMQ, Warren
from bench.generator import Run
from bench.loads import Load
from bench.metrics import Pace
from bench.operating_loads import OPERATING_LOADS
from bench.outcome import Outcome
from bench.procedures import PACED

LISTING, CALLS = OPERATING_LOADS


def done(p99_ms: float) -> Run:
    result = {"confirmed_per_s": 1000.0, "confirm_ms": {"p50": 0.1, "p99": p99_ms}}
    return Run(result, broker_cpu_s=1.0, whole_cpu_s=1.0, broker_rss_bytes=1)


@pytest.fixture
def api() -> Iterator[int]:
    """A management API that answers everything with some bytes."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "7")
            self.end_headers()
            self.wfile.write(b"x" * 7)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def test_it_is_asked_of_single_brokers(tmp_path: Path) -> None:
    assert LISTING.name == "listing-10000"
    assert LISTING.kind in PACED
    assert run.takes_part(Warren(tmp_path), LISTING)
    assert run.takes_part(RabbitMQ(tmp_path), LISTING)
    plan = run.make_plan(run.parse_arguments(["--only", "operating"]))
    assert plan.loads == [LISTING, CALLS]
    assert run.takes_part(Warren(tmp_path), CALLS)
    assert not run.takes_part(RabbitMQ(tmp_path), CALLS)


def test_the_bar_compares_both_flows() -> None:
    outcome = Outcome()
    outcome.add(LISTING, "warren", operating_procedures.listing_metrics(done(2.0), done(5.0)))
    (verdict,) = [one for one in judge(outcome) if one.value is not None]
    assert (verdict.value, verdict.status) == (2.5, "missed")


def test_calls_are_judged_by_the_slow_ones() -> None:
    found = operating_procedures.call_metrics([100.0] * 94 + [200.0] * 6)
    assert (found["call_p50_ms"], found["call_p95_ms"], found["call_most_ms"]) == (100, 200, 200)
    outcome = Outcome()
    outcome.add(CALLS, "warren", found)
    (verdict,) = [one for one in judge(outcome) if one.value is not None]
    assert (verdict.value, verdict.status) == (200, "missed")


def test_a_lister_lists_until_it_is_ended(api: int) -> None:
    assert lister.read_all(f"http://127.0.0.1:{api}/api/queues") == 7
    lister.await_api(api, 5.0)
    with lister.Lister(api) as listing:
        threading.Event().wait(1.5)
    found = operating_procedures.list_metrics(listing.took_s)
    assert found["lists"] >= 1
    assert 0 < found["list_s"] < 1.5


def test_an_api_that_never_comes() -> None:
    with pytest.raises(BrokerError, match="no management API"):
        lister.await_api(1, 0.3)


def test_management_is_opened_on_request_only(tmp_path: Path) -> None:
    rabbit = RabbitMQ(tmp_path)
    rabbit.base.mkdir()
    rabbit.environment()
    assert (rabbit.base / "enabled_plugins").read_text() == "[].\n"
    rabbit.http_port = 4711
    rabbit.environment()
    assert "rabbitmq_management" in (rabbit.base / "enabled_plugins").read_text()
    config = (rabbit.base / "rabbitmq.conf").read_text()
    assert "management.tcp.port = 4711\n" in config
    assert "management.tcp.ip = 127.0.0.1\n" in config


def test_the_broker_is_as_before_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fake(Broker):
        name = "fake"
        ports: list[int]

        @property
        def pids(self) -> list[int]:
            return []

        def command(self) -> list[str]:
            return []

        def restart(self) -> None:
            self.ports.append(self.http_port)

    asked: list[list[str]] = []

    def measured(_broker: Broker, arguments: list[str]) -> Run:
        asked.append(arguments)
        return done(1.0)

    class Listing(lister.Lister):
        def __enter__(self) -> "Listing":
            return self

        def __exit__(self, *_: object) -> None:
            self.took_s = [0.5, 1.5]

    monkeypatch.setattr(operating_procedures, "run", measured)
    monkeypatch.setattr(operating_procedures, "await_api", lambda *_: None)
    monkeypatch.setattr(operating_procedures, "Lister", Listing)
    broker = Fake(Path("."))
    broker.ports = []
    small = Load("l", "l", arguments=("--rate", "9"), amount=12)
    found = operating_procedures.listing(small, broker, ["--prefix", "p"], Pace(0.1, 0.2))
    assert (found["listing_of_idle"], found["lists"], found["list_s"]) == (1.0, 2.0, 1.0)
    assert broker.ports[0] != 0
    assert broker.ports[-1] == broker.http_port == 0
    assert asked[0][4:6] == ["--queues", "12"]
    assert asked[2] == asked[3]
