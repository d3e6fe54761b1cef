"""Cursors, ranges and batches over the API, and what warrenctl shows of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pika
import pyarrow as pa
import pytest

from warren.ctl.main import run
from warren.management import routes_cursors
from warren.spark.blocks import Block, from_batch
from warren.spark.client import Client
from warren.spark.errors import Refused
from warren.spark.options import read_options
from warren.testing import Broker

PATIENCE_S = 30.0
KEPT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(http=True, data_dir=tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Client:
    return client_of(broker)


def client_of(broker: Broker, **options: str) -> Client:
    return Client(read_options({"endpoints": broker.http_url, "retries": "3", **options}))


class Publisher:
    """Publishes numbered messages and waits for the confirms."""

    def __init__(self, broker: Broker, queue: str, **arguments: Any) -> None:
        self.connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()
        self.channel.queue_declare(queue, durable=True, arguments=arguments or None)
        self.queue = queue
        self.number = 0

    def publish(self, count: int, properties: pika.BasicProperties = KEPT) -> None:
        for _ in range(count):
            self.channel.basic_publish("", self.queue, b"%d" % self.number, properties)
            self.number += 1

    def take(self, count: int) -> list[bytes]:
        return [self.channel.basic_get(self.queue, auto_ack=True)[2] for _ in range(count)]


def bodies(client: Client, queue: str, first: int, end: int, **query: Any) -> list[bytes]:
    found: list[bytes] = []
    while first < end:
        block = Block(client.read_range(queue, {"from": first, "to": end, **query}))
        if block.end == first:
            break
        found += block.column("body", pa.binary()).to_pylist()
        first = block.end
    return found


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, end)]


def test_a_follower_reads_what_consumers_have_had(broker: Broker, client: Client) -> None:
    publisher = Publisher(broker, "followed")
    publisher.publish(50)
    told = client.open_cursor("followed", "c", {"start": "earliest"})
    publisher.publish(50, pika.BasicProperties(delivery_mode=1))
    assert publisher.take(80) == numbers(0, 80)
    assert bodies(client, "followed", 0, 100, cursor="c") == numbers(0, 100)
    client.trim("followed", "c", {"token": told["token"], "upto": 60})
    assert bodies(client, "followed", 60, 100, cursor="c") == numbers(60, 100)
    with pytest.raises(Refused) as refusal:
        client.read_range("followed", {"from": 59})
    assert (refusal.value.status, refusal.value.word) == (410, "trimmed")
    assert broker.queue("followed").ready == 20
    client.drop_cursor("followed", "c")
    assert client.range_info("followed")["first"] == 80


def test_what_is_kept_for_a_cursor_is_not_in_the_queue(broker: Broker, client: Client) -> None:
    publisher = Publisher(broker, "peeked")
    client.open_cursor("peeked", "c", {"start": "earliest"})
    publisher.publish(300)
    publisher.take(150)
    out = publisher.channel.basic_get("peeked")[2]

    def look(**asked: Any) -> list[str]:
        rows = client.call("POST", "/queues/%2F/peeked/peek", {"count": 400, **asked})
        return [row["payload"] for row in rows]

    assert look(unacked=True) == [out.decode()] == ["150"]
    assert look() == [str(n) for n in range(151, 300)]
    tail = client.call("GET", "/queues/%2F/peeked/tail")["messages"]
    assert {int(row["payload"]) for row in tail} <= set(range(150, 300))


def test_purged_expired_and_dropped_messages_stay_readable(broker: Broker, client: Client) -> None:
    publisher = Publisher(broker, "limited", **{"x-max-length": 10})
    client.open_cursor("limited", "c", {"start": "earliest"})
    publisher.publish(30)
    assert broker.queue("limited").ready == 10
    publisher.channel.queue_purge("limited")
    publisher.publish(5, pika.BasicProperties(delivery_mode=2, expiration="1"))
    assert bodies(client, "limited", 0, 35, cursor="c") == numbers(0, 35)


def test_a_drain_is_the_only_consumer_and_trimming_acknowledges(
    broker: Broker, client: Client
) -> None:
    publisher = Publisher(broker, "drained")
    publisher.publish(40)
    told = client.open_cursor("drained", "c", {"mode": "drain"})
    for attempt in (
        lambda channel: channel.basic_get("drained"),
        lambda channel: channel.basic_consume("drained", lambda *_: None),
    ):
        channel = publisher.connection.channel()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="drained by the cursor"):
            attempt(channel)
    client.trim("drained", "c", {"token": told["token"], "upto": 25})
    assert broker.queue("drained").ready == 15
    client.drop_cursor("drained", "c")
    assert publisher.take(15) == numbers(25, 40)


def test_a_drain_is_refused_where_there_are_consumers(broker: Broker, client: Client) -> None:
    publisher = Publisher(broker, "busy")
    publisher.channel.basic_consume("busy", lambda *_: None)
    with pytest.raises(Refused, match="has consumers"):
        client.open_cursor("busy", "c", {"mode": "drain"})


def test_the_start_is_decided_once_and_a_second_reader_is_fenced(
    broker: Broker, client: Client
) -> None:
    publisher = Publisher(broker, "fenced")
    publisher.publish(10)
    first = client.open_cursor("fenced", "c", {"start": "latest", "owner": "one"})
    publisher.publish(10)
    again = client.open_cursor("fenced", "c", {"start": "earliest", "owner": "one"})
    assert (first["start"], again["start"], again["token"]) == (10, 10, first["token"])
    with pytest.raises(Refused) as refusal:
        client.open_cursor("fenced", "c", {"owner": "two"})
    assert refusal.value.word == "cursor_in_use"
    client.release("fenced", "c", "one")
    client.open_cursor("fenced", "c", {"owner": "two"})
    client.trim("fenced", "c", {"token": first["token"], "upto": 15, "owner": "two"})
    client.release("fenced", "c", "two")
    # Whoever begins anew would miss what is trimmed; whoever knows the token goes on.
    with pytest.raises(Refused, match="another query"):
        client.open_cursor("fenced", "c", {"owner": "three"})
    known = client.open_cursor("fenced", "c", {"owner": "three", "token": first["token"]})
    assert known["position"] == 15
    with pytest.raises(Refused, match="not the one"):
        client.poll("fenced", "c", {"token": "wrong", "after": 15})
    client.drop_cursor("fenced", "c")
    with pytest.raises(Refused) as refusal:
        client.open_cursor("fenced", "c", {"token": first["token"]})
    assert refusal.value.word == "no_cursor"


def test_a_poll_admits_by_rows_and_bytes(broker: Broker, client: Client) -> None:
    publisher = Publisher(broker, "admitted")
    publisher.publish(100)
    token = client.open_cursor("admitted", "c", {})["token"]
    asked = {"token": token, "after": 0}
    assert client.poll("admitted", "c", {**asked, "rows": 7})["admitted"] == 7
    # Ten bodies of one byte, then twos.
    assert client.poll("admitted", "c", {**asked, "bytes": 14})["admitted"] == 12
    assert client.poll("admitted", "c", {**asked, "bytes": 1, "after": 50})["admitted"] == 51
    told = client.poll("admitted", "c", {**asked, "after": 100, "wait_ms": 100})
    assert (told["admitted"], told["end"]) == (100, 100)


def test_a_long_batch_is_admitted_in_slices(broker: Broker, client: Client) -> None:
    """It goes as far as it would in one go; what had left before the cursor came does not count."""
    publisher = Publisher(broker, "long")
    publisher.publish(700)
    taken = [publisher.channel.basic_get("long")[0] for _ in range(300)]
    for method in taken[100:250]:
        publisher.channel.basic_ack(method.delivery_tag)
    publisher.channel.basic_nack(0, multiple=True)
    asked = {"token": client.open_cursor("long", "c", {})["token"], "after": 0}
    there = [*range(100), *range(250, 700)]
    sizes = [len(b"%d" % number) for number in there]
    with patch.object(routes_cursors, "ADMIT_SLICE", 37):
        for rows in (1, 22, 101, 128, 549, 550, 1_000):
            told = client.poll("long", "c", {**asked, "rows": rows})
            assert told["admitted"] == (there[rows] if rows < len(there) else 700)
        for size in (1, 100, 257, sum(sizes) - 1, sum(sizes)):
            count = max(1, sum(whole <= size for whole in accumulate(sizes)))
            told = client.poll("long", "c", {**asked, "bytes": size})
            assert told["admitted"] == (there[count] if count < len(there) else 700)


def test_long_blocks_share_their_buffers_and_nothing_else(broker: Broker, client: Client) -> None:
    """Of two queues, whose messages are of different lengths, read in turns: what is there."""
    for queue, size in (("wide", 300), ("narrow", 90)):
        Publisher(broker, queue)
        bodies = [b"%d" % n * (size // 5) for n in range(12_000)]
        count = len(bodies)
        rows = {"exchange": [""] * count, "routing_key": [queue] * count, "body": bodies}
        told = client.stage(queue, 1, "0", "0", from_batch(pa.RecordBatch.from_pydict(rows)))
        client.commit(queue, 1, [["0", "0", told["staged"]]])
    for queue, size in (("wide", 300), ("narrow", 90), ("wide", 300), ("narrow", 90)):
        found = []
        while len(found) < 12_000:
            block = Block(client.read_range(queue, {"from": len(found)}))
            found += block.column("body", pa.binary()).to_pylist()
        assert found == [b"%d" % n * (size // 5) for n in range(12_000)]


def test_positions_by_time(broker: Broker, client: Client) -> None:
    publisher = Publisher(broker, "timed")
    client.open_cursor("timed", "c", {})
    publisher.publish(5)
    time.sleep(0.3)
    now_ms = int(time.time() * 1000)
    time.sleep(0.2)
    publisher.publish(5)
    assert client.range_info("timed", now_ms)["at"] == 5
    assert client.range_info("timed", 0)["at"] == 0
    later = client.open_cursor("timed", "later", {"start": {"timestamp": now_ms}})
    assert later["start"] == 5


def test_queues_that_can_have_no_cursor(broker: Broker, client: Client) -> None:
    Publisher(broker, "prior", **{"x-max-priority": 3})
    with pytest.raises(Refused, match="priorities"):
        client.open_cursor("prior", "c", {})
    with pytest.raises(Refused) as refusal:
        client.open_cursor("nowhere", "c", {})
    assert refusal.value.word == "no_queue"
    broker.add_user("stranger", "pw", tags=["management"])
    broker.set_permissions("stranger", read="^$")
    stranger = client_of(broker, user="stranger", password="pw")
    with pytest.raises(Refused) as refusal:
        stranger.open_cursor("prior", "c", {})
    assert refusal.value.status == 401


def test_a_cursor_that_nobody_uses_expires(broker: Broker, client: Client) -> None:
    publisher = Publisher(broker, "forgotten")
    client.open_cursor("forgotten", "c", {"expires_s": 1})
    publisher.publish(10)
    publisher.take(10)
    deadline_s = time.monotonic() + PATIENCE_S
    while client.call("GET", "/queues/%2F/forgotten/cursors"):
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    info = client.range_info("forgotten")
    assert (info["first"], info["end"]) == (10, 10)


def block_of(queue: str, count: int) -> bytes:
    return from_batch(
        pa.RecordBatch.from_pydict(
            {
                "exchange": [""] * count,
                "routing_key": [queue] * count,
                "body": numbers(0, count),
                "headers": pa.array(
                    [[("k", "v")]] * count, pa.map_(pa.string(), pa.string())
                ),
            }
        )
    )  # fmt: skip


def test_a_batch_is_published_once(broker: Broker, client: Client) -> None:
    publisher = Publisher(broker, "batched")
    for _ in range(2):
        staged = client.stage("p", 7, "0", "a", block_of("batched", 100))["staged"]
        # The answer was lost and the block sent again.
        client.stage("p", 7, "0", "a", block_of("batched", 100))
        client.stage("p", 7, "0", "failed-attempt", block_of("batched", 100))
        told = client.commit("p", 7, [["0", "a", staged]])
        assert broker.queue("batched").ready == 100
    assert told == {"published": 0, "duplicates": 1, "refused": 0, "unroutable": 0}
    got = publisher.channel.basic_get("batched", auto_ack=True)
    assert got[1].headers == {"k": "v"}
    with pytest.raises(Refused, match="not staged"):
        client.commit("p", 8, [["0", "a", staged]])


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (b"no block at all ", "no block"),
        (b"WARRENB1" + b"\xff" * 8 + b"{}", "cut short"),
        (block_of("batched", 3).replace(b'"routing_key"', b'"ruoting_key"'), "not known"),
        (block_of("batched", 3)[:-20], "outside"),
    ],
)
def test_a_bad_block_is_refused(broker: Broker, client: Client, block: bytes, words: str) -> None:
    Publisher(broker, "batched")
    with pytest.raises(Refused, match=words) as refusal:
        client.stage("p", 9, "0", "a", block)
    assert refusal.value.word == "bad_block"


def test_cursors_and_batches_outlive_the_broker(tmp_path: Path) -> None:
    with Broker(http=True, data_dir=tmp_path) as broker:
        client = client_of(broker)
        publisher = Publisher(broker, "q")
        told = client.open_cursor("q", "c", {})
        publisher.publish(300)
        publisher.take(200)
        client.trim("q", "c", {"token": told["token"], "upto": 50})
        staged = client.stage("p", 1, "0", "a", block_of("q", 10))["staged"]
        client.commit("p", 1, [["0", "a", staged]])
        before = [client.read_range("q", {"from": 50, "cursor": "c"})]
        for _ in range(2):
            broker.restart()
            client = client_of(broker)
            before.append(client.read_range("q", {"from": 50, "cursor": "c"}))
            assert broker.queue("q").ready == 110
        again = client.open_cursor("q", "c", {"token": told["token"]})
        assert (again["start"], again["position"]) == (0, 50)
        assert again["incarnation"] == told["incarnation"]
        staged = client.stage("p", 1, "0", "b", block_of("q", 10))["staged"]
        assert client.commit("p", 1, [["0", "b", staged]])["duplicates"] == 1
        assert broker.queue("q").ready == 110
    assert before[0] == before[1] == before[2]


def test_the_control_command(
    broker: Broker, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    publisher = Publisher(broker, "shown")
    client.open_cursor("shown", "archive", {"start": "earliest"})
    publisher.publish(3)
    url = broker.http_url.replace("http://", "http://guest:guest@")
    assert run(["--url", url, "--quiet", "list_cursors"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if "archive" in line)
    assert row.split()[:6] == ["shown", "archive", "follow", "0", "3", "3"]
    assert run(["--url", url, "delete_cursor", "shown", "archive"]) == 0
    assert client.call("GET", "/queues/%2F/shown/cursors") == []
