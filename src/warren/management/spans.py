"""The histories of counters that a request asks for."""

from __future__ import annotations

from warren.management.call import Call
from warren.management.errors import bad_request
from warren.management.samples import Span
from warren.management.show_queues import Spans

SAMPLES_MAX = 500


def spans_of(call: Call) -> Spans:
    """The histories that the query asks for. Raises 400."""

    def span(name: str) -> Span | None:
        age, step = call.query.get(f"{name}_age"), call.query.get(f"{name}_incr")
        if age is None or step is None:
            return None
        if not (age.isdigit() and step.isdigit() and int(step) > 0):
            raise bad_request(f"{name}_age and {name}_incr must be positive numbers")
        if int(age) // int(step) > SAMPLES_MAX:
            raise bad_request("Too many samples requested")
        return Span(int(age) * 1000, int(step) * 1000)

    return Spans(span("lengths"), span("msg_rates"), span("data_rates"), span("node_stats"))
