"""What operators define comes back after a kill, and is answered when it is on the disk."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pika
import pytest
from broker_process import Kind
from one_broker import PERSISTENT, OneBroker, one_broker

SYNC_S = 0.4
VHOST = {"description": "of the test", "tags": ["a", "b"]}
USER = {"password": "secret", "tags": "monitoring"}
POLICY = {"pattern": "^q", "definition": {"max-length": 7}, "priority": 3, "apply-to": "queues"}
DEFINED = (
    ("vhosts/kept", VHOST),
    ("users/anna", USER),
    ("permissions/kept/anna", {"configure": "^a", "write": "^b", "read": ".*"}),
    ("topic-permissions/kept/anna", {"exchange": "amq.topic", "write": "^w", "read": "^r"}),
    ("policies/kept/short", POLICY),
    ("operator-policies/kept/shorter", {**POLICY, "definition": {"max-length": 5}}),
    ("vhost-limits/kept/max-queues", {"value": 9}),
    ("exchanges/kept/e", {"type": "topic", "durable": True, "arguments": {}}),
    ("queues/kept/q", {"durable": True, "arguments": {"x-max-priority": 2}}),
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Http:
    """The management API of a broker that comes and goes, as an operator."""

    def __init__(self, user: str = "guest:guest") -> None:
        self.port = free_port()
        self.settings = [f"management.tcp.port = {self.port}", "management.tcp.ip = 127.0.0.1"]
        self.user = user

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        basic = base64.b64encode(self.user.encode()).decode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/{path}",
            data,
            {"Authorization": f"Basic {basic}", "Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            text = answer.read()
        return json.loads(text) if text else None


def shown(http: Http) -> dict[str, Any]:
    """All that there is, as an export has it."""
    found: dict[str, Any] = http("GET", "definitions")
    for rows in found.values():
        if isinstance(rows, list):
            rows.sort(key=str)
    return found


def define(http: Http) -> None:
    for path, body in DEFINED:
        http("PUT", path, body)
    binding = {"routing_key": "a.*", "arguments": {"x": 1}}
    http("POST", "bindings/kept/e/e/e/amq.topic", binding)
    http("POST", "bindings/kept/e/e/q/q", binding)


@pytest.mark.parametrize("kind", [Kind.AS_SERVED, Kind.RESTLESS])
def test_definitions_come_back_after_a_kill(tmp_path: Path, kind: Kind) -> None:
    http = Http()
    with one_broker(tmp_path, kind=kind, settings=http.settings) as broker:
        define(http)
        before = shown(http)
        broker.live_again()
        assert shown(http) == before
        assert {row["name"] for row in before["users"]} == {"guest", "anna"}
        assert http("GET", "queues/kept/q")["effective_policy_definition"] == {"max-length": 5}
        # The newest change is the one that counts, and what was deleted stays so.
        http("PUT", "users/anna", {**USER, "password": "another"})
        http("DELETE", "policies/kept/short")
        http("DELETE", "operator-policies/kept/shorter")
        before = shown(http)
        broker.live_again()
        assert shown(http) == before
        anna = pika.PlainCredentials("anna", "another")
        parameters = pika.ConnectionParameters(
            broker.process.host, broker.process.port, "kept", anna
        )
        with pika.BlockingConnection(parameters) as connection:
            connection.channel().queue_declare("a", durable=True)
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="403"):
                connection.channel().queue_declare("no", durable=True)
        http("DELETE", "vhosts/kept")
        http("DELETE", "users/anna")
        broker.live_again()
        after = shown(http)
        assert [row["name"] for row in after["vhosts"]] == ["/"]
        assert [row["name"] for row in after["users"]] == ["guest"]
        assert after["permissions"] == [row for row in before["permissions"] if row["vhost"] == "/"]


def test_an_answer_comes_after_its_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a power cut cannot take it back: every sync takes a while here, and every answer too."""
    library = tmp_path / "fault_shim.so"
    source = Path(__file__).parents[1] / "store" / "fault_shim.c"
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("SHIM_DELAY_MS", str(int(SYNC_S * 1000)))
    http = Http()
    with one_broker(tmp_path, settings=http.settings) as broker:
        monkeypatch.delenv("LD_PRELOAD")
        changes = [("PUT", path, body) for path, body in DEFINED]
        changes += [("DELETE", path, None) for path, _ in reversed(DEFINED)]
        for change in changes:
            began = time.monotonic()
            http(*change)
            assert time.monotonic() - began >= SYNC_S, change
        channel = broker.channel()
        for what, ask in {
            "exchange.declare": lambda: channel.exchange_declare("e", "fanout", durable=True),
            "queue.declare": lambda: channel.queue_declare("q", durable=True),
            "queue.bind": lambda: channel.queue_bind("q", "e"),
            "basic.publish": lambda: channel.basic_publish("e", "", b"x", PERSISTENT),
            "another": lambda: channel.basic_publish("e", "", b"y", PERSISTENT),
            "queue.purge": lambda: channel.queue_purge("q"),
            "queue.unbind": lambda: channel.queue_unbind("q", "e"),
            "queue.delete": lambda: channel.queue_delete("q"),
            "exchange.delete": lambda: channel.exchange_delete("e"),
        }.items():
            began = time.monotonic()
            ask()
            assert time.monotonic() - began >= SYNC_S, what


def import_queues(http: Http, count: int) -> None:
    names = [f"q{n:05}" for n in range(count)]
    common = {"vhost": "/", "arguments": {}}
    http(
        "POST",
        "definitions",
        {
            "exchanges": [
                {
                    **common,
                    "name": "all",
                    "type": "fanout",
                    "durable": True,
                    "auto_delete": False,
                    "internal": False,
                }
            ],
            "queues": [
                {**common, "name": name, "durable": True, "auto_delete": False} for name in names
            ],
            "bindings": [
                {
                    **common,
                    "source": "all",
                    "destination": name,
                    "destination_type": "queue",
                    "routing_key": "",
                }
                for name in names
            ],
        },
    )


def test_ten_thousand_queues(tmp_path: Path) -> None:
    """A message for all of them is written once, and all have it after a kill and after a stop."""
    http = Http()
    count = 10_000
    body = os.urandom(5000)
    with one_broker(tmp_path, settings=http.settings) as broker:
        import_queues(http, count)
        channel = broker.channel()
        for _ in range(2):
            channel.basic_publish("all", "", body, PERSISTENT)
        broker.live_again()
        check_queues(broker, http, count)
        assert broker.stop() == 0
        written = sum(path.read_bytes().count(body) for path in broker.process.segments())
        assert written == 2
        broker.start()
        check_queues(broker, http, count)
        assert broker.bodies("q09999") == [body, body]


def check_queues(broker: OneBroker, http: Http, count: int) -> None:
    channel = broker.channel()
    for name in ("q00000", "q05000", f"q{count - 1:05}"):
        assert channel.queue_declare(name, passive=True).method.message_count == 2
    rows = http("GET", "queues?columns=name,messages_ready,messages&disable_stats=true")
    assert len(rows) == count
    totals = http("GET", "overview")["queue_totals"]
    assert totals["messages"] == 2 * count
