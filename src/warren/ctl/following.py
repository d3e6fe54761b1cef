"""Following a queue: the node keeps what comes until it was shown here, whoever takes it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from warren.ctl.client import Answer, granted
from warren.ctl.command import Run, q

#: The node holds a question for so long while nothing comes.
WAIT_MS = 1000
#: A queue whose master moves is asked for again after this time, for so long.
RETRY_S, RETRIES_S = 0.2, 30.0
#: How often a queue is looked at that cannot be followed.
LOOK_AGAIN_S = 0.25
MOVED, GONE, UNFOLLOWED = 503, 404, 412


def follow_queue(
    run: Run, count: int, match: dict[str, str], until_s: float | None
) -> Iterator[dict[str, Any]]:
    """Answers with messages, until a moment. Raises CtlError."""
    queue = f"/queues/{run.vhost_path}/{q(run.word(0))}"
    place = f"{queue}/tail"
    name = os.urandom(4).hex()
    body: dict[str, Any] = {"name": name, "count": count, "match": match, "encoding": "auto"}
    answer = _ask(run, place, body)
    if answer.status == UNFOLLOWED:
        # With priorities messages have no order to follow.
        yield from _look_again(run, place, count, match, until_s)
        return
    try:
        while True:
            shown = granted(answer)
            yield shown
            left_ms = _left_ms(until_s)
            if left_ms < 0:
                return
            body |= {"since": shown["cursor"], "count": 0, "wait_ms": left_ms}
            answer = _ask(run, place, body)
            if answer.status == GONE:
                # It slept for so long that the node has given it up, or the queue is another one.
                run.banner("(the node knows this follower no more: it begins anew)")
                del body["since"]
                answer = _ask(run, place, body)
    finally:
        run.client.call("DELETE", f"{queue}/cursors/tail.{name}")


def _left_ms(until_s: float | None) -> int:
    """How long the next question may take; less than nothing when it is over."""
    if until_s is None:
        return WAIT_MS
    return min(WAIT_MS, int((until_s - time.monotonic()) * 1000))


def _ask(run: Run, place: str, body: dict[str, Any]) -> Answer:
    """A question that is asked again while the queue's master is on its way to another node."""
    deadline_s = time.monotonic() + RETRIES_S
    while True:
        answer = run.client.call("POST", place, body)
        if answer.status != MOVED or time.monotonic() >= deadline_s:
            return answer
        time.sleep(RETRY_S)


def _look_again(
    run: Run, place: str, count: int, match: dict[str, str], until_s: float | None
) -> Iterator[dict[str, Any]]:
    """By looking now and then: what comes and leaves in between is counted, not shown."""
    query: dict[str, str] = {"encoding": "auto", "count": str(count)}
    if match:
        query["match"] = json.dumps(match)
    while True:
        shown = granted(run.client.call("GET", f"{place}?{urlencode(query)}"))
        yield shown
        if _left_ms(until_s) <= 0:
            return
        query.pop("count", None)
        query["since"] = shown["cursor"]
        time.sleep(LOOK_AGAIN_S)
