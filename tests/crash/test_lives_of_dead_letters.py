"""Limits, times to live, priorities, dead letters, killed at random: a message is in one place."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pika
import pytest
from broker_process import Kind
from one_broker import OneBroker, one_broker

DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
QUEUES = {
    # The oldest is pushed out by the newest.
    "short": {"x-max-length": 20, "x-max-priority": 3, **DEAD},
    "bytes": {"x-max-length-bytes": 8000, **DEAD},
    "brief": {"x-message-ttl": 150, **DEAD},
    "counted": {"x-delivery-limit": 1, **DEAD},
    # What does not fit is refused: a message that was refused is nowhere.
    "full": {"x-max-length": 20, "x-overflow": "reject-publish", "x-max-priority": 3},
}
LIVES = 5


class Story:
    """What was published, and how it was answered."""

    def __init__(self, broker: OneBroker, source: random.Random) -> None:
        self.broker, self.source = broker, source
        self.confirmed: set[bytes] = set()
        self.refused: set[bytes] = set()
        self.attempted: set[bytes] = set()
        self.settled: set[bytes] = set()
        self.number = 0

    def live(self) -> None:
        """Publish, let consumers put some back, settle some, until the process is killed."""
        channel = self.broker.channel()
        channel.queue_declare("dead", durable=True)
        for queue, arguments in QUEUES.items():
            channel.queue_declare(queue, durable=True, arguments=arguments)
        killer = threading.Timer(self.source.uniform(0.3, 1.2), self.broker.kill)
        killer.start()
        try:
            while True:
                self.publish(channel)
                if self.source.random() < 0.2:
                    self.consume(channel)
        except pika.exceptions.AMQPConnectionError:
            killer.join()

    def publish(self, channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
        queue = self.source.choice(list(QUEUES))
        self.number += 1
        body = b"%s %d " % (queue.encode(), self.number) + b"." * self.source.choice([0, 50, 900])
        expiration = self.source.choice([None, None, "40", "400"])
        properties = pika.BasicProperties(
            delivery_mode=2, priority=self.source.randrange(5), expiration=expiration
        )
        self.attempted.add(body)
        try:
            channel.basic_publish("", queue, body, properties)
            self.confirmed.add(body)
            if expiration is not None and queue == "full":
                # It has no dead letters: its messages may go without a trace.
                self.settled.add(body)
        except pika.exceptions.NackError:
            self.refused.add(body)

    def consume(self, channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
        queue = self.source.choice(list(QUEUES))
        method, _, body = channel.basic_get(queue)
        if method is None:
            return
        assert body in self.confirmed or body in self.attempted
        how = self.source.choice(["ack", "reject", "requeue", "requeue"])
        if how == "ack" or (how == "reject" and queue == "full"):
            assert body is not None
            self.settled.add(body)
            channel.basic_ack(method.delivery_tag)
        else:
            channel.basic_reject(method.delivery_tag, requeue=how == "requeue")


@pytest.mark.parametrize("kind", [Kind.AS_SERVED, Kind.RESTLESS])
def test_each_message_is_in_one_place(tmp_path: Path, kind: Kind) -> None:
    source = random.Random(11)
    broker = OneBroker(tmp_path, kind)
    story = Story(broker, source)
    try:
        for _ in range(LIVES):
            broker.start()
            story.live()
        broker.start()
        time.sleep(0.5)
        found: list[bytes] = []
        for queue in (*QUEUES, "dead"):
            found += broker.bodies(queue)
    finally:
        broker.process.end()
    there = set(found)
    assert len(found) == len(there), "a message is in two places"
    assert there <= story.attempted, "phantoms"
    assert not there & story.refused, "a message that was refused"
    lost = story.confirmed - there - story.settled
    assert not lost, sorted(lost)[:5]
    assert len(story.confirmed) > 100


@pytest.mark.parametrize("back_s", [0, 3600])
def test_times_to_live_over_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back_s: int
) -> None:
    """What has not expired is there; a clock that was set back makes nothing die early."""
    with one_broker(tmp_path) as broker:
        channel = broker.channel()
        channel.queue_declare("dead", durable=True)
        channel.queue_declare("q", durable=True, arguments=DEAD)
        for number, expiration in enumerate(["1500", "600000", None]):
            properties = pika.BasicProperties(delivery_mode=2, expiration=expiration)
            channel.basic_publish("", "q", b"%d" % number, properties)
        broker.kill()
        time.sleep(1.6)
        if back_s:
            folder = tmp_path / "clock"
            folder.mkdir()
            (folder / "sitecustomize.py").write_text(
                "import time\n_now = time.time_ns\n"
                f"time.time_ns = lambda: _now() - {back_s} * 10**9\n"
            )
            monkeypatch.setenv("PYTHONPATH", str(folder))
        broker.start()
        time.sleep(0.3)
        if back_s:
            assert broker.bodies("q") == [b"0", b"1", b"2"]
            assert broker.bodies("dead") == []
        else:
            assert broker.bodies("dead") == [b"0"]
            assert broker.bodies("q") == [b"1", b"2"]
