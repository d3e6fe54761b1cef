"""What nodes have put aside: pieces of logs that could not be read, and messages that were cut off.

Messages can be looked at, and be brought back: they are published to their queue again, with the
header `x-salvaged`, and are thrown away here when that queue has them for good.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from warren.management.across import ask_all, at_home, proxied, question
from warren.management.bringing_back import bring_piece_back, give, read_messages
from warren.management.call import Answer, Call, Reply, Route, field_of
from warren.management.errors import bad_request, not_found
from warren.management.messages import show_message

if TYPE_CHECKING:
    from warren.store.salvage import SalvageDirectory

#: Messages shown in one answer at most.
SHOW_MAX = 1000


async def list_salvage(call: Call) -> Answer:
    """What was put aside on all nodes: what could not be read, and messages that were cut off."""
    salvage = call.context.salvage
    rows = [] if salvage is None else await asyncio.to_thread(salvage.notes)
    folder = "" if salvage is None else salvage.path
    found = [{"node": call.context.node_name, **row, "folder": folder} for row in rows]
    if not call.is_from_peer:
        for answer in (await ask_all(call, question(call, "/warren/salvage", {}))).values():
            found += answer
    return found


def _elsewhere(call: Call) -> str | None:
    """The node in the path, when it is another one. Raises 404."""
    name = call.path["node"]
    if name == call.context.node_name:
        return None
    peers = call.context.peers
    if peers is None or call.is_from_peer or name not in {*peers.running(), *peers.down()}:
        raise not_found()
    return name


async def _piece(call: Call) -> tuple[SalvageDirectory, dict[str, Any]]:
    """The piece in the path. Raises 404."""
    salvage = call.context.salvage
    note = None
    if salvage is not None:
        note = await asyncio.to_thread(salvage.find, call.path["file"])
    if salvage is None or note is None:
        raise not_found("there is no such piece: warrenctl salvage list")
    return salvage, note


async def _messages(salvage: SalvageDirectory, note: dict[str, Any]) -> int:
    """How many messages a piece has. Raises 400 for one that has bytes of a log."""
    count = note.get("messages")
    if not isinstance(count, int):
        raise bad_request(
            f"{note['file']} holds bytes of a log that could not be understood: "
            f"look into it in {salvage.path}"
        )
    return count


async def show_salvage(call: Call) -> Answer:
    """The messages of a piece, from `first` on."""
    other = _elsewhere(call)
    if other is not None:
        return await proxied(call, other)
    salvage, note = await _piece(call)
    total = await _messages(salvage, note)
    first, count = field_of(call.query, "first", int, 0), field_of(call.query, "count", int, 10)
    if first < 0 or not 0 <= count <= SHOW_MAX:
        raise bad_request(f"first must be at least 0, count between 0 and {SHOW_MAX}")
    encoding = call.query.get("encoding", "auto")
    shown: list[dict[str, Any]] = []
    for message in await read_messages(salvage, note["file"], first, count):
        left = max(0, total - first - len(shown) - 1)
        shown.append(show_message(message, True, left, encoding, None))
    return shown


async def drop_salvage(call: Call) -> Answer:
    """Throw a piece away for good."""
    other = _elsewhere(call)
    if other is not None:
        return await proxied(call, other)
    salvage, note = await _piece(call)
    await asyncio.to_thread(salvage.drop, note["file"])
    return None


# -- bringing messages back ------------------------------------------------------------------------


async def republish(call: Call) -> Answer:
    """Publish the messages of a piece to their queue, or to `queue`, and throw the piece away."""
    other = _elsewhere(call)
    if other is not None:
        return await proxied(call, other)
    salvage, note = await _piece(call)
    await _messages(salvage, note)
    body = await call.body()
    vhost = field_of(body, "vhost", str, note["vhost"])
    name = field_of(body, "queue", str, note["queue"])
    done = await bring_piece_back(call.context, salvage, note["file"], vhost, name)
    return Reply(200, {"republished": done, "vhost": vhost, "queue": name})


@at_home
async def bring_back(call: Call) -> Answer:
    """Another node's salvaged messages for a queue of this one; answered when it has them."""
    from warren.model.message import Address
    from warren.wire.content import make_message

    kind = list[tuple[bytes, bytes, bytes, bytes]]
    try:
        rows = msgspec.msgpack.decode(await call.request.read(), type=kind)
        messages = [
            make_message(Address(exchange, key), header, body)
            for exchange, key, header, body in rows
        ]
    except (msgspec.DecodeError, ValueError) as error:
        raise bad_request(f"not messages: {error}") from error
    await give(call.context, call.queue(), messages)
    return None


ROUTES = (
    Route("GET", "/warren/salvage", "administrator", list_salvage),
    Route("GET", "/warren/salvage/{node}/{file}", "administrator", show_salvage),
    Route("DELETE", "/warren/salvage/{node}/{file}", "administrator", drop_salvage),
    Route("POST", "/warren/salvage/{node}/{file}/republish", "administrator", republish),
)
#: For other nodes of the cluster only.
PEER_ROUTES = (Route("POST", "/queues/{vhost}/{name}/bring-back", "administrator", bring_back),)
