"""Lists: filtered by name, sorted, cut into pages and columns, and sent in slices.

A list may hold ten thousand objects. Each is shown, encoded and let go by itself, so that neither
the loop nor the memory is taken up by all of them at once.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from aiohttp import web

from warren.management.call import Call
from warren.management.encode import to_json
from warren.management.errors import ApiError, bad_request
from warren.management.pace import LIST_SLICE_S, Pace
from warren.management.patterns import is_cheap

if TYPE_CHECKING:
    from warren.management.across import Others

PAGE_SIZE, PAGE_SIZE_MAX = 100, 500

Item = TypeVar("Item")
Shown = dict[str, Any]
#: Gets the rows of those items that are on other nodes.
Fetch = Callable[[Iterable[Item]], Awaitable[Mapping[Item, "msgspec.Raw | Shown"]]]
#: Items that rows are fetched for at a time: about as many as nodes answer in one frame.
FETCHED_AT_A_TIME = 1000


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
        pattern = re.compile(name)
    except (re.error, OverflowError, RecursionError) as error:
        raise bad_request(f"Invalid regular expression '{name}': {error}") from error
    if not is_cheap(name):
        raise bad_request(f"Regular expression '{name}' could take for ever; use a simpler one")
    return pattern


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
    others: Others | None = None,
    fetch: Fetch[Item] | None = None,
) -> web.StreamResponse:
    """Show the items, which come in their natural order, as the query asks.

    `others` are rows of other nodes, which follow. `fetch` gets the rows of those items that are on
    other nodes, for many items at a time.
    """
    query = parse_query(call.query)
    found: list[Any] = list(items)
    if query.name is not None and name_of is not None:
        pattern = query.name
        found = [item for item in found if pattern.search(name_of(item))]
    total = len(items)
    if others is not None:
        found += others.rows
        total += others.total
    filtered = len(found)
    source = _Rows(show, fetch, query.columns)
    rows: list[Any]
    if query.needs_all:
        rows = await _sorted_page(found, source, query, Pace(LIST_SLICE_S))
    else:
        if query.reverse:
            found.reverse()
        rows = _cut(found, query)
    pieces = _each(rows) if query.needs_all else source.encoded(rows)
    head, tail = b"[", b"]"
    if query.page is not None:
        head, tail = _page_head(query, total, filtered, len(rows)) + b"[", b"]}"
    if len(rows) <= SHORT_LIST or call.is_from_peer:
        pace = Pace(LIST_SLICE_S)
        gathered = []
        async for piece in pieces:
            gathered.append(piece)
            await pace.rest()
        return await send_json(call.request, head + b",".join(gathered) + tail)
    return await _send_long(call.request, head, pieces, tail)


async def _each(rows: list[bytes]) -> AsyncIterator[bytes]:
    for row in rows:
        yield row


class _Rows(Generic[Item]):
    """Items as rows: shown here, or as they came from another node."""

    def __init__(
        self,
        show: Callable[[Item], Shown],
        fetch: Fetch[Item] | None,
        columns: Sequence[Sequence[str]],
    ) -> None:
        self._show = show
        self._fetch = fetch
        self._columns = columns

    async def each(self, items: Sequence[Any]) -> AsyncIterator[msgspec.Raw | Shown]:
        """The rows of the items, in their order."""
        for first in range(0, len(items), FETCHED_AT_A_TIME):
            some = items[first : first + FETCHED_AT_A_TIME]
            fetched: Mapping[Any, msgspec.Raw | Shown] = {}
            if self._fetch is not None:
                fetched = await self._fetch(some)
            for item in some:
                if isinstance(item, msgspec.Raw):
                    yield item
                else:
                    row = fetched.get(item) if fetched else None
                    yield self._show(item) if row is None else row

    async def encoded(self, items: Sequence[Any]) -> AsyncIterator[bytes]:
        """The same as JSON, with the columns that are wanted."""
        async for row in self.each(items):
            if isinstance(row, msgspec.Raw):
                # Whoever made it has picked the columns.
                yield bytes(row)
            else:
                yield to_json(pick(row, self._columns))


async def _sorted_page(
    found: list[Any], source: _Rows[Item], query: ListQuery, pace: Pace
) -> list[bytes]:
    rows: list[tuple[tuple[int, Any], int, bytes]] = []
    number = 0
    async for row in source.each(found):
        number += 1
        shown: Shown = msgspec.json.decode(row) if isinstance(row, msgspec.Raw) else row
        # The number keeps equals in their natural order and bytes from being compared.
        rows.append((sort_key(shown, query.sort), number, to_json(pick(shown, query.columns))))
        await pace.rest()
    rows.sort(key=lambda row: row[0], reverse=query.reverse)
    return [encoded for _, _, encoded in _cut(rows, query)]


def _page_head(query: ListQuery, total: int, filtered: int, count: int) -> bytes:
    """A page up to its items."""
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
    return head[:-1] + b',"items":'


#: Shorter bodies are sent in one piece, uncompressed.
SMALL_BYTES = 1024
#: Longer lists are sent while they are made, in such pieces.
SHORT_LIST = 20
PIECE_BYTES = 16 * 1024

HEADERS = {
    "Content-Type": "application/json",
    "Cache-Control": "no-cache",
    "Vary": "accept, accept-encoding, origin",
}


async def send_json(request: web.Request, body: bytes) -> web.StreamResponse:
    """Answer with JSON that is encoded already."""
    response = web.Response(body=body, headers=HEADERS)
    if len(body) >= SMALL_BYTES and request.method != "HEAD":
        _compress(request, response)
    return response


def _compress(request: web.Request, response: web.StreamResponse) -> None:
    """The library compresses all but the smallest pieces off the loop."""
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        response.enable_compression(web.ContentCoding.gzip)


async def _send_long(
    request: web.Request,
    head: bytes,
    rows: AsyncIterator[bytes],
    tail: bytes,
) -> web.StreamResponse:
    """Show row after row, and send what has gathered now and then."""
    response = web.StreamResponse(headers=HEADERS)
    _compress(request, response)
    await response.prepare(request)
    if request.method == "HEAD":
        return response
    pace = Pace(LIST_SLICE_S)
    pieces = [head]
    size = 0
    is_first = True
    async for piece in rows:
        pieces += (piece,) if is_first else (b",", piece)
        is_first = False
        size += len(piece)
        if size >= PIECE_BYTES:
            await response.write(b"".join(pieces))
            pieces, size = [], 0
        await pace.rest()
    pieces.append(tail)
    await response.write(b"".join(pieces))
    await response.write_eof()
    return response
