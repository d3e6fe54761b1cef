"""Whole programs of others against the API: schemathesis and Celery's flower.

Each has an environment of its own, fetched from the package index as the client suites' are.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "suites"))

from harness.workspace import prepare_environment

from management.api import Api
from warren.testing.broker import Broker

pytestmark = pytest.mark.timeout(400)
#: They end the node, or never end themselves.
NOT_ASKED = "events/stream|/nodes/.+/(stop|limits|log)|/warren/cluster|/warren/links"
#: Every status has to be one that the description knows: 500 never is.
CHECKS = "status_code_conformance,content_type_conformance,response_schema_conformance"
START_S = 60


@pytest.fixture(scope="module")
def broker() -> Broker:
    """One of its own: what is sent here is made up."""
    with Broker(http=True) as running:
        yield running


def test_schemathesis_finds_nothing_that_is_not_described(broker: Broker) -> None:
    program = prepare_environment("schemathesis").parent / "schemathesis"
    done = subprocess.run(
        [
            *(str(program), "run", f"{broker.http_url}/api/openapi.json", "--url", broker.http_url),
            *("--auth", "guest:guest", "--checks", CHECKS, "--phases", "examples,fuzzing"),
            *("--exclude-path-regex", NOT_ASKED, "--suppress-health-check", "all"),
            *("--max-examples", "5", "--workers", "1", "--seed", "7", "--no-color"),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "Tested: 1" in done.stdout, done.stdout[-4000:]
    assert Api(broker.http_url)("GET", "/api/overview").status == 200


def test_flower_shows_queues(broker: Broker) -> None:
    python = prepare_environment("flower")
    api = Api(broker.http_url)
    api.put("/queues/%2F/celery", {"durable": True})
    for _ in range(3):
        body = {"properties": {}, "routing_key": "celery", "payload": "x"}
        api.post("/exchanges/%2F/amq.default/publish", {**body, "payload_encoding": "string"})
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [
            *(str(python), "-m", "celery", "--broker", broker.url, "flower"),
            *("--address=127.0.0.1", f"--port={port}"),
            f"--broker_api={broker.http_url.replace('//', '//guest:guest@')}/api/",
        ],
        env={**os.environ, "FLOWER_UNAUTHENTICATED_API": "true"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        shown = _until_answered(process, f"http://127.0.0.1:{port}/api/queues/length")
    finally:
        process.terminate()
        output = process.communicate(timeout=30)[0]
    assert isinstance(shown, dict), output[-4000:]
    (row,) = shown["active_queues"]
    assert (row["name"], row["messages"]) == ("celery", 3)


def _until_answered(process: subprocess.Popen[str], url: str) -> object:
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                found: object = json.load(answer)
                return found
        except OSError:
            time.sleep(0.3)
    return None
