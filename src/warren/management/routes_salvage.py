"""What nodes have put aside: pieces of logs that could not be read, and messages that were cut off.

Messages can be looked at, and be brought back: they are published to their queue again, with the
header `x-salvaged`, and are thrown away here when that queue has them for good.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from warren.engine.opening import until_open
from warren.engine.publish import offer
from warren.engine.salvaging import marked, message_of
from warren.management.across import ask_all, at_home, proxied, question
from warren.management.call import Answer, Call, Reply, Route, field_of
from warren.management.context import ended
from warren.management.errors import ApiError, bad_request, not_found
from warren.management.messages import show_message
from warren.management.peers import ACT_S, PeerSilent, Question

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warren.engine.amqp_queue import AmqpQueue
    from warren.model.message import Message
    from warren.store.salvage import SalvageDirectory

#: Messages shown in one answer at most.
SHOW_MAX = 1000
#: Messages brought back in one go, and their bytes: a question between nodes is not long.
AT_A_TIME = 200
BYTES_AT_A_TIME = 512 * 1024
#: How long the replicas of a mirrored queue may take, in seconds.
COMMIT_S = 30.0


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
    for message in await _read(salvage, note["file"], first, count):
        left = max(0, total - first - len(shown) - 1)
        shown.append(show_message(message, True, left, encoding, None))
    return shown


async def _read(salvage: SalvageDirectory, piece: str, first: int, count: int) -> list[Message]:
    try:
        lines = await asyncio.to_thread(salvage.read_lines, piece, first, count)
        return [message_of(line) for line in lines]
    except (OSError, ValueError) as error:
        raise ApiError(500, "unreadable", f"{piece} cannot be read: {error}") from error


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
    total = await _messages(salvage, note)
    body = await call.body()
    vhost = field_of(body, "vhost", str, note["vhost"])
    name = field_of(body, "queue", str, note["queue"])
    piece, done = note["file"], 0
    while done < total:
        batch = _batch(await _read(salvage, piece, done, AT_A_TIME))
        if not batch:
            break
        await _bring(call, vhost, name, [marked(message, piece) for message in batch])
        done += len(batch)
    await asyncio.to_thread(salvage.drop, piece)
    call.context.engine.emit("queue.republished", vhost=vhost, name=name, messages=done, file=piece)
    return Reply(200, {"republished": done, "vhost": vhost, "queue": name})


def _batch(messages: list[Message]) -> list[Message]:
    """As many as fit one go; at least one."""
    size = 0
    for at, message in enumerate(messages):
        size += message.header_len + message.body_len
        if at and size > BYTES_AT_A_TIME:
            return messages[:at]
    return messages


async def _bring(call: Call, vhost: str, name: str, messages: list[Message]) -> None:
    """To the queue's home. Raises 404, 503: then it may have some of them."""
    context = call.context
    queue = context.vhost(vhost).queues.get(name)
    if queue is None:
        raise not_found(f"no queue '{name}' in vhost '{vhost}': say which one, with --queue")
    if not queue.is_remote:
        await _give(call, queue, messages)
        return
    rows = [(it.exchange, it.routing_key, it.header, it.body) for it in messages]
    path = f"/queues/{quote(vhost, safe='')}/{quote(name, safe='')}/bring-back"
    what = Question("POST", path, "", None, msgspec.msgpack.encode(rows))
    assert context.peers is not None
    try:
        answer = await context.peers.ask(queue.home, what, ACT_S)
    except PeerSilent as error:
        raise ApiError(503, "unavailable", str(error)) from error
    if answer.status >= 400:
        raise ApiError(answer.status, "refused", answer.body.decode(errors="replace"))


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
    await _give(call, call.queue(), messages)
    return None


async def _give(call: Call, queue: AmqpQueue, messages: Sequence[Message]) -> None:
    """Returns when the queue has them for good, on all its replicas. Raises 503."""
    context = call.context

    def give() -> int:
        now_ms = context.engine.clock.now_ms()
        for message in messages:
            if offer(context.engine, [queue], message, now_ms):
                raise ApiError(
                    503, "unavailable", f"queue '{queue.name}' is full, and refuses messages"
                )
        return queue.operations

    mark = context.act(give)
    await context.written()
    if queue.mirror is None:
        return
    errand = until_open(queue, mark).errand
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(COMMIT_S):
            if errand is not None:
                await ended(errand)
            # A master that stands down wakes who waits, too.
            if not queue.is_remote and queue.mirror is not None and queue.mirror.acts:
                return
    raise ApiError(
        503,
        "unavailable",
        f"not all replicas of queue '{queue.name}' have them: some may come twice if you try again",
    )


ROUTES = (
    Route("GET", "/warren/salvage", "administrator", list_salvage),
    Route("GET", "/warren/salvage/{node}/{file}", "administrator", show_salvage),
    Route("DELETE", "/warren/salvage/{node}/{file}", "administrator", drop_salvage),
    Route("POST", "/warren/salvage/{node}/{file}/republish", "administrator", republish),
)
#: For other nodes of the cluster only.
PEER_ROUTES = (Route("POST", "/queues/{vhost}/{name}/bring-back", "administrator", bring_back),)
