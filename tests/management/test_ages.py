"""How old the oldest message of a queue is: in the API, in lists, as a metric, after a restart."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pika
from prometheus_client.parser import text_string_to_metric_families

from management.api import Api
from warren.testing.broker import Broker

Channel = pika.adapters.blocking_connection.BlockingChannel
METRIC = "warren_queue_oldest_message_age_seconds"


def ages(broker: Broker, path: str) -> dict[str, float]:
    """By queue; of the sum over all, by nothing."""
    with urllib.request.urlopen(broker.metrics_url + path, timeout=60) as page:
        text = page.read().decode()
    return {
        sample.labels.get("queue", ""): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == METRIC
    }


def eventually(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def oldest(api: Api, name: str) -> tuple[int | None, int | None]:
    row = api.get(f"/queues/%2F/{name}")
    return row["oldest_message_arrived_at"], row["oldest_message_age_seconds"]


def test_the_age_needs_no_timestamp(broker: Broker, api: Api, channel: Channel) -> None:
    channel.queue_declare("ages")
    channel.queue_declare("ages.empty")
    assert oldest(api, "ages") == (None, None)
    before_ms = time.time() * 1000
    channel.basic_publish("", "ages", b"x")
    eventually(lambda: api.get("/queues/%2F/ages")["messages"] == 1)
    after_ms = time.time() * 1000
    eventually(lambda: (oldest(api, "ages")[1] or 0) >= 1)
    came_ms, _ = oldest(api, "ages")
    # The clocks of a turn and of the wall are read one after the other.
    assert came_ms is not None
    assert before_ms - 1000 <= came_ms <= after_ms + 1000
    rows = api.get("/queues?sort=oldest_message_age_seconds&sort_reverse=true")
    assert rows[0]["name"] == "ages"
    by_object = ages(broker, "/metrics/per-object")
    assert by_object["ages"] >= 1
    assert "ages.empty" not in by_object
    assert ages(broker, "/metrics")[""] >= 1
    # A consumer that holds it does not make it younger.
    method, _, _ = channel.basic_get("ages")
    assert (oldest(api, "ages")[1] or 0) >= 1
    channel.basic_ack(method.delivery_tag)
    eventually(lambda: oldest(api, "ages") == (None, None))


def test_the_age_outlives_a_restart(tmp_path: Path) -> None:
    with Broker(http=True, data_dir=tmp_path) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        channel.confirm_delivery()
        for name, arguments in (("plain", {}), ("priorities", {"x-max-priority": 3})):
            channel.queue_declare(name, durable=True, arguments=arguments)
            channel.basic_publish("", name, b"x", pika.BasicProperties(delivery_mode=2))
        came = {name: oldest(Api(broker.http_url), name)[0] for name in ("plain", "priorities")}
        connection.close()
        broker.restart(down_s=2)
        for name, came_ms in came.items():
            again_ms, age_s = oldest(Api(broker.http_url), name)
            assert again_ms is not None
            assert came_ms is not None
            # To a second of a mark, and to a whole second in records.
            assert -2100 <= again_ms - came_ms <= 100
            assert (age_s or 0) >= 2
