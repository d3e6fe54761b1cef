"""The trace that a request belongs to, handed on to the messages that come of it.

Messages carry their trace in their headers (`traceparent`, `tracestate`), which the broker leaves
as they are on all ways: queues, dead letters, other nodes, shovels. What comes over HTTP has it in
the request's headers instead; where OpenTelemetry is installed (the extra `otel`), its propagators
read it there and write it to the message. Where a provider of spans is set up as well, a publish
and a get over HTTP are spans of their own. Messages over AMQP make none: their way is compiled, and
their clients make the spans.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

#: Who makes the spans.
SCOPE = "warren"


@functools.cache
def _propagate() -> Any:
    """OpenTelemetry's part for it; None where it is not installed."""
    try:
        from opentelemetry import propagate
    except ImportError:
        return None
    return propagate


def is_traced() -> bool:
    """Whether there is anything to be handed on."""
    return _propagate() is not None


def _attributes(operation: str, destination: str) -> dict[str, str]:
    """As OpenTelemetry's conventions for messaging have them."""
    return {
        "messaging.system": "rabbitmq",
        "messaging.operation.type": operation,
        "messaging.destination.name": destination,
    }


@contextlib.contextmanager
def publish_span(
    exchange: str, key: str, request: Mapping[str, str], message: Mapping[str, Any]
) -> Iterator[dict[str, str]]:
    """A publish over HTTP: what the message gets of its trace; nothing without the extra.

    `request` and `message` are headers. A message that names its trace itself belongs to that one.
    """
    propagate = _propagate()
    if propagate is None:
        yield {}
        return
    from opentelemetry import trace

    own = {name: value for name, value in message.items() if isinstance(value, str)}
    is_own = "traceparent" in own
    with trace.get_tracer(SCOPE).start_as_current_span(
        f"publish {exchange or key}",
        context=propagate.extract(own if is_own else request),
        kind=trace.SpanKind.PRODUCER,
        attributes={
            **_attributes("publish", exchange),
            "messaging.rabbitmq.destination.routing_key": key,
        },
    ):
        found: dict[str, str] = {}
        if not is_own:
            propagate.inject(found)
        yield found


def note_get(queue: str, request: Mapping[str, str], messages: Iterable[Mapping[str, Any]]) -> None:
    """A get over HTTP: a span with a link to the trace of each message. `messages` are headers."""
    propagate = _propagate()
    if propagate is None:
        return
    from opentelemetry import trace

    links = []
    for headers in messages:
        own = {name: value for name, value in headers.items() if isinstance(value, str)}
        found = trace.get_current_span(propagate.extract(own)).get_span_context()
        if found.is_valid:
            links.append(trace.Link(found))
    trace.get_tracer(SCOPE).start_span(
        f"receive {queue}",
        context=propagate.extract(request),
        kind=trace.SpanKind.CONSUMER,
        attributes=_attributes("receive", queue),
        links=links,
    ).end()
