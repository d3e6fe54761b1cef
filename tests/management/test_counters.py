"""Counts of the data plane: exchanges, frames, persistent messages, settlements, confirm times."""

from __future__ import annotations

from pathlib import Path

import pika

from management.api import Api
from management.test_metrics import one, scrape
from warren.testing.broker import Broker

Channel = pika.adapters.blocking_connection.BlockingChannel
PERSISTENT = pika.BasicProperties(delivery_mode=2)


def test_what_goes_through_exchanges(broker: Broker, api: Api, channel: Channel) -> None:
    channel.confirm_delivery()
    channel.exchange_declare("ct.x", "fanout")
    for name in ("ct.a", "ct.b"):
        channel.queue_declare(name)
        channel.queue_bind(name, "ct.x")
    for _ in range(5):
        channel.basic_publish("ct.x", "any", b"x")
    # The long way round counts as well.
    channel.basic_publish("ct.x", "any", b"x", pika.BasicProperties(headers={"CC": ["other"]}))
    api.post("/exchanges/%2F/ct.x/publish", _message("any"))
    stats = api.get("/exchanges/%2F/ct.x")["message_stats"]
    assert (stats["publish_in"], stats["publish_out"]) == (7, 14)
    channel.exchange_declare("ct.y", "direct")
    channel.basic_publish("ct.y", "nobody", b"x")
    stats = api.get("/exchanges/%2F/ct.y")["message_stats"]
    assert (stats["publish_in"], stats["publish_out"]) == (1, 0)
    found = scrape(broker, "/metrics/detailed?family=exchange_metrics&vhost=%2F")
    values = {
        labels["exchange"]: value
        for labels, value in found["rabbitmq_detailed_exchange_messages_routed_total"]
    }
    assert (values["ct.x"], values["ct.y"]) == (14, 0)


def _message(key: str) -> dict[str, object]:
    return {"properties": {}, "routing_key": key, "payload": "x", "payload_encoding": "string"}


def test_frames_acks_and_redeliveries(broker: Broker, api: Api) -> None:
    parameters = pika.URLParameters(broker.url)
    parameters.client_properties = {"connection_name": "counted"}
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()

    def shown() -> dict[str, object]:
        (row,) = [row for row in api.get("/connections") if "user_provided_name" in row]
        found: dict[str, object] = row
        return found

    channel.queue_declare("ct.q", auto_delete=True)
    for _ in range(4):
        channel.basic_publish("", "ct.q", b"x" * 10)
    channel.queue_declare("ct.q", passive=True)
    before = shown()["send_cnt"]
    taken = [channel.basic_get("ct.q")[0].delivery_tag for _ in range(3)]
    # A method, a header and a body each.
    assert shown()["send_cnt"] == before + 9  # type: ignore[operator]
    channel.basic_ack(taken[0])
    channel.basic_reject(taken[1], requeue=False)
    channel.basic_nack(taken[2], requeue=True)
    assert channel.basic_get("ct.q")[0].redelivered
    name = shown()["name"]
    (stats,) = [
        row["message_stats"]
        for row in api.get("/channels")
        if row["connection_details"]["name"] == name
    ]
    assert (stats["ack"], stats["redeliver"], stats["get"]) == (1, 1, 4)
    connection.close()


def test_persistent_messages(tmp_path: Path) -> None:
    def counts(api: Api) -> tuple[int, int]:
        shown = api.get("/queues/%2F/kept")
        return shown["messages_persistent"], shown["message_bytes_persistent"]

    with Broker(http=True, data_dir=tmp_path) as broker:
        api = Api(broker.http_url)
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("kept", durable=True)
        for number in range(200):
            channel.basic_publish("", "kept", b"12345", PERSISTENT if number % 2 else None)
        assert counts(api) == (100, 500)
        for _ in range(4):
            channel.basic_get("kept", auto_ack=True)
        assert counts(api) == (98, 490)
        connection.close()
    with Broker(http=True, data_dir=tmp_path) as broker:
        api = Api(broker.http_url)
        assert counts(api) == (98, 490)
        api.delete("/queues/%2F/kept/contents")
        assert counts(api) == (0, 0)


def test_times_to_confirm(tmp_path: Path) -> None:
    with Broker(http=True, data_dir=tmp_path) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("timed", durable=True)
        for _ in range(7):
            channel.basic_publish("", "timed", b"x", PERSISTENT)
        connection.close()
        found = scrape(broker)
        name = "warren_publish_confirm_seconds"
        assert one(found, f"{name}_count") == 7
        # A disk takes some time.
        assert one(found, f"{name}_sum") > 0
        buckets = [value for _, value in found[f"{name}_bucket"]]
        assert buckets == sorted(buckets)
        assert found[f"{name}_bucket"][-1] == ({"le": "+Inf"}, 7)


def test_peek_reads_what_is_paged_out(tmp_path: Path) -> None:
    with Broker(http=True, data_dir=tmp_path) as broker:
        api = Api(broker.http_url)
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("deep", durable=True)
        for number in range(1000):
            channel.basic_publish("", "deep", str(number).encode(), PERSISTENT)
        connection.close()

        def page_out(node: object) -> int:
            queue = node.engine.vhosts["/"].queues["deep"]  # type: ignore[attr-defined]
            queue.page_out(10)
            queue.page_out(10)
            return sum(row[7] is None for row in queue.walk())

        assert broker.call(page_out) > 500
        body = {"count": 3, "offset": 700}
        rows = api.post("/queues/%2F/deep/peek", body)
        assert [row["payload"] for row in rows] == ["700", "701", "702"]
        # They are still where they were: a look brings nothing into memory.
        assert broker.call(page_out) > 500
        found = api.post("/queues/%2F/deep/peek", {"count": 9, "match": {"payload": "99?"}})
        assert [row["payload"] for row in found] == [str(number) for number in range(990, 999)]
        api.put("/queues/%2F/other", {"durable": True})
        moved = api.post("/queues/%2F/deep/move", {"to": "other", "match": {"payload": "5??"}})
        assert (moved["moved"], moved["unmatched"]) == (100, 900)
    with Broker(http=True, data_dir=tmp_path) as broker:
        api = Api(broker.http_url)
        rows = api.post("/queues/%2F/other/peek", {"count": 1000})
        assert [row["payload"] for row in rows] == [str(number) for number in range(500, 600)]
        rows = api.post("/queues/%2F/deep/peek", {"count": 1000})
        assert len(rows) == 900
        assert not any(row["redelivered"] for row in rows)
