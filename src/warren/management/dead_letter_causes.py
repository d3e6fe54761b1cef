"""Dead letters of a queue by their cause: why and in which queue they first died, and whence.

The whole queue is gone through, in slices, so that no client waits for it. An answer covers as much
as a few seconds are enough for; whoever wants the rest asks again from its `last_slot` on.
"""

from __future__ import annotations

import datetime
import time
from typing import TYPE_CHECKING, Any

from warren.management.across import at_home
from warren.management.call import Answer, Call, Route, field_of
from warren.management.errors import bad_request
from warren.management.matching import first_death, headers_of
from warren.management.messages import show_message
from warren.management.pace import Pace
from warren.queue.looking import peek

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.model.message import Message

#: How long one answer may take: other nodes wait for it, too.
ANSWER_S = 5.0
#: Messages looked at between two rests; some may be large, and on the disk.
AT_A_TIME = 8
#: Causes that are told apart. There are a few, unless somebody makes up names of queues.
CAUSES_MAX = 200
#: What is shown of an example's payload.
EXAMPLE_BYTES = 2000
MESSAGES_MAX = 2**62

Key = tuple[str | None, str | None, str | None]


async def _grouped(call: Call) -> dict[str, Any]:
    body, queue = await call.body(), call.queue()
    engine, actor = call.context.engine, call.actor
    engine.check_access(actor, "queue", queue.name, "read")
    engine.check_owner(actor, queue)
    after, most = field_of(body, "after", int, None), field_of(body, "count", int, MESSAGES_MAX)
    if not 0 <= (after or 0) < MESSAGES_MAX or most < 0:
        raise bad_request("count and after must be at least 0")
    until_s = time.monotonic() + ANSWER_S
    causes: dict[Key, dict[str, Any]] = {}
    pace, seen, untold, is_over = Pace(), 0, 0, False
    while seen < most and time.monotonic() < until_s:
        rows = peek(queue, min(AT_A_TIME, most - seen), after=after)
        is_over = not rows
        if is_over:
            break
        for slot, _, redelivered, _, _, message in rows:
            seen, after = seen + 1, slot
            untold += not _count(causes, message, redelivered)
        await pace.rest()
    found = sorted(causes.values(), key=lambda cause: (-cause["messages"], str(cause["queue"])))
    return {
        "causes": found,
        "looked_at": seen,
        "untold": untold,
        "is_over": is_over,
        "last_slot": None if after is None else str(after),
        "messages_ready": queue.ready,
    }


def _count(causes: dict[Key, dict[str, Any]], message: Message, redelivered: bool) -> bool:
    """Whether there was room for it."""
    headers = headers_of(message)
    death, died_ms = first_death(headers), _last_death_ms(headers)
    key = death.get("reason"), death.get("queue"), death.get("exchange")
    cause = causes.get(key)
    if cause is None:
        if len(causes) >= CAUSES_MAX:
            return False
        cause = causes[key] = {
            "reason": key[0],
            "queue": key[1],
            "exchange": key[2],
            "messages": 0,
            "bytes": 0,
            "oldest": None,
            "newest": None,
            "example": show_message(message, redelivered, 0, "auto", EXAMPLE_BYTES),
        }
    cause["messages"] += 1
    cause["bytes"] += message.body_len
    if died_ms is not None:
        cause["oldest"] = min(cause["oldest"] or died_ms, died_ms)
        cause["newest"] = max(cause["newest"] or died_ms, died_ms)
    return True


def _last_death_ms(headers: Mapping[str, Any]) -> int | None:
    deaths = headers.get("x-death")
    if not isinstance(deaths, list) or not deaths or not isinstance(deaths[0], dict):
        return None
    died = deaths[0].get("time")
    seconds = died.timestamp() if isinstance(died, datetime.datetime) else died
    return int(seconds * 1000) if isinstance(seconds, int | float) else None


@at_home
async def group_by_cause(call: Call) -> Answer:
    """Dead letters by why, where and whence they died; from behind the slot `after` on."""
    return await _grouped(call)


ROUTES = (Route("POST", "/queues/{vhost}/{name}/causes", "vhost", group_by_cause),)
