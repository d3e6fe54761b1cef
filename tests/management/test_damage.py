"""A damaged log seen from outside: the queue says so, the rest is served, the bytes are kept."""

from __future__ import annotations

import json
import logging
import urllib.request
from pathlib import Path

import pika
import pytest

from management.api import Api
from warren.testing import Broker

MESSAGES, HIT = 300, 123
GUEST = "Basic Z3Vlc3Q6Z3Vlc3Q="


def shown_queue(broker: Broker) -> dict[str, object]:
    request = urllib.request.Request(
        f"{broker.http_url}/api/queues/%2F/q", headers={"Authorization": GUEST}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, object] = json.load(answer)
        return found


def test_one_spoilt_message(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        channel = pika.BlockingConnection(pika.URLParameters(broker.url)).channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        for n in range(MESSAGES):
            body = b"message %04d " % n + b"." * 500
            channel.basic_publish("", "q", body, pika.BasicProperties(delivery_mode=2))
    (segment,) = [p for p in (tmp_path / "log").glob("*.wal") if b"message 0123" in p.read_bytes()]
    data = bytearray(segment.read_bytes())
    data[data.index(b"message %04d" % HIT) + 50] ^= 1
    segment.write_bytes(data)
    with Broker(data_dir=tmp_path, http=True) as broker:
        assert "damage" not in shown_queue(broker)
        channel = pika.BlockingConnection(pika.URLParameters(broker.url)).channel()
        found = []
        while (taken := channel.basic_get("q", auto_ack=True))[0] is not None:
            found.append(int(taken[2].split()[1]))
        assert found == [n for n in range(MESSAGES) if n != HIT]
        assert "1 message at" in str(shown_queue(broker)["damage"])
    notes = (tmp_path / "salvage" / "salvage.jsonl").read_text().splitlines()
    assert len(notes) == 1
    kept = tmp_path / "salvage" / json.loads(notes[0])["file"]
    assert b"message %04d" % HIT in kept.read_bytes()


def publish(broker: Broker, queue: str, numbers: range) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        channel.confirm_delivery()
        for n in numbers:
            body = b"message %04d" % n
            channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))


def take_all(broker: Broker, queue: str) -> list[int]:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        found = []
        while (taken := channel.basic_get(queue, auto_ack=True))[0] is not None:
            found.append(int(taken[2].split()[1]))
        return found


@pytest.mark.parametrize("checkpoints", ["kept", "lost"])
def test_a_segment_that_is_missing_in_the_middle(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, checkpoints: str
) -> None:
    """Every life begins a segment, so the second of three is one in the middle."""
    for life in range(3):
        with Broker(data_dir=tmp_path) as broker:
            publish(broker, "q", range(10 * life, 10 * life + 10))
            if life == 0:
                publish(broker, "sound", range(5))
    log = tmp_path / "log"
    (middle,) = [p for p in log.glob("*.wal") if b"message 0015" in p.read_bytes()]
    middle.unlink()
    if checkpoints == "lost":
        # Then all of the log is played back, and stumbles over the gap.
        for path in log.glob("*.checkpoint"):
            path.unlink()
    caplog.set_level(logging.ERROR, "warren")
    with Broker(data_dir=tmp_path, http=True) as broker:
        api = Api(broker.http_url)
        logged = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
        assert any("queue 'q'" in line for line in logged)
        assert "damage" in api.get("/queues/%2F/q")
        events = [e for e in api.get("/cluster/events") if e["event"] == "queue.damaged"]
        assert "q" in [event["details"]["name"] for event in events]
        assert all(event["details"]["what"] for event in events)
        assert take_all(broker, "q") == [*range(10), *range(20, 30)]
        assert take_all(broker, "sound") == list(range(5))
        if checkpoints == "kept":
            assert "10 messages stood in" in str(api.get("/queues/%2F/q")["damage"])
            assert "damage" not in api.get("/queues/%2F/sound")
    # The damage is behind it: a start later everything is well, and what was said is kept.
    caplog.clear()
    with Broker(data_dir=tmp_path, http=True) as broker:
        api = Api(broker.http_url)
        assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []
        assert "queue.damaged" in [event["event"] for event in api.get("/cluster/events")]
