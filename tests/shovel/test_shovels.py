"""Shovels between brokers: nothing lost, whatever happens in between; and what is told of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from click.testing import CliRunner

from management.api import Api
from warren.node.cli import main
from warren.shovel.supervisor import choose_node
from warren.testing.broker import Broker

PERSISTENT = pika.BasicProperties(delivery_mode=2, headers={"n": 1}, message_id="m")


def eventually(met: Callable[[], Any], limit_s: float = 30) -> Any:
    """What it gives once that is true."""
    until_s = time.monotonic() + limit_s
    while not (found := met()):
        assert time.monotonic() < until_s, "it did not come to that"
        time.sleep(0.05)
    return found


@pytest.fixture(scope="module")
def source() -> Iterator[Broker]:
    with Broker(http=True) as broker:
        yield broker


@pytest.fixture(scope="module")
def target() -> Iterator[Broker]:
    with Broker(http=True) as broker:
        yield broker


@pytest.fixture(scope="module")
def api(source: Broker) -> Api:
    return Api(source.http_url)


def fill(broker: Broker, queue: str, count: int) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare(queue, durable=True)
    for number in range(count):
        channel.basic_publish("", queue, str(number).encode(), PERSISTENT)
    connection.close()


def bodies(broker: Broker, queue: str) -> list[int]:
    rows = Api(broker.http_url).post(f"/queues/%2F/{queue}/peek", {"count": 10_000})
    return [int(row["payload"]) for row in rows]


def count(broker: Broker, queue: str) -> int:
    snapshot = {found.name: found for found in broker.queues()}.get(queue)
    return snapshot.ready if snapshot is not None else 0


def put(api: Api, name: str, **value: Any) -> None:
    body = {"value": {key.replace("_", "-"): item for key, item in value.items()}}
    api.put(f"/parameters/shovel/%2F/{name}", body)


def status(api: Api, name: str) -> dict[str, Any]:
    rows = [row for row in api.get("/shovels") if row["name"] == name]
    return rows[0] if rows else {}


def test_moves_and_goes_on_moving(source: Broker, target: Broker, api: Api) -> None:
    fill(source, "s1", 500)
    put(api, "one", src_uri=source.url, src_queue="s1", dest_uri=target.url, dest_queue="d1")
    eventually(lambda: count(target, "d1") == 500)
    assert bodies(target, "d1") == list(range(500))
    fill(source, "s1", 3)
    eventually(lambda: count(target, "d1") == 503)
    eventually(lambda: status(api, "one").get("forwarded") == 503)
    shown = status(api, "one")
    assert shown["state"] == "running"
    assert (shown["src_queue"], shown["dest_queue"], shown["type"]) == ("s1", "d1", "dynamic")
    # No address shows a password.
    assert "guest" not in shown["src_uri"] + shown["dest_uri"]
    (message,) = Api(target.http_url).post("/queues/%2F/d1/peek", {"count": 1})
    assert message["properties"] == {"delivery_mode": 2, "headers": {"n": 1}, "message_id": "m"}
    assert api.get("/shovels/vhost/%2F/one")["name"] == "one"
    api.delete("/shovels/vhost/%2F/one")
    eventually(lambda: status(api, "one") == {})
    fill(source, "s1", 2)
    assert api.refusal("GET", "/shovels/vhost/%2F/one")[0] == 404
    assert api.refusal("DELETE", "/shovels/vhost/%2F/one")[0] == 404
    assert count(source, "s1") == 2


def test_ends_by_itself(source: Broker, target: Broker, api: Api) -> None:
    fill(source, "s2", 50)
    uris = {"src_uri": "amqp://", "dest_uri": target.url}
    put(api, "two", **uris, src_queue="s2", dest_queue="d2", src_delete_after=20)
    eventually(lambda: api("GET", "/api/parameters/shovel/%2F/two").status == 404)
    assert bodies(target, "d2") == list(range(20))
    eventually(lambda: count(source, "s2") == 30)
    put(api, "two", **uris, src_queue="s2", dest_queue="d2", src_delete_after="queue-length")
    eventually(lambda: api("GET", "/api/parameters/shovel/%2F/two").status == 404)
    assert bodies(target, "d2") == list(range(50))
    assert count(source, "s2") == 0


def test_exchanges_headers_and_properties(source: Broker, target: Broker, api: Api) -> None:
    there = Api(target.http_url)
    there.put("/exchanges/%2F/tx", {"type": "topic"})
    there.put("/queues/%2F/d3")
    there("POST", "/api/bindings/%2F/e/tx/q/d3", {"routing_key": "a.#"})
    put(
        api,
        "three",
        src_uri=source.url,
        src_exchange="amq.topic",
        src_exchange_key="a.*",
        dest_uri=target.url,
        dest_exchange="tx",
        dest_add_forward_headers=True,
        dest_add_timestamp_header=True,
        dest_publish_properties={"app-id": "shovelled"},
        ack_mode="on-publish",
    )
    eventually(lambda: status(api, "three").get("state") == "running")
    body = {"properties": {"headers": {"own": 1}}, "payload": "x", "payload_encoding": "string"}
    api.post("/exchanges/%2F/amq.topic/publish", {**body, "routing_key": "a.b"})
    eventually(lambda: count(target, "d3") == 1)
    (row,) = there.post("/queues/%2F/d3/peek", {"count": 9})
    assert (row["exchange"], row["routing_key"]) == ("tx", "a.b")
    assert row["properties"]["app_id"] == "shovelled"
    headers = row["properties"]["headers"]
    assert headers["own"] == 1
    assert headers["x-shovelled-timestamp"] > 1_600_000_000
    (told,) = headers["x-shovelled"]
    assert (told["shovel-name"], told["src-exchange"]) == ("three", "amq.topic")
    assert "guest" not in str(told)
    api.delete("/parameters/shovel/%2F/three")


def test_a_destination_that_is_away_loses_nothing(source: Broker, api: Api) -> None:
    fill(source, "s4", 300)
    away = Broker(http=True)
    away.start()
    try:
        uris = {"src_uri": source.url, "dest_uri": away.url}
        away.stop()
        put(api, "four", **uris, src_queue="s4", dest_queue="d4", reconnect_delay=1)
        eventually(lambda: "cannot be reached" in status(api, "four").get("reason", ""))
        away.start()
        eventually(lambda: count(away, "d4") == 300)
        assert bodies(away, "d4") == list(range(300))
    finally:
        api.delete("/parameters/shovel/%2F/four")
        away.stop()


def test_what_the_destination_refuses_stays(source: Broker, target: Broker, api: Api) -> None:
    fill(source, "s5", 10)
    full = {"arguments": {"x-max-length": 4, "x-overflow": "reject-publish"}}
    there = Api(target.http_url)
    there.put("/queues/%2F/d5", full)
    put(api, "five", src_uri=source.url, src_queue="s5", dest_uri=target.url, dest_queue="d5")
    eventually(lambda: count(target, "d5") == 4)
    there.delete("/queues/%2F/d5/contents")
    eventually(lambda: count(target, "d5") == 4)
    api.delete("/parameters/shovel/%2F/five")
    eventually(lambda: status(api, "five") == {} and count(source, "s5") == 2)


def test_a_queue_that_vanishes_takes_no_message_along(
    source: Broker, target: Broker, api: Api
) -> None:
    there = Api(target.http_url)
    uris = {"src_uri": source.url, "dest_uri": target.url}
    put(api, "six", **uris, src_queue="s6", dest_queue="d6", reconnect_delay=0)
    eventually(lambda: status(api, "six").get("state") == "running")
    there.delete("/queues/%2F/d6")
    fill(source, "s6", 20)
    # It notices that nobody takes them, begins anew and makes the queue again.
    eventually(lambda: count(target, "d6") == 20)
    assert sorted(bodies(target, "d6")) == list(range(20))
    api.delete("/parameters/shovel/%2F/six")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({}, "Key 'src-uri' not found"),
        ({"src-uri": "http://x", "dest-uri": "amqp://", "src-queue": "q"}, "amqp:// or amqps://"),
        ({"src-uri": "amqp://", "dest-uri": "amqp://"}, "Must specify 'src-exchange'"),
        ({"src-uri": "amqp://", "dest-uri": "amqp://", "src-queue": 1}, "wrong type"),
        ({"src-ury": "amqp://"}, "did you mean 'src-uri'"),
        (
            {"src-uri": "amqp://", "dest-uri": "amqp://", "src-queue": "q", "ack-mode": "x"},
            "is not one of on-confirm",
        ),
        ({"src-uri": "amqp://u:secret@h/a/b", "dest-uri": "amqp://", "src-queue": "q"}, "%2F"),
    ],
)
def test_what_makes_no_sense_is_refused(api: Api, value: dict[str, Any], reason: str) -> None:
    code, _, told = api.refusal("PUT", "/parameters/shovel/%2F/bad", {"value": value})
    assert code == 400
    assert reason in told
    assert "secret" not in told


def test_each_shovel_has_one_node() -> None:
    nodes = ["a@x", "b@x", "c@x"]
    chosen = {f"s{n}": choose_node("/", f"s{n}", nodes) for n in range(60)}
    assert set(chosen.values()) == set(nodes)
    # Those of a node that goes are spread; the others stay where they are.
    for name, node in chosen.items():
        if node != "c@x":
            assert choose_node("/", name, nodes[:2]) == node


def test_once_from_the_command_line(source: Broker, target: Broker, tmp_path: Path) -> None:
    fill(source, "c1", 40)
    fill(source, "c2", 5)
    arguments = ["shovel", "--from", source.url, "--to", target.url]
    done = CliRunner().invoke(main, [*arguments, "--queue", "c1", "--queue", "c2"])
    assert done.exit_code == 0, done.output
    assert "c1: 40 messages moved" in done.output
    assert bodies(target, "c1") == list(range(40))
    fill(source, "c1", 3)
    export = tmp_path / "export.json"
    export.write_text('{"queues": [{"name": "c1", "vhost": "/"}, {"name": "c2", "vhost": "/"}]}')
    done = CliRunner().invoke(main, [*arguments, "--definitions", str(export)])
    assert (done.exit_code, count(target, "c1"), count(source, "c1")) == (0, 43, 0)
    assert CliRunner().invoke(main, arguments).exit_code == 2
    wrong = ["shovel", "--from", source.url, "--to", "amqp://127.0.0.1:1", "--queue", "c1"]
    done = CliRunner().invoke(main, wrong)
    assert done.exit_code == 1
    assert "cannot be reached" in done.output


def test_pausing(source: Broker, target: Broker, api: Api) -> None:
    """What is on its way arrives, nothing else moves, and nothing comes twice."""
    fill(source, "p1", 200)
    uris = {"src_uri": source.url, "dest_uri": target.url}
    put(api, "rest", **uris, src_queue="p1", dest_queue="pd1", src_prefetch_count=10)
    eventually(lambda: count(target, "pd1") == 200)
    assert api.put("/shovels/vhost/%2F/rest/pause") == 204
    eventually(lambda: status(api, "rest").get("state") == "paused")
    shown = status(api, "rest")
    assert (shown["forwarded"], shown["paused_by"]) == (200, "guest")
    fill(source, "p1", 50)
    time.sleep(1)
    assert (count(source, "p1"), count(target, "pd1")) == (50, 200)
    # It is so in its definition, which any node obeys, and nobody consumes meanwhile.
    assert api.get("/parameters/shovel/%2F/rest")["value"]["paused"]["by"] == "guest"
    assert api.get("/queues/%2F/p1")["consumers"] == 0
    assert api.put("/shovels/vhost/%2F/rest/pause") == 204
    assert api.delete("/shovels/vhost/%2F/rest/restart") == 204
    time.sleep(0.6)
    assert status(api, "rest")["state"] == "paused"
    assert api.put("/shovels/vhost/%2F/rest/resume") == 204
    eventually(lambda: count(target, "pd1") == 250)
    assert sorted(bodies(target, "pd1")) == sorted([*range(200), *range(50)])
    assert "paused" not in api.get("/parameters/shovel/%2F/rest")["value"]
    assert api.refusal("PUT", "/shovels/vhost/%2F/none/pause", {})[0] == 404
    api.delete("/shovels/vhost/%2F/rest")


def test_pausing_in_the_middle(source: Broker, target: Broker, api: Api) -> None:
    """A shovel that ends after so many messages goes on counting, and loses and doubles none."""
    fill(source, "p2", 2000)
    uris = {"src_uri": source.url, "dest_uri": target.url}
    put(api, "half", **uris, src_queue="p2", dest_queue="pd2", src_delete_after=1500)
    for _ in range(3):
        eventually(lambda: api("PUT", "/api/shovels/vhost/%2F/half/pause", {}).status in {204, 404})
        time.sleep(0.7)
        api("PUT", "/api/shovels/vhost/%2F/half/resume", {})
        time.sleep(0.2)
    eventually(lambda: api("GET", "/api/parameters/shovel/%2F/half").status == 404)
    eventually(lambda: count(source, "p2") == 500)
    assert sorted(bodies(target, "pd2")) == list(range(1500))


def test_the_last_error_is_told_after_it_is_over(source: Broker, api: Api) -> None:
    fill(source, "p3", 10)
    away = Broker(http=True)
    away.start()
    try:
        uris = {"src_uri": source.url, "dest_uri": away.url}
        away.stop()
        put(api, "sick", **uris, src_queue="p3", dest_queue="pd3", reconnect_delay=1)
        eventually(lambda: "cannot be reached" in status(api, "sick").get("reason", ""))
        # One that does not get through is paused at once.
        api.put("/shovels/vhost/%2F/sick/pause")
        eventually(lambda: status(api, "sick").get("state") == "paused")
        away.start()
        api.put("/shovels/vhost/%2F/sick/resume")
        eventually(lambda: count(away, "pd3") == 10)
        eventually(lambda: status(api, "sick").get("state") == "running")
        shown = status(api, "sick")
        assert "cannot be reached" in shown["last_error"]
        assert shown["last_error_at"] < time.time() * 1000
        assert "reason" not in shown
    finally:
        api.delete("/parameters/shovel/%2F/sick")
        away.stop()


def test_what_is_given_without_acknowledgements_is_not_lost_by_a_pause(
    source: Broker, target: Broker, api: Api
) -> None:
    fill(source, "p4", 3000)
    uris = {"src_uri": source.url, "dest_uri": target.url}
    put(api, "quick", **uris, src_queue="p4", dest_queue="pd4", ack_mode="no-ack")
    eventually(lambda: count(target, "pd4") > 0)
    api.put("/shovels/vhost/%2F/quick/pause")
    eventually(lambda: status(api, "quick").get("state") == "paused")
    eventually(lambda: count(source, "p4") + count(target, "pd4") == 3000)
    api.delete("/shovels/vhost/%2F/quick")
