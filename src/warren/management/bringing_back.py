"""Messages that were put aside go back to their queue, with the header `x-salvaged`.

By an operator's word, or by themselves: what a master has confirmed before its mirrors had it, as
`ha-replication: async` allows, is published again by whoever has it on its disk.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from warren.engine.opening import until_open
from warren.engine.publish import offer
from warren.engine.salvaging import marked, message_of
from warren.management.context import ended
from warren.management.errors import ApiError, not_found
from warren.management.peers import ACT_S, PeerSilent, Question
from warren.telemetry.log import logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warren.engine.amqp_queue import AmqpQueue
    from warren.management.context import Context
    from warren.model.message import Message
    from warren.store.salvage import SalvageDirectory

#: Messages brought back in one go, and their bytes: a question between nodes is not long.
AT_A_TIME = 200
BYTES_AT_A_TIME = 512 * 1024
#: How long the replicas of a mirrored queue may take, in seconds.
COMMIT_S = 30.0
#: What cannot be brought back now is tried again after so many seconds.
AGAIN_S = 2.0


async def read_messages(
    salvage: SalvageDirectory, piece: str, first: int, count: int
) -> list[Message]:
    """Some messages of a piece. Raises 500."""
    try:
        lines = await asyncio.to_thread(salvage.read_lines, piece, first, count)
        return [message_of(line) for line in lines]
    except (OSError, ValueError) as error:
        raise ApiError(500, "unreadable", f"{piece} cannot be read: {error}") from error


async def bring_piece_back(
    context: Context, salvage: SalvageDirectory, piece: str, vhost: str, name: str
) -> int:
    """Publish all messages of a piece to a queue, and throw the piece away; how many they were.

    Raises ApiError: then the queue may have some of them, and the piece is still there.
    """
    done = 0
    while batch := _batch(await read_messages(salvage, piece, done, AT_A_TIME)):
        await _bring(context, vhost, name, [marked(message, piece) for message in batch])
        done += len(batch)
    await asyncio.to_thread(salvage.drop, piece)
    context.engine.emit("queue.republished", vhost=vhost, name=name, messages=done, file=piece)
    return done


def _batch(messages: list[Message]) -> list[Message]:
    """As many as fit one go; at least one."""
    size = 0
    for at, message in enumerate(messages):
        size += message.header_len + message.body_len
        if at and size > BYTES_AT_A_TIME:
            return messages[:at]
    return messages


async def _bring(context: Context, vhost: str, name: str, messages: list[Message]) -> None:
    """To the queue's home. Raises 404, 503: then it may have some of them."""
    queue = context.vhost(vhost).queues.get(name)
    if queue is None:
        raise not_found(f"no queue '{name}' in vhost '{vhost}': say which one, with --queue")
    if not queue.is_remote:
        await give(context, queue, messages)
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


async def give(context: Context, queue: AmqpQueue, messages: Sequence[Message]) -> None:
    """Returns when the queue has them for good, on all its replicas. Raises 503."""

    def offer_all() -> int:
        now_ms = context.engine.clock.now_ms()
        for message in messages:
            if offer(context.engine, [queue], message, now_ms):
                raise ApiError(
                    503, "unavailable", f"queue '{queue.name}' is full, and refuses messages"
                )
        return queue.operations

    mark = context.act(offer_all)
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


class SalvageReturns:
    """Pieces that go back by themselves: one after the other, until their queue has them."""

    def __init__(self, context: Context, salvage: SalvageDirectory) -> None:
        self._context = context
        self._salvage = salvage
        self._waiting: asyncio.Queue[str] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._log = logger("queue")

    def start(self) -> None:
        """What was left by an earlier life of the node comes first."""
        for note in self._salvage.notes():
            if note.get("returns"):
                self._waiting.put_nowait(note["file"])
        self._task = asyncio.get_running_loop().create_task(self._run())

    def put(self, piece: str) -> None:
        """Bring this one back, too."""
        self._waiting.put_nowait(piece)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            piece = await self._waiting.get()
            while not await self._is_over(piece):
                await asyncio.sleep(AGAIN_S)

    async def _is_over(self, piece: str) -> bool:
        """Whether it need not be tried again: it is back, or an operator was faster."""
        note = await asyncio.to_thread(self._salvage.find, piece)
        if note is None:
            return True
        vhost, name = note["vhost"], note["queue"]
        try:
            count = await bring_piece_back(self._context, self._salvage, piece, vhost, name)
        except (ApiError, OSError) as error:
            if _is_gone(self._context, vhost, name):
                self._log.warning("%s stays: there is no queue '%s' any more", piece, name)
                return True
            self._log.info("%s is not back yet: %s", piece, error)
            return False
        self._log.info("%d messages of %s are back in queue '%s'", count, piece, name)
        return True


def _is_gone(context: Context, vhost: str, name: str) -> bool:
    found = context.engine.vhosts.get(vhost)
    return found is None or name not in found.queues
