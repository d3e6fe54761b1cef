"""Lists: filtered by name, sorted, cut into pages and columns, and sent in slices.

A list may hold ten thousand objects. Each is shown, encoded and let go by itself, so that neither
the loop nor the memory is taken up by all of them at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from aiohttp import web

from warren.management.call import Call
from warren.management.encode import to_json
from warren.management.errors import ApiError, bad_request
from warren.management.pace import Pace

PAGE_SIZE, PAGE_SIZE_MAX = 100, 500

Item = TypeVar("Item")
Shown = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ListQuery:
    """What the query string asks of a list."""

    page: int | None = None
    page_size: int = PAGE_SIZE
    name: re.Pattern[str] | None = None
    sort: tuple[str, ...] = ()
    reverse: bool = False
    columns: tuple[tuple[str, ...], ...] = ()

    @property
    def needs_all(self) -> bool:
        """Whether every object has to be looked at before the first can be sent."""
        return bool(self.sort)


def parse_query(query: Mapping[str, str]) -> ListQuery:
    """Raises 400 for what makes no sense."""
    page: int | None = None
    if "page" in query or query.get("pagination") == "true":
        page = _number(query, "page", 1)
    if query.get("pagination") == "false":
        page = None
    size = _number(query, "page_size", PAGE_SIZE)
    if size > PAGE_SIZE_MAX:
        raise bad_request(f"Invalid page size, page_size must be at most {PAGE_SIZE_MAX}")
    columns = tuple(
        tuple(column.split(".")) for column in query.get("columns", "").split(",") if column
    )
    sort = query.get("sort", "")
    return ListQuery(
        page,
        size,
        _pattern(query),
        tuple(sort.split(".")) if sort else (),
        query.get("sort_reverse") == "true",
        columns,
    )


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise bad_request(f"Invalid {name}, {name}: {text}")
    return int(text)


def _pattern(query: Mapping[str, str]) -> re.Pattern[str] | None:
    name = query.get("name", "")
    if not name:
        return None
    if query.get("use_regex", "false").lower() != "true":
        return re.compile(re.escape(name), re.IGNORECASE)
    try:
        return re.compile(name)
    except (re.error, OverflowError, RecursionError) as error:
        raise bad_request(f"Invalid regular expression '{name}': {error}") from error


def pick(shown: Shown, columns: Sequence[Sequence[str]]) -> Shown:
    """Only these columns of an object; dots lead into the objects inside."""
    if not columns:
        return shown
    picked: Shown = {}
    for column in columns:
        value: Any = shown
        for step in column:
            value = value.get(step) if isinstance(value, dict) else None
        if value is None:
            continue
        place = picked
        for step in column[:-1]:
            place = place.setdefault(step, {})
        place[column[-1]] = value
    return picked


def sort_key(shown: Shown, path: Sequence[str]) -> tuple[int, Any]:
    """A key that puts unlike values in some order: nothing, numbers, texts."""
    value: Any = shown
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    if value is None:
        return 0, 0
    if isinstance(value, bool | int | float):
        return 1, value
    return 2, value if isinstance(value, str) else str(value)


def _cut(found: list[Item], query: ListQuery) -> list[Item]:
    """The page that was asked for. Raises 400 when there is none such."""
    if query.page is None:
        return found
    first = (query.page - 1) * query.page_size
    if first and first >= len(found):
        raise ApiError(
            400,
            "page_out_of_range",
            f"Page out of range, page: {query.page} page size: {query.page_size}, len {len(found)}",
        )
    return found[first : first + query.page_size]


async def answer_list(
    call: Call,
    items: Sequence[Item],
    show: Callable[[Item], Shown],
    name_of: Callable[[Item], str] | None = None,
) -> web.StreamResponse:
    """Show the items, which come in their natural order, as the query asks."""
    query = parse_query(call.query)
    pace = Pace()
    found = list(items)
    if query.name is not None and name_of is not None:
        pattern = query.name
        found = [item for item in found if pattern.search(name_of(item))]
    filtered = len(found)
    if query.needs_all:
        encoded = await _sorted_page(found, show, query, pace)
    else:
        if query.reverse:
            found.reverse()
        encoded = []
        for item in _cut(found, query):
            encoded.append(to_json(pick(show(item), query.columns)))
            await pace.rest()
    body = b"[" + b",".join(encoded) + b"]"
    if query.page is not None:
        body = _page_body(query, len(items), filtered, len(encoded), body)
    return await send_json(call.request, body)


async def _sorted_page(
    found: list[Item], show: Callable[[Item], Shown], query: ListQuery, pace: Pace
) -> list[bytes]:
    rows: list[tuple[tuple[int, Any], int, bytes]] = []
    for number, item in enumerate(found):
        shown = show(item)
        # The number keeps equals in their natural order and bytes from being compared.
        rows.append((sort_key(shown, query.sort), number, to_json(pick(shown, query.columns))))
        await pace.rest()
    rows.sort(key=lambda row: row[0], reverse=query.reverse)
    return [encoded for _, _, encoded in _cut(rows, query)]


def _page_body(query: ListQuery, total: int, filtered: int, count: int, items: bytes) -> bytes:
    assert query.page is not None
    head = to_json(
        {
            "filtered_count": filtered,
            "item_count": count,
            "page": query.page,
            "page_count": max(1, -(-filtered // query.page_size)),
            "page_size": query.page_size,
            "total_count": total,
        }
    )
    return head[:-1] + b',"items":' + items + b"}"


#: Shorter bodies are sent in one piece, uncompressed.
SMALL_BYTES = 1024
#: Larger ones in such pieces, so that no write keeps the loop for long.
PIECE_BYTES = 256 * 1024

HEADERS = {
    "Content-Type": "application/json",
    "Cache-Control": "no-cache",
    "Vary": "accept, accept-encoding, origin",
}


async def send_json(request: web.Request, body: bytes) -> web.StreamResponse:
    """Answer with JSON that is encoded already; long bodies are compressed off the loop."""
    if len(body) < SMALL_BYTES or request.method == "HEAD":
        return web.Response(body=body, headers=HEADERS)
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        body = await _gzip(body)
        headers = {**HEADERS, "Content-Encoding": "gzip"}
    else:
        headers = HEADERS
    if len(body) <= PIECE_BYTES:
        return web.Response(body=body, headers=headers)
    response = web.StreamResponse(headers=headers)
    response.content_length = len(body)
    await response.prepare(request)
    view = memoryview(body)
    for at in range(0, len(view), PIECE_BYTES):
        await response.write(view[at : at + PIECE_BYTES])
    await response.write_eof()
    return response


async def _gzip(body: bytes) -> bytes:
    import asyncio
    import gzip

    loop = asyncio.get_running_loop()
    # The compressor lets go of the interpreter's lock, so the loop goes on.
    return await loop.run_in_executor(None, gzip.compress, body, 1)
