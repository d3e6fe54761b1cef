"""The pytest plugin: its fixtures, and what it costs those who do not use them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pika

if TYPE_CHECKING:
    from warren.testing import Broker
    from warren.testing.pytest_plugin import VHost

USES_THE_FIXTURES = """
import pika
import pytest

seen = []

@pytest.mark.parametrize("turn", range(2))
def test_each_has_a_vhost_of_its_own(amqp_vhost, amqp_broker, turn):
    seen.append(amqp_vhost.name)
    assert len(set(seen)) == turn + 1
    with pika.BlockingConnection(pika.URLParameters(amqp_vhost.url)) as connection:
        connection.channel().queue_declare("q", durable=True)
    assert [queue.name for queue in amqp_broker.queues(amqp_vhost.name)] == ["q"]

def test_they_are_gone_afterwards(amqp_broker):
    assert set(amqp_broker.call(lambda node: list(node.engine.vhosts))) == {"/"}

def test_url(amqp_url, amqp_broker):
    assert amqp_url == amqp_broker.url
"""
USES_NOTHING = """
import sys

def test_nothing_is_loaded():
    loaded = {name for name in sys.modules if name.split(".")[0] in {"warren", "uvloop", "msgspec"}}
    assert loaded == {"warren", "warren.testing", "warren.testing.pytest_plugin"}
"""


def run_pytest(folder: Path, text: str) -> str:
    (folder / "test_it.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "."],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_fixtures_here(amqp_broker: Broker, amqp_url: str, amqp_vhost: VHost) -> None:
    for url in (amqp_url, amqp_vhost.url):
        pika.BlockingConnection(pika.URLParameters(url)).close()
    assert amqp_vhost.broker is amqp_broker


def test_fixtures_in_a_project_of_their_own(tmp_path: Path) -> None:
    assert "4 passed" in run_pytest(tmp_path, USES_THE_FIXTURES)


def test_the_plugin_loads_nothing(tmp_path: Path) -> None:
    assert "1 passed" in run_pytest(tmp_path, USES_NOTHING)
