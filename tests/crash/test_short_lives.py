"""Short stories with kills at the worst moment: what was answered is so, whatever was asked."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pika
import pytest
from broker_process import Kind
from one_broker import PERSISTENT, one_broker

NUMBERS = [b"%d" % n for n in range(50)]


def test_a_purge_that_was_answered(tmp_path: Path) -> None:
    with one_broker(tmp_path) as broker:
        channel = broker.channel()
        channel.queue_declare("q", durable=True)
        for body in NUMBERS:
            channel.basic_publish("", "q", body, PERSISTENT)
        assert channel.queue_purge("q").method.message_count == len(NUMBERS)
        broker.live_again()
        assert broker.bodies("q") == []


def test_a_transaction_that_was_answered(tmp_path: Path) -> None:
    with one_broker(tmp_path) as broker:
        channel = broker.channel(confirms=False)
        channel.queue_declare("q", durable=True)
        channel.tx_select()
        for body in NUMBERS:
            channel.basic_publish("", "q", body, PERSISTENT)
        channel.tx_commit()
        for body in NUMBERS:
            channel.basic_publish("", "q", b"never " + body, PERSISTENT)
        broker.live_again()
        channel = broker.channel(confirms=False)
        channel.tx_select()
        for body in NUMBERS[:10]:
            method, _, got = channel.basic_get("q")
            assert got == body
            channel.basic_ack(method.delivery_tag)
        channel.tx_commit()
        method, _, got = channel.basic_get("q")
        channel.basic_ack(method.delivery_tag)
        broker.live_again()
        # Ten are settled for good; the eleventh was only asked for, and was out.
        found = broker.take_all("q")
        assert [body for body, _ in found] == NUMBERS[10:]
        assert found[0][1]


def test_a_queue_of_the_same_name(tmp_path: Path) -> None:
    """Deleted and declared anew, also with other arguments: nothing of the old one comes back."""
    with one_broker(tmp_path, kind=Kind.RESTLESS) as broker:
        for life in range(4):
            channel = broker.channel()
            channel.queue_declare("q", durable=True)
            for body in NUMBERS:
                channel.basic_publish("", "q", b"old " + body, PERSISTENT)
            channel.queue_delete("q")
            arguments = {"x-max-priority": 3} if life % 2 else {}
            channel.queue_declare("q", durable=True, arguments=arguments)
            if life >= 2:
                channel.basic_publish("", "q", b"new", PERSISTENT)
            if life == 3:
                assert broker.stop() == 0
                broker.start()
            else:
                broker.live_again()
            assert broker.bodies("q") == [b"new"] * (life >= 2)
            broker.channel().queue_delete("q")


def test_a_queue_that_was_deleted_stays_so(tmp_path: Path) -> None:
    with one_broker(tmp_path) as broker:
        channel = broker.channel()
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"x", PERSISTENT)
        channel.queue_delete("q")
        broker.live_again()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):
            broker.channel().queue_declare("q", passive=True)


def test_messages_of_all_sizes(tmp_path: Path) -> None:
    """From nothing to 100 MB, with a header of 64 KB: the same octets after a kill and a stop."""
    big = hashlib.shake_128(b"big").digest(1 << 20) * 100
    headers = {f"h{n:02}": "x" * 2000 for n in range(32)}
    sizes = [0, 1, 131_064, 131_065, 1_000_000]
    with one_broker(tmp_path, settings=["max_message_size = 134217728"]) as broker:
        channel = broker.channel()
        channel.queue_declare("q", durable=True)
        properties = pika.BasicProperties(delivery_mode=2, headers=headers)
        for size in sizes:
            channel.basic_publish("", "q", big[:size], properties)
        channel.basic_publish("", "q", big, PERSISTENT)
        for end in ("kill", "stop"):
            if end == "kill":
                broker.live_again()
            else:
                assert broker.stop() == 0
                broker.start()
            channel = broker.channel()
            for size in sizes:
                method, found, body = channel.basic_get("q")
                assert (body, found.headers) == (big[:size], headers), (end, size)
                assert method.redelivered == (end == "stop")
            method, found, body = channel.basic_get("q")
            assert body == big
            assert found.headers is None
            assert channel.basic_get("q")[0] is None


def test_what_may_not_outlive_its_connection_or_the_node(tmp_path: Path) -> None:
    """Exclusive queues, durable or not, transient queues and exchanges, transient messages."""
    with one_broker(tmp_path, kind=Kind.RESTLESS) as broker:
        channel = broker.channel()
        channel.exchange_declare("passing", "fanout")
        channel.exchange_declare("kept", "fanout", durable=True)
        channel.queue_declare("own", exclusive=True)
        channel.queue_declare("own.durable", exclusive=True, durable=True)
        channel.queue_declare("transient")
        channel.queue_declare("kept", durable=True)
        for queue in ("own", "own.durable", "transient", "kept"):
            channel.queue_bind(queue, "kept")
            channel.queue_bind(queue, "passing")
        # Enough for checkpoints and paging to have seen all of them.
        for n in range(3000):
            mode = PERSISTENT if n % 3 else pika.BasicProperties(delivery_mode=1)
            channel.basic_publish("kept", "", b"%d" % n + b"." * 300, mode)
        for _ in range(2):
            broker.live_again()
            for queue in ("own", "own.durable", "transient"):
                with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="404"):
                    broker.channel().queue_declare(queue, passive=True)
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="404"):
                broker.channel().exchange_declare("passing", passive=True)
            # Their names are free for others, and what others declare is empty.
            other = broker.channel()
            assert other.queue_declare("own.durable", durable=True).method.message_count == 0
            other.queue_delete("own.durable")
        found = [int(body.partition(b".")[0]) for body in broker.bodies("kept")]
        assert found == [n for n in range(3000) if n % 3]


def test_stops_and_kills_in_turn(tmp_path: Path) -> None:
    """Nothing is lost, nothing comes twice, flags say what was out."""
    with one_broker(tmp_path, kind=Kind.RESTLESS) as broker:
        waiting: list[bytes] = []
        out: set[bytes] = set()
        for life in range(8):
            channel = broker.channel()
            channel.queue_declare("q", durable=True)
            for n in range(200):
                body = b"%d.%d" % (life, n) + b"." * 200
                channel.basic_publish("", "q", body, PERSISTENT)
                waiting.append(body)
            for n in range(60):
                method, _, body = channel.basic_get("q")
                assert body == waiting[0 if n < 40 else n - 40]
                assert method.redelivered or body not in out
                if n < 40:
                    channel.basic_ack(method.delivery_tag)
                    del waiting[0]
                else:
                    out.add(body)
            # Nobody waits for acks to be on the disk, but they are there before this is.
            channel.queue_declare("also", durable=True)
            channel.basic_publish("", "also", b"", PERSISTENT)
            if life % 2:
                assert broker.stop() == 0
                broker.start()
            else:
                broker.live_again()
        found = broker.take_all("q")
        assert [body for body, _ in found] == waiting
        assert out & set(waiting) <= {body for body, redelivered in found if redelivered}
