"""Pausing the consumers of queues over HTTP, and one action on many queues."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import unquote

import pika

from management.api import Api
from management.test_objects import publish
from warren.testing.broker import Broker

Channel = pika.adapters.blocking_connection.BlockingChannel


def test_consumers_are_paused_and_go_on(api: Api, channel: Channel) -> None:
    channel.queue_declare("pause.q", auto_delete=True)
    got: list[bytes] = []
    channel.basic_consume("pause.q", lambda _c, _m, _p, body: got.append(body), auto_ack=True)
    before_ms = time.time() * 1000
    assert api.put("/queues/%2F/pause.q/pause") == 204
    shown = api.get("/queues/%2F/pause.q")
    assert (shown["state"], shown["paused"], shown["paused_by"]) == ("paused", True, "guest")
    assert before_ms - 1000 <= shown["paused_at"] <= time.time() * 1000 + 1000
    for number in range(5):
        channel.basic_publish("", "pause.q", b"%d" % number)
    channel.connection.process_data_events(0.3)
    assert got == []
    assert channel.basic_get("pause.q")[0] is None
    # Who operates it looks into it and takes messages out all the same.
    assert [row["payload"] for row in api.post("/queues/%2F/pause.q/peek", {"count": 9})] == [
        "0",
        "1",
        "2",
        "3",
        "4",
    ]
    taking = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    assert [row["payload"] for row in api.post("/queues/%2F/pause.q/get", taking)] == ["0"]
    # A second pause changes nothing of the first.
    assert api.put("/queues/%2F/pause.q/pause") == 204
    assert api.get("/queues/%2F/pause.q")["paused_at"] == shown["paused_at"]
    assert api.put("/queues/%2F/pause.q/resume") == 204
    until_s = time.monotonic() + 30
    while len(got) < 4 and time.monotonic() < until_s:
        channel.connection.process_data_events(0.1)
    assert got == [b"1", b"2", b"3", b"4"]
    shown = api.get("/queues/%2F/pause.q")
    assert (shown["state"], shown["paused"]) == ("running", False)
    assert "paused_by" not in shown
    assert api.put("/queues/%2F/pause.q/resume") == 204
    names = [
        event["event"] for event in api.get("/cluster/events?names=queue.paused,queue.resumed")
    ]
    assert names == ["queue.paused", "queue.resumed"]
    assert api("PUT", "/api/queues/%2F/none/pause", {}).status == 404


def make_user(api: Api, vhost: str, name: str, tag: str, configure: str, read: str = ".*") -> Api:
    api.put(f"/users/{name}", {"password": "pw", "tags": tag})
    rights = {"configure": configure, "write": ".*", "read": read}
    api.put(f"/permissions/{vhost}/{name}", rights)
    return api.as_user(name)


def test_it_wants_the_right_to_configure(api: Api, vhost: str) -> None:
    api.put(f"/queues/{vhost}/own.q")
    api.put(f"/queues/{vhost}/other.q")
    user = make_user(api, vhost, "pauser", "management", "^own")
    assert user.put(f"/queues/{vhost}/own.q/pause") == 204
    assert user.refusal("PUT", f"/queues/{vhost}/other.q/pause", {})[0] == 401
    assert user.refusal("PUT", f"/queues/{vhost}/other.q/resume", {})[0] == 401
    assert user.put(f"/queues/{vhost}/own.q/resume") == 204


def test_publishers_of_a_paused_queue_are_not_slowed_down(broker: Broker, channel: Channel) -> None:
    """A queue whose consumers do not keep up holds its publishers back; here nobody is at work."""
    channel.queue_declare("pause.deep", auto_delete=True)
    channel.basic_consume("pause.deep", lambda *_: None)
    user = Api(broker.http_url)
    user.put("/queues/%2F/pause.deep/pause")
    for _ in range(20_000):
        channel.basic_publish("", "pause.deep", b"x")

    def look(node: Any) -> tuple[int, bool]:
        queue = node.engine.vhosts["/"].queues["pause.deep"]
        return queue.ready, queue.congested

    until_s = time.monotonic() + 30
    while broker.call(look)[0] < 20_000 and time.monotonic() < until_s:
        channel.connection.process_data_events(0.05)
    assert broker.call(look) == (20_000, False)


# -- many at once ----------------------------------------------------------------------------------


def bulk(api: Api, action: str, *queues: tuple[str, str]) -> dict[str, Any]:
    named = [{"vhost": unquote(vhost), "name": name} for vhost, name in queues]
    answer: dict[str, Any] = api.post("/warren/queues/actions", {"action": action, "queues": named})
    return answer


def statuses(answer: dict[str, Any]) -> list[int]:
    return [item["status"] for item in answer["items"]]


def test_each_of_many_is_told(api: Api, vhost: str) -> None:
    for name in ("a", "b", "c"):
        api.put(f"/queues/{vhost}/{name}")
        publish(api, vhost, name, payload="x")
    all_three = [(vhost, name) for name in ("a", "b", "c")]
    answer = bulk(api, "pause", *all_three)
    assert (answer["action"], answer["done"], answer["failed"]) == ("pause", 3, 0)
    assert {api.get(f"/queues/{vhost}/{name}")["state"] for name in "abc"} == {"paused"}
    assert statuses(bulk(api, "resume", *all_three)) == [204, 204, 204]
    # One that is not there, in the middle, keeps none of the others from being done.
    answer = bulk(api, "purge", (vhost, "a"), (vhost, "none"), (vhost, "c"), ("nowhere", "q"))
    assert statuses(answer) == [204, 404, 204, 404]
    assert (answer["done"], answer["failed"]) == (2, 2)
    assert answer["items"][1]["name"] == "none"
    assert "no queue 'none'" in answer["items"][1]["reason"]
    assert [api.get(f"/queues/{vhost}/{name}")["messages"] for name in "abc"] == [0, 1, 0]
    # A queue without mirrors cannot be synchronised.
    answer = bulk(api, "sync", (vhost, "a"))
    assert (statuses(answer), answer["items"][0]["reason"]) == ([400], "not_mirrored")
    assert statuses(bulk(api, "delete", *all_three, (vhost, "a"))) == [204, 204, 204]
    assert api.get(f"/queues/{vhost}") == []


def test_each_of_many_is_checked_for_itself(api: Api, vhost: str) -> None:
    for name in ("own.q", "other.q"):
        api.put(f"/queues/{vhost}/{name}")
        publish(api, vhost, name, payload="x")
    user = make_user(api, vhost, "bulk-user", "management", "^own", "^own")
    queues = ((vhost, "other.q"), (vhost, "own.q"), ("%2F", "somewhere"))
    for action in ("purge", "pause", "resume", "delete"):
        answer = bulk(user, action, *queues)
        assert statuses(answer) == [401, 204, 401], action
        assert "other.q" in answer["items"][0]["reason"]
    # Synchronising is for policymakers, as it is for one queue.
    assert statuses(bulk(user, "sync", *queues)) == [401, 401, 401]
    (left,) = api.get(f"/queues/{vhost}")
    assert (left["name"], left["messages"], left["state"]) == ("other.q", 1, "running")


def test_requests_that_make_no_sense(api: Api) -> None:
    for body in (
        {"action": "explode", "queues": []},
        {"queues": []},
        {"action": "purge"},
        {"action": "purge", "queues": ["q"]},
        {"action": "purge", "queues": [{"name": "q"}]},
        {"action": "purge", "queues": [{"vhost": "/", "name": str(n)} for n in range(10_001)]},
    ):
        assert api.refusal("POST", "/warren/queues/actions", body)[0] == 400
    assert bulk(api, "purge") == {"action": "purge", "done": 0, "failed": 0, "items": []}
