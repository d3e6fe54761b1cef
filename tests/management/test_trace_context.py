"""The trace of a message goes with it, whatever way it takes."""

from __future__ import annotations

import pytest

from management.api import Api
from warren.telemetry import trace_context

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def message(key: str, headers: dict[str, object]) -> dict[str, object]:
    return {
        "properties": {"headers": headers},
        "routing_key": key,
        "payload": "x",
        "payload_encoding": "string",
    }


def headers_of(api: Api, vhost: str, queue: str) -> dict[str, object]:
    (row,) = api.post(f"/queues/{vhost}/{queue}/peek", {"count": 1})
    found: dict[str, object] = dict(row["properties"]).get("headers", {})  # type: ignore[arg-type]
    return found


def test_through_queues_and_dead_letters(api: Api, vhost: str) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    api.put(f"/queues/{vhost}/q", {"arguments": arguments})
    api.put(f"/queues/{vhost}/dead")
    given = {"traceparent": PARENT, "tracestate": "a=1"}
    api.post(f"/exchanges/{vhost}/amq.default/publish", message("q", dict(given)))
    assert headers_of(api, vhost, "q") == given
    taken = {"count": 1, "ackmode": "reject_requeue_false", "encoding": "auto"}
    api.post(f"/queues/{vhost}/q/get", taken)
    assert given.items() <= headers_of(api, vhost, "dead").items()


def test_over_http_without_the_extra(api: Api, vhost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_context, "_propagate", lambda: None)
    assert trace_context.trace_headers({"traceparent": PARENT}) == {}


def test_over_http_with_the_extra(api: Api, vhost: str) -> None:
    pytest.importorskip("opentelemetry.propagate")
    api.put(f"/queues/{vhost}/q")
    place = f"/api/exchanges/{vhost}/amq.default/publish"
    answer = api("POST", place, message("q", {"own": 1}), {"traceparent": PARENT})
    assert answer.status == 200
    assert headers_of(api, vhost, "q") == {"own": 1, "traceparent": PARENT}
    taken = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    api.post(f"/queues/{vhost}/q/get", taken)
    # A message that names its trace itself belongs to that one.
    other = PARENT.replace("0af7", "1af7")
    api("POST", place, message("q", {"traceparent": other}), {"traceparent": PARENT})
    assert headers_of(api, vhost, "q")["traceparent"] == other
