"""Dead letters: what a message that nobody consumed is published again as, and to which queues.

When it leaves its own queue is decided in `burials.py`.
The history is the `x-death` header: newest first, one entry per (queue, reason) with a count. Other
headers keep their bytes, and so their types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren.engine.publish import all_keys, find_all, text
from warren.model.message import MARK_HEADERS, Address, Message
from warren.wire.content import make_message
from warren.wire.properties import decode_properties, replace_properties
from warren.wire.tables import (
    Timestamp,
    decode_table,
    decode_value,
    encode_value,
    join_entries,
    split_entries,
)

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine

Death = dict[str, Any]
#: Counts from here on are not believed: one more would not fit their field.
COUNT_MAX = 2**62


def make_letter(
    engine: Engine,
    queue: AmqpQueue,
    message: Message,
    reason: str,
    died_s: int,
    again: bool = False,
) -> tuple[Message | None, list[AmqpQueue]]:
    """What a dead message goes on as, and the queues that it is for; nothing without an exchange.

    `again`: it was tried before, so it is not counted, nor given to delayed exchanges twice.
    """
    target = queue.effective.dead_letter_exchange
    exchange = queue.vhost.exchanges.get(target) if target is not None else None
    if target is None or exchange is None:
        return None, []
    configured = queue.effective.dead_letter_routing_key
    table = decode_table(message.headers_table) if message.marks & MARK_HEADERS else {}
    keys = _keys(message, table, configured)
    dead = _with_death(queue, message, reason, target, table, died_s)
    if not again:
        engine.totals.count(queue.vhost.name, f"dead_lettered_{reason}")
    destinations, _ = find_all(engine, queue.vhost, exchange, dead, keys, again)
    taking = []
    for destination in destinations:
        if is_cycle(destination.name, reason, table.get("x-death"), queue.name):
            engine.log_dead_letter_cycle(queue, destination, reason)
        else:
            taking.append(destination)
    return dead, taking


def _keys(message: Message, table: dict[str, Any], configured: str | None) -> list[bytes]:
    if configured is not None:
        return [configured.encode("utf-8", "surrogateescape")]
    return all_keys(message, table)


def is_cycle(destination: str, reason: str, deaths: object, origin: str) -> bool:
    """Whether the message has come round without anyone having rejected it on the way."""
    if reason == "rejected":
        return False
    if destination == origin:
        return True
    if not isinstance(deaths, list):
        return False
    for death in deaths:
        if not isinstance(death, dict):
            continue
        if death.get("reason") == "rejected":
            return False
        if death.get("queue") == destination:
            return True
    return False


def _with_death(
    queue: AmqpQueue,
    message: Message,
    reason: str,
    target: str,
    table: dict[str, Any],
    died_s: int,
) -> Message:
    """The message as it goes on: one more death in its history, no expiration."""
    properties = decode_properties(message.header)
    keys = [text(message.routing_key)]
    copies = table.get("CC")
    if isinstance(copies, list):
        keys += [copy for copy in copies if isinstance(copy, str)]
    death: Death = {
        "count": 1,
        "reason": reason,
        "queue": queue.name,
        "time": Timestamp(died_s),
        "exchange": text(message.exchange),
        "routing-keys": keys,
    }
    if "expiration" in properties:
        death["original-expiration"] = properties["expiration"]
    entries = split_entries(message.headers_table) if message.marks & MARK_HEADERS else {}
    deaths = add_death(_deaths(entries.get("x-death")), death)
    # A count is a long for every client that knows the header.
    entries["x-death"] = encode_deaths(deaths)
    for name in ("reason", "queue", "exchange"):
        entries.setdefault(f"x-first-death-{name}", encode_value(death[name]))
        entries[f"x-last-death-{name}"] = encode_value(death[name])
    key = queue.effective.dead_letter_routing_key
    if key is not None:
        entries.pop("CC", None)
    entries.pop("BCC", None)
    header = replace_properties(
        message.header, {"headers": join_entries(entries), "expiration": None}
    )
    routing_key = message.routing_key if key is None else key.encode("utf-8", "surrogateescape")
    hidden = message.address.hidden_keys if key is None else ()
    address = Address(target.encode("utf-8", "surrogateescape"), routing_key, hidden)
    return make_message(address, header, message.body)


def _deaths(tagged: bytes | None) -> list[Death]:
    """The history so far; anything that is no list of tables counts as none."""
    value = decode_value(tagged) if tagged is not None else None
    if not isinstance(value, list):
        return []
    return [death for death in value if isinstance(death, dict)]


def add_death(deaths: list[Death], death: Death) -> list[Death]:
    """The same queue and reason again: its entry counts one more and moves to the front."""
    for i, known in enumerate(deaths):
        if known.get("queue") == death["queue"] and known.get("reason") == death["reason"]:
            known["count"] = _count(known) + 1
            return [known, *deaths[:i], *deaths[i + 1 :]]
    return [death, *deaths]


def _count(death: Death) -> int:
    """How often a message died this way; the header is the clients' too, so it may be nonsense."""
    count = death.get("count")
    return count if isinstance(count, int) and 0 <= count < COUNT_MAX else 0


def encode_deaths(deaths: list[Death]) -> bytes:
    """An array of tables whose counts are 64 bit, as clients have always seen them."""
    items = b""
    for death in deaths:
        parts = {key: encode_value(value) for key, value in death.items()}
        parts["count"] = b"l" + _count(death).to_bytes(8, "big")
        entries = join_entries(parts)
        items += b"F" + len(entries).to_bytes(4, "big") + entries
    return b"A" + len(items).to_bytes(4, "big") + items
