"""Answers about the whole cluster: what this node has, and what the others say of theirs.

A node that does not answer in time is left out, or shown as one that does not answer; the request
is answered all the same.
"""

from __future__ import annotations

import asyncio
import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import msgspec
from aiohttp import web

from warren.auth.users import OperatorName
from warren.management.call import Answer, Call, Handler
from warren.management.errors import ApiError
from warren.management.peers import ACT_S, ANSWER_S, PeerAnswer, PeerSilent, Question

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Rows that a node is asked for at a time.
ROWS_AT_A_TIME = 500
#: Says why something is done to a client.
REASON_HEADER = "X-Reason"
_HEADERS = {"Content-Type": "application/json", "Cache-Control": "no-cache"}
#: What of a query this node does itself, after all rows are there.
_OWN_PART = {"page", "page_size", "pagination", "sort", "sort_reverse"}


class Page(msgspec.Struct):
    """A page of another node's rows."""

    items: list[msgspec.Raw]
    page_count: int
    total_count: int


@dataclass(slots=True)
class Others:
    """Rows of other nodes, as they stand in their answers."""

    rows: list[msgspec.Raw] = field(default_factory=list)
    #: How many there are without the filter.
    total: int = 0


_page_decoder = msgspec.json.Decoder(Page)


def question(
    call: Call, path: str | None = None, query: Mapping[str, str] | None = None, body: bytes = b""
) -> Question:
    """The request as it is, or another one of the same caller."""
    name = call.caller.name
    given = dict(call.query if query is None else query)
    reason = call.request.headers.get(REASON_HEADER)
    if path is None and reason:
        # Between nodes requests have no headers.
        given[REASON_HEADER] = reason
    return Question(
        call.request.method if path is None else ("POST" if body else "GET"),
        _api_path(call) if path is None else path,
        urlencode(given),
        None if isinstance(name, OperatorName) else name,
        body,
    )


def _api_path(call: Call) -> str:
    prefix = call.context.settings.management.path_prefix.strip("/")
    base = f"/{prefix}/api" if prefix else "/api"
    return call.request.rel_url.raw_path.removeprefix(base).rstrip("/")


def others(call: Call) -> Sequence[str]:
    """The nodes that are to be asked besides this one."""
    peers = call.context.peers
    return () if peers is None or call.is_from_peer else peers.running()


async def ask(call: Call, node: str, what: Question, timeout_s: float = ANSWER_S) -> PeerAnswer:
    """Raises PeerSilent."""
    peers = call.context.peers
    if peers is None:
        raise PeerSilent(f"node {node} is not known")
    return await peers.ask(node, what, timeout_s)


async def ask_all(call: Call, what: Question) -> dict[str, Any]:
    """By node, what each other node answers, decoded; those that do not are left out."""
    names = others(call)
    answers = await asyncio.gather(
        *(ask(call, name, what) for name in names), return_exceptions=True
    )
    found = {}
    for name, answer in zip(names, answers, strict=True):
        if isinstance(answer, PeerAnswer):
            if answer.status == 200:
                found[name] = msgspec.json.decode(answer.body)
        elif not isinstance(answer, PeerSilent):
            raise answer
    return found


async def proxied(call: Call, node: str) -> web.Response:
    """What another node answers to the same request. Raises 503 when it does not."""
    what = question(call, body=b"")
    is_look = call.request.method in {"GET", "HEAD"}
    if is_look:
        what = msgspec.structs.replace(what, method="GET")
    else:
        what = msgspec.structs.replace(what, body=await call.request.read())
    try:
        answer = await ask(call, node, what, ANSWER_S if is_look else ACT_S)
    except PeerSilent as error:
        raise ApiError(503, "unavailable", str(error)) from error
    headers = _HEADERS if answer.body else {}
    return web.Response(status=answer.status, body=answer.body or None, headers=headers)


def at_home(handler: Handler) -> Handler:
    """Has the node answer that the queue in the path lives on."""

    @functools.wraps(handler)
    async def answer(call: Call) -> Answer:
        queue = call.queue()
        if queue.is_remote and not call.is_from_peer:
            return await proxied(call, queue.home)
        if queue.is_remote:
            raise ApiError(503, "unavailable", f"queue '{queue.name}' is on {queue.home}")
        return await handler(call)

    return answer


# -- lists whose rows are on the nodes they are about ----------------------------------------------


async def rows_of_others(
    call: Call, query: Mapping[str, str] | None = None, only: tuple[int, int] | None = None
) -> Others:
    """The rows of all other nodes for the list that the request asks for.

    `query` asks something else of the same list; `only` a page, and how long it is.
    """
    wanted = wanted_of_others(call.query) if query is None else query
    found = Others()
    asked = (_rows_of(call, name, wanted, only) for name in others(call))
    for rows in await asyncio.gather(*asked):
        found.rows += rows.rows
        found.total += rows.total
    return found


async def _rows_of(
    call: Call, node: str, query: Mapping[str, str], only: tuple[int, int] | None
) -> Others:
    found = Others()
    page, size = only or (1, ROWS_AT_A_TIME)
    while True:
        paged = {**query, "page": str(page), "page_size": str(size)}
        what = question(call, _api_path(call), paged)
        try:
            answer = await ask(call, node, what)
        except PeerSilent:
            return found
        if answer.status != 200:
            # Fewer than a moment ago, or its users are not ours yet.
            return found
        rows = _page_decoder.decode(answer.body)
        found.rows += rows.items
        found.total = rows.total_count
        if only is not None or page >= rows.page_count:
            return found
        page += 1


def wanted_of_others(query: Mapping[str, str]) -> dict[str, str]:
    """The part of a query that is for those who have the rows; the rest is done here."""
    wanted = {name: value for name, value in query.items() if name not in _OWN_PART}
    if wanted.get("columns") and query.get("sort"):
        wanted["columns"] += f",{query['sort']}"
    return wanted
