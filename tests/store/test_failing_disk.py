"""A real broker on a disk whose syncs fail: it confirms nothing that is not there, and ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pika
import pytest
from pika.exceptions import AMQPError

from warren.testing import Broker

PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> str:
    library = tmp_path_factory.mktemp("shim") / "fault_shim.so"
    source = Path(__file__).with_name("fault_shim.c")
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return str(library)


def test_a_failed_sync_ends_the_broker_and_confirms_nothing(shim: str, tmp_path: Path) -> None:
    data, config = tmp_path / "data", tmp_path / "rabbitmq.conf"
    config.write_text("listeners.tcp.1 = 127.0.0.1:0\n")
    read_end, write_end = os.pipe()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "warren",
            "serve",
            "--config",
            str(config),
            "--data-dir",
            str(data),
            "--ready-fd",
            str(write_end),
        ],
        env={**os.environ, "LD_PRELOAD": shim, "SHIM_FAIL_AT": "30"},
        pass_fds=[write_end],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(write_end)
    url = os.read(read_end, 200).decode().strip()
    os.close(read_end)
    confirmed = 0
    try:
        channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        for n in range(1000):
            channel.basic_publish("", "q", b"%d" % n, PERSISTENT)
            confirmed += 1
        pytest.fail("the broker went on confirming")
    except AMQPError:
        pass
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "the log" in errors
    assert "check the file system, then start again" in errors
    assert 10 < confirmed < 30
    with Broker(data_dir=data) as broker:
        channel = pika.BlockingConnection(pika.URLParameters(broker.url)).channel()
        found = []
        while (taken := channel.basic_get("q", auto_ack=True))[0] is not None:
            found.append(int(taken[2]))
    # What was not confirmed may be there or not.
    assert found[:confirmed] == list(range(confirmed))
    assert len(found) <= confirmed + 1
