"""The event journal: what a broker notes, what it leaves behind, and the files that hold it."""

from __future__ import annotations

import datetime
import os
import struct
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pika
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from warren.ctl.main import run as ctl
from warren.node.errors import StartError
from warren.spark.journal_files import BadSegment, Names, removed_until, segments, to_table
from warren.spark.pipelines.audit import audit
from warren.spark.pipelines.events import read_events, whole_since
from warren.testing import Broker

KEPT = pika.BasicProperties(delivery_mode=2)
CONFIG = {"journal.enabled": True, "journal.queues": "^seen", "journal.interval": 3600}


def events_of(directory: Path, scratch: Path) -> list[dict[str, object]]:
    tables = [pq.read_table(path) for path in segments(directory, scratch)]
    return pa.concat_tables(tables).to_pylist() if tables else []


def counted(rows: list[dict[str, object]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in rows:
        found[str(one["event"])] += int(str(one["count"]))
    return found


def traffic(broker: Broker, queue: str) -> None:
    """Ten messages: six are acknowledged, one rejected, one comes again, two stay."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare(queue, durable=True)
    for number in range(10):
        channel.basic_publish("", queue, b"%d" % number, KEPT)
    tags = [channel.basic_get(queue)[0].delivery_tag for _ in range(8)]
    channel.basic_ack(tags[5], multiple=True)
    channel.basic_reject(tags[6], requeue=False)
    channel.basic_reject(tags[7], requeue=True)
    method, _, _ = channel.basic_get(queue)
    assert method.redelivered
    channel.basic_ack(method.delivery_tag)
    connection.close()


def test_what_an_operator_moves_is_not_lost(tmp_path: Path, spark: SparkSession) -> None:
    with Broker(config=CONFIG, data_dir=tmp_path / "data", http=True) as broker:
        traffic(broker, "seen")
        address = broker.http_url.replace("http://", "http://guest:guest@")
        assert ctl(["--url", address, "-q", "pub", "seen.to", "first"]) == 0
        assert ctl(["--url", address, "-q", "move", "seen", "seen.to"]) == 0
    place = tmp_path / "data" / "events"
    rows = events_of(place, tmp_path)
    assert counted([one for one in rows if one["queue"] == "seen"])["purge"] == 2
    with read_events(spark, [place]) as events:
        queues = {one["queue"]: one for one in audit(events).queues.collect()}
    assert {name: (one["lost"], one["held"]) for name, one in queues.items()} == {
        "seen": (0, 0),
        "seen.to": (0, 3),
    }


def test_everything_that_happens_is_noted(tmp_path: Path, spark: SparkSession) -> None:
    with Broker(config=CONFIG, data_dir=tmp_path / "data") as broker:
        traffic(broker, "seen")
        traffic(broker, "unwatched")
    place = tmp_path / "data" / "events"
    rows = events_of(place, tmp_path)
    assert {one["queue"] for one in rows} == {"seen"}
    assert counted(rows) == {
        "publish": 10,
        "confirm": 10,
        "deliver": 9,
        "ack": 7,
        "reject": 1,
        "requeue": 1,
        "snapshot": 1,
        "held": 2,
    }
    assert sum(int(str(one["bytes"])) for one in rows if one["event"] == "publish") == 10
    assert [one["seq"] for one in rows if one["redelivered"]] == [7]
    assert not list(place.glob("*.open"))
    with read_events(spark, [place]) as events:
        (queue,) = audit(events).queues.collect()
    assert (queue["confirmed"], queue["gone"], queue["held"]) == (10, 8, 2)
    assert (queue["lost"], queue["unflagged"], queue["redelivered"]) == (0, 0, 1)


def test_letters_of_the_dead_are_events_of_their_own(tmp_path: Path, spark: SparkSession) -> None:
    """Three go on to another queue, two to nobody: only letters that were taken are noted."""
    with Broker(config=CONFIG, data_dir=tmp_path / "data") as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        channel.confirm_delivery()
        for queue, target, count in (("seen", "graves", 3), ("seen.unwanted", "nowhere", 2)):
            arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": target}
            channel.queue_declare(queue, durable=True, arguments=arguments)
            channel.queue_declare("graves", durable=True)
            for _ in range(count):
                channel.basic_publish("", queue, b"x", KEPT)
            for _ in range(count):
                method, _, _ = channel.basic_get(queue)
                channel.basic_reject(method.delivery_tag, requeue=False)
        connection.close()
    place = tmp_path / "data" / "events"
    rows = events_of(place, tmp_path)
    letters = [one for one in rows if one["event"] == "dead-letter"]
    assert {one["queue"] for one in letters} == {"seen"}
    assert counted(letters) == {"dead-letter": 3}
    assert {(one["queue"], one["dead_lettered"]) for one in rows if one["event"] == "reject"} == {
        ("seen", True),
        ("seen.unwanted", False),
    }
    with read_events(spark, [place]) as events:
        queues = {row["queue"]: row for row in audit(events, every=True).queues.collect()}
    seen = queues["seen"]
    assert (seen["gone"], seen["lost"], seen["duplicates"]) == (3, 0, 0)


def test_messages_that_go_back_to_their_publishers_are_noted(
    tmp_path: Path, spark: SparkSession
) -> None:
    with Broker(config=CONFIG, data_dir=tmp_path / "data") as broker:
        traffic(broker, "seen")
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        for _ in range(5):
            channel.basic_publish("", "no such queue", b"abc", mandatory=True)
            channel.basic_publish("", "no such queue", b"abc")
        channel.queue_declare("graves")
        connection.close()
    place = tmp_path / "data" / "events"
    returned = [one for one in events_of(place, tmp_path) if one["event"] == "return"]
    assert {(one["vhost"], one["queue"]) for one in returned} == {("/", "")}
    assert counted(returned) == {"return": 5}
    assert sum(int(str(one["bytes"])) for one in returned) == 15
    with read_events(spark, [place]) as events:
        # They were in no queue, so the audit has nothing to say of them.
        (queue,) = audit(events, every=True).queues.collect()
    assert (queue["queue"], queue["published"], queue["lost"]) == ("seen", 10, 0)


def test_what_a_killed_broker_noted_is_there(tmp_path: Path) -> None:
    with Broker(config=CONFIG, data_dir=tmp_path / "data") as broker:
        traffic(broker, "seen")
        place = tmp_path / "data" / "events"
        # As it lies there while the broker runs: a kill would leave the same.
        rows = events_of(place, tmp_path)
        assert counted(rows)["publish"] == 10
        assert counted(rows)["ack"] == 7
        copy = tmp_path / "left"
        copy.mkdir()
        for path in [*place.glob("*.open"), *place.glob("*.names")]:
            (copy / path.name).write_bytes(path.read_bytes())
    config = {**CONFIG, "journal.directory": str(copy)}
    with Broker(config=config, data_dir=tmp_path / "data"):
        pass
    assert counted(events_of(copy, tmp_path))["publish"] == 10
    assert not list(copy.glob("*.open"))


def test_nothing_is_noted_when_it_is_off(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        traffic(broker, "seen")
        assert broker.call(lambda node: node.events) is None
    assert not (tmp_path / "data" / "events").exists()


def test_old_segments_make_room(tmp_path: Path) -> None:
    config = {**CONFIG, "journal.max_bytes": 1}
    before = datetime.datetime.now(datetime.UTC)
    with Broker(config=config, data_dir=tmp_path / "data") as broker:
        for _ in range(3):
            traffic(broker, "seen")
            broker.call(lambda node: node.events.rotate())
    place = tmp_path / "data" / "events"
    (left,) = place.glob("*.parquet")
    # What is gone is said: an audit must not take for lost what was settled in there.
    until = removed_until(place)
    assert until is not None
    oldest = pc.min(pq.read_table(left)["at"]).as_py()
    assert before <= until <= datetime.datetime.now(datetime.UTC)
    assert until <= oldest + datetime.timedelta(seconds=1)
    assert whole_since([place, tmp_path]) == until
    assert whole_since([tmp_path]) is None


def test_queues_that_come_and_go_are_not_remembered(tmp_path: Path, spark: SparkSession) -> None:
    """Each has its own events, though its number was another's before; a late ack is nobody's."""
    with Broker(config=CONFIG, data_dir=tmp_path / "data") as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel, late = connection.channel(), connection.channel()
        for turn in range(30):
            name = f"seen.{turn}"
            channel.queue_declare(name, durable=True)
            for _ in range(turn + 1):
                channel.basic_publish("", name, b"x", KEPT)
            method, _, _ = late.basic_get(name)
            channel.queue_delete(name)
            channel.queue_declare("seen.last", durable=True)
            channel.basic_publish("", "seen.last", b"x", KEPT)
            broker.call(lambda node: node.events.rotate())
            wait_until(lambda: not broker.call(lambda node: node.events.is_behind))
        late.basic_ack(method.delivery_tag, multiple=True)
        assert broker.call(lambda node: len(node.events._names)) < 20
        connection.close()
    place = tmp_path / "data" / "events"
    published = Counter(
        str(one["queue"])
        for one in events_of(place, tmp_path)
        if one["event"] == "publish"
        for _ in range(int(str(one["count"])))
    )
    assert published == {**{f"seen.{n}": n + 1 for n in range(30)}, "seen.last": 30}
    with read_events(spark, [place]) as events:
        queues = audit(events, every=True).queues.collect()
    assert len(queues) == 31
    assert sum(one["lost"] + one["unflagged"] + one["duplicates"] for one in queues) == 0
    # Of the run that is over only its segments are left.
    with Broker(config=CONFIG, data_dir=tmp_path / "data"):
        wait_until(lambda: len(list(place.glob("*.names"))) == 1)


def wait_until(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_a_broker_in_memory_says_what_it_needs() -> None:
    with pytest.raises(StartError, match=r"journal\.directory"):
        Broker(config=CONFIG).start()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:40],
        lambda data: b"WRONGJ1!" + data[8:],
        lambda data: data[:12] + struct.pack("<I", 1 << 30) + data[16:],
        lambda data: data[:-1],
    ],
)
def test_files_that_are_no_buffers_are_refused(spoil: Callable[[bytes], bytes]) -> None:
    data = struct.pack("<8sIIq", b"WARRENJ1", 8, 0, 0).ljust(64, b"\0") + bytes(8 * 38)
    assert to_table(data, Names("n")).num_rows == 0
    with pytest.raises(BadSegment):
        to_table(spoil(data), Names("n"))
    one = data[:12] + struct.pack("<I", 1) + data[16:]
    at = 64 + 8 * (8 + 8 + 8 + 4)
    unnamed = one[:at] + struct.pack("<I", 5) + one[at + 4 :]
    with pytest.raises(BadSegment, match="no name"):
        to_table(unnamed, Names("n"))


def test_a_place_without_a_journal_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSegment, match="there is no event journal"):
        segments(tmp_path / os.urandom(4).hex(), tmp_path)
