"""Counts for the whole broker that outlive the queues, channels and connections they come from.

Nothing here is touched by a message: what is open counts for itself, and is added up when someone
asks; what ends hands its counts over once.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.session.channel import Channel
    from warren.session.connection import Connection

#: The counters of a queue, by the names the management API gives them.
QUEUE_COUNTERS = {
    "publish": "published",
    "deliver": "delivered",
    "deliver_no_ack": "delivered_no_ack",
    "get": "got",
    "get_no_ack": "got_no_ack",
    "get_empty": "got_empty",
    "redeliver": "redelivered",
    "ack": "acked",
}
#: What a queue counts of the messages that leave it; its publishes are another matter than those
#: of channels, since one message may go to many queues.
TAKEN = tuple(name for name in QUEUE_COUNTERS if name != "publish")


class Totals:
    """What ended objects have counted, and events that belong to no object, by virtual host."""

    def __init__(self) -> None:
        #: Virtual host -> counts under the names of the management API.
        self.messages: dict[str, Counter[str]] = {}
        #: How many connections, channels and queues came and went.
        self.churn: Counter[str] = Counter()
        self.recv_bytes: Counter[str] = Counter()
        self.send_bytes: Counter[str] = Counter()
        #: Channel -> its basic.gets: with acknowledgement, without, and in vain.
        self.gets: dict[Channel, list[int]] = {}

    def count(self, vhost: str, name: str) -> None:
        """One more of something that no object counts."""
        self.messages.setdefault(vhost, Counter())[name] += 1

    def note_get(self, channel: Channel, no_ack: bool, found: bool) -> None:
        """The channel has asked for a single message."""
        kind = (1 if no_ack else 0) if found else 2
        self.gets.setdefault(channel, [0, 0, 0])[kind] += 1

    def retire_queue(self, queue: AmqpQueue) -> None:
        """The queue is deleted."""
        kept = self.messages.setdefault(queue.vhost.name, Counter())
        for name in TAKEN:
            kept[name] += getattr(queue, QUEUE_COUNTERS[name])
        kept["routed"] += queue.published

    def retire_channel(self, channel: Channel) -> None:
        """The channel is closed."""
        kept = self.messages.setdefault(channel.connection.vhost.name, Counter())
        kept["publish"] += channel.published
        if channel.confirms is not None:
            kept["confirm"] += channel.confirms.told
            kept["received_confirm"] += channel.confirms.last
        self.gets.pop(channel, None)

    def retire_connection(self, connection: Connection) -> None:
        """The connection is closed."""
        vhost = connection.vhost.name
        self.recv_bytes[vhost] += connection.bytes_in
        self.send_bytes[vhost] += getattr(connection.outlet.link, "bytes_out", 0)

    def forget_vhost(self, vhost: str) -> None:
        """The virtual host is deleted; its counts go on in the broker's own."""
        gone = self.messages.pop(vhost, None)
        if gone:
            self.messages.setdefault("", Counter()).update(gone)
        for octets in (self.recv_bytes, self.send_bytes):
            octets[""] += octets.pop(vhost, 0)
