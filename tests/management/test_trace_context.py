"""The trace of a message goes with it, whatever way it takes."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

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


def take(api: Api, vhost: str) -> int:
    body = {"count": 9, "ackmode": "ack_requeue_false", "encoding": "auto"}
    return len(api.post(f"/queues/{vhost}/q/get", body))


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
    api.put(f"/queues/{vhost}/q")
    place = f"/api/exchanges/{vhost}/amq.default/publish"
    assert api("POST", place, message("q", {}), {"traceparent": PARENT}).status == 200
    assert headers_of(api, vhost, "q") == {}
    assert take(api, vhost) == 1


def test_over_http_with_the_extra(api: Api, vhost: str) -> None:
    api.put(f"/queues/{vhost}/q")
    place = f"/api/exchanges/{vhost}/amq.default/publish"
    answer = api("POST", place, message("q", {"own": 1}), {"traceparent": PARENT})
    assert answer.status == 200
    assert headers_of(api, vhost, "q") == {"own": 1, "traceparent": PARENT}
    assert take(api, vhost) == 1
    # A message that names its trace itself belongs to that one.
    other = PARENT.replace("0af7", "1af7")
    api("POST", place, message("q", {"traceparent": other}), {"traceparent": PARENT})
    assert headers_of(api, vhost, "q")["traceparent"] == other


class Spans:
    """A provider of spans that keeps them, for one test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        # The library's own setter works once in a process.
        monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
        self.finished = exporter.get_finished_spans


def test_spans_where_a_provider_is_set_up(
    api: Api, vhost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = Spans(monkeypatch)
    api.put(f"/queues/{vhost}/q")
    place = f"/api/exchanges/{vhost}/amq.default/publish"
    assert api("POST", place, message("q", {}), {"traceparent": PARENT}).status == 200
    (published,) = spans.finished()
    assert (published.name, published.kind) == ("publish q", trace.SpanKind.PRODUCER)
    assert published.parent is not None
    assert format(published.parent.span_id, "016x") == PARENT.split("-")[2]
    # The message belongs to the publish, which belongs to the request.
    carried = str(headers_of(api, vhost, "q")["traceparent"]).split("-")
    assert carried[1] == PARENT.split("-")[1]
    assert carried[2] == format(published.get_span_context().span_id, "016x")
    assert take(api, vhost) == 1
    received = spans.finished()[-1]
    assert (received.name, received.kind) == ("receive q", trace.SpanKind.CONSUMER)
    assert [link.context.span_id for link in received.links] == [
        published.get_span_context().span_id
    ]
    assert received.attributes is not None
    assert received.attributes["messaging.destination.name"] == "q"


def test_a_refused_publish_is_a_span_that_failed(
    api: Api, vhost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = Spans(monkeypatch)
    bad = {**message("q", {}), "properties": {"expiration": "soon"}}
    assert api("POST", f"/api/exchanges/{vhost}/amq.default/publish", bad).status == 400
    (failed,) = spans.finished()
    assert failed.status.status_code is trace.StatusCode.ERROR
