"""The trace that a request belongs to, handed on to the messages that come of it.

Messages carry their trace in their headers (`traceparent`, `tracestate`), which the broker leaves
as they are on all ways: queues, dead letters, other nodes, shovels. What comes over HTTP has it in
the request's headers instead; where OpenTelemetry is installed (the extra `otel`), its propagators
read it there and write it to the message.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any


@functools.cache
def _propagate() -> Any:
    """OpenTelemetry's part for it; None where it is not installed."""
    try:
        from opentelemetry import propagate
    except ImportError:
        return None
    return propagate


def trace_headers(carrier: Mapping[str, str]) -> dict[str, str]:
    """What a message gets of the trace in the headers of a request; nothing without the extra."""
    propagate = _propagate()
    if propagate is None:
        return {}
    found: dict[str, str] = {}
    propagate.inject(found, context=propagate.extract(carrier))
    return found
