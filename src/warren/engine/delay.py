"""The x-delayed-message exchange: messages wait for their time, then are routed.

What waits belongs to its exchange: it goes when the exchange or the virtual host is deleted. It
stands in a queue that no client sees, so that persistent messages of a durable exchange are in the
log while they wait, and come back with their time after a restart.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from warren.engine.publish import all_keys, find_queues, offer
from warren.model.message import MARK_HEADERS, Message
from warren.queue.queue import Queue
from warren.wire.content import make_message
from warren.wire.properties import replace_properties
from warren.wire.tables import decode_table, encode_value, join_entries, split_entries

if TYPE_CHECKING:
    from warren.base.timers import Timer
    from warren.engine.engine import Engine
    from warren.engine.vhost import VHost
    from warren.routing.exchange import Exchange

#: The clock counts whole milliseconds, so a deadline may ring this much early; a delay must not.
CLOCK_STEP_MS = 1


class WaitingRoom(Queue):
    """The messages that wait in one exchange."""

    __slots__ = ("exchange", "timers", "vhost")

    def __init__(self, engine: Engine, vhost: VHost, exchange: Exchange) -> None:
        super().__init__(exchange.name, engine.effects)
        self.vhost = vhost
        self.exchange = exchange
        self.timers: dict[int, Timer] = {}


def waiting_room(engine: Engine, vhost: VHost, exchange: Exchange) -> WaitingRoom:
    """The room of an exchange; a new one is in memory only until somebody says otherwise."""
    room = engine.delayed.get(exchange)
    if room is None:
        room = engine.delayed[exchange] = WaitingRoom(engine, vhost, exchange)
        if engine.journal is not None:
            room.attach(engine.journal)
    return room


def delay(
    engine: Engine, vhost: VHost, exchange: Exchange, message: Message, delay_ms: int
) -> None:
    """Route the message after a time; bindings count as they are then."""
    message = _without_delay(message, delay_ms)
    room = waiting_room(engine, vhost, exchange)
    due_ms = engine.clock.now_ms() + delay_ms + CLOCK_STEP_MS
    slot = room.hold(message, due_ms)
    if engine.journal is not None:
        engine.journal.finish_publish(message)
    _arm(engine, room, slot, due_ms)


def resume_delayed(engine: Engine) -> None:
    """After a restart: what came back from the log waits for the rest of its time."""
    for room in list(engine.delayed.values()):
        for slot, due_ms in room.held():
            _arm(engine, room, slot, due_ms)


def _arm(engine: Engine, room: WaitingRoom, slot: int, due_ms: int) -> None:
    room.timers[slot] = engine.timers.at(due_ms, partial(_ring, engine, room, slot))


def _ring(engine: Engine, room: WaitingRoom, slot: int, now_ms: int) -> None:
    del room.timers[slot]
    message = room.let_go(slot)
    if message is None:
        return
    table = decode_table(message.headers_table) if message.marks & MARK_HEADERS else {}
    queues = find_queues(room.vhost, room.exchange, message, all_keys(message, table))
    offer(engine, queues, message, now_ms)


def drop_delayed(engine: Engine, exchange: Exchange) -> None:
    """The exchange is gone, and with it what it keeps."""
    room = engine.delayed.pop(exchange, None)
    if room is not None:
        for timer in room.timers.values():
            timer.cancel()
        room.timers.clear()
        room.purge()


def _without_delay(message: Message, delay_ms: int) -> Message:
    """The delay's sign is turned, so that no other exchange on the way delays it again."""
    entries = split_entries(message.headers_table)
    entries["x-delay"] = encode_value(-delay_ms)
    header = replace_properties(message.header, {"headers": join_entries(entries)})
    return make_message(message.address, header, message.body)
