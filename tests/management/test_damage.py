"""A damaged log seen from outside: the queue says so, the rest is served, the bytes are kept."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pika

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
