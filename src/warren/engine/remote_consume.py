"""Taking messages from queues whose home is another node: consume, cancel, get.

All three ask the home and come again with its answer. What the home did for a client that is gone
by then is undone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from warren.engine.errands import Undone, memo_of
from warren.engine.shard_members import drop
from warren.gateway.errors import LinkLostError, MovedError
from warren.gateway.messages import decode_message
from warren.model.errand import Errand
from warren.model.errors import Postponed
from warren.session.channel import Channel, Consumer
from warren.wire.tables import encode_table

if TYPE_CHECKING:
    from warren.engine.engine import Engine
    from warren.model.message import Message

#: A home that is none, or none yet, is asked to attach a consumer again after so long.
ATTACH_PAUSE_MS = 20


@dataclass(frozen=True, slots=True)
class Attaching(Undone):
    """The home is asked to attach a consumer."""

    engine: Engine
    queue: Any
    number: int
    tag: str
    #: Where it is to be attached.
    home: str
    standing: Any

    @property
    def is_current(self) -> bool:
        """Whether the queue has not moved since."""
        return not self.queue.deleted and bool(self.queue.standing() == self.standing)

    def abandon(self, errand: Errand) -> None:  # noqa: ARG002
        self.standing[0].give_up_number(self.number)
        detach_at(self.engine, self.home, self.queue, self.number)


@dataclass(frozen=True, slots=True)
class Detaching:
    """The home is asked to take a consumer off; another one may have it by the time it has."""

    standing: Any


@dataclass(slots=True)
class Fetching(Undone):
    """The home is asked for a message."""

    queue: Any
    no_ack: bool
    #: As it was when the home was asked.
    standing: Any
    #: The shards that were asked so far, where it is one of several.
    tried: tuple[str, ...] = ()

    def sent_again(self) -> None:
        """On another link: what the home answers is out by that one."""
        self.standing = self.queue.standing()

    def note_got(self, slot: int) -> int:
        """What a channel settles it by; nothing comes of it if the queue has moved since."""
        if self.queue.standing() == self.standing:
            return int(self.queue.note_got(slot))
        gateway, session, _ = self.standing
        gateway.give_back_slots(session, self.queue.number, [slot])
        return int(self.queue.note_stale())

    def abandon(self, errand: Errand) -> None:
        if self.no_ack:
            return
        try:
            answer = errand.result()
        except Exception:  # noqa: BLE001 - then there is nothing to give back
            return
        if answer:
            self.queue.give_back(self.note_got(answer[1]))


def attach(
    engine: Engine,
    channel: Channel,
    queue: Any,
    tag: str,
    errand: Errand | None,
    no_ack: bool,
    exclusive: bool,
    priority: int,
    arguments: dict[str, Any],
) -> Consumer:
    """A consumer that the home has attached; it gets messages when it is started."""
    attaching = memo_of(errand, Attaching)
    if attaching is not None and (attaching.queue is not queue or not attaching.is_current):
        assert errand is not None
        attaching.abandon(errand)
        attaching = None
    if attaching is None:
        number = queue.next_number()
        consumer = Consumer(
            channel, tag, queue, no_ack, exclusive, priority, arguments, channel.prefetch
        )
        request = ask_to_attach(engine, queue, consumer, number)
        request.memo = Attaching(engine, queue, number, tag, queue.home, queue.standing())
        request.when_done(partial(_give_up_lost, request, queue.gateway, number))
        raise Postponed(errand=request)
    consumer = Consumer(
        channel, attaching.tag, queue, no_ack, exclusive, priority, arguments, channel.prefetch
    )
    queue.expect(consumer, attaching.number)
    channel.consumers[consumer.tag] = consumer
    return consumer


def give_up_attaching(errand: Errand | None) -> None:
    """The queue has come to this node while another was asked to attach a consumer."""
    attaching = memo_of(errand, Attaching)
    if errand is not None and attaching is not None:
        attaching.abandon(errand)


def is_fetched(errand: Errand | None) -> bool:
    """Whether another node has been asked for a message, wherever the queue is by now."""
    return memo_of(errand, Fetching) is not None


def _give_up_lost(request: Errand, gateway: Any, number: int) -> None:
    """A consumer that its home could not be asked for needs no number there."""
    try:
        request.result()
    except Exception:  # noqa: BLE001 - whoever asked hears of it
        gateway.give_up_number(number)


def ask_to_attach(
    engine: Engine, queue: Any, consumer: Consumer, number: int, once: bool = False
) -> Errand:
    """Ask the home to attach a consumer, for the first time or on a new link."""
    assert engine.cluster is not None
    channel = consumer.channel
    label = f"{channel.connection.name} ({channel.number})"
    facts = (
        number,
        consumer.tag,
        consumer.no_ack,
        consumer.exclusive,
        consumer.priority,
        consumer.prefetch,
        encode_table(consumer.arguments),
        label,
    )
    place = (queue.vhost.name, queue.name)
    return engine.cluster.request(queue.home, "consume", (*place, *facts), once)


def detach(engine: Engine, queue: Any, number: int) -> Errand:
    """Ask the home to take a consumer off its queue."""
    return detach_at(engine, queue.home, queue, number)


def detach_at(engine: Engine, home: str, queue: Any, number: int) -> Errand:
    """The same at a home that it may have had before."""
    assert engine.cluster is not None
    request = engine.cluster.request(home, "cancel", (queue.vhost.name, number), once=True)
    # Whatever the outcome: without a link, or a home, it is off its queue too.
    over = Errand()
    request.when_done(over.finish)
    return over


def cancel(engine: Engine, queue: Any, consumer: Consumer, errand: Errand | None) -> None:
    """Take a consumer off; what the home sent before it knew reaches the client first."""
    detaching = memo_of(errand, Detaching)
    if detaching is None or detaching.standing != queue.standing():
        request = detach(engine, queue, queue.number_of(consumer))
        request.memo = Detaching(queue.standing())
        raise Postponed(errand=request)


def get(
    engine: Engine, channel: Channel, queue: Any, no_ack: bool, errand: Errand | None
) -> tuple[Message, int, bool, int] | None:
    """(message, delivery tag, redelivered, ready messages left), or None from an empty queue."""
    fetching = memo_of(errand, Fetching)
    if errand is None or fetching is None:
        assert engine.cluster is not None
        place = (queue.vhost.name, queue.name)
        request = engine.cluster.request(queue.home, "get", (*place, no_ack))
        request.memo = Fetching(queue, no_ack, queue.standing())
        raise Postponed(errand=request)
    answer = errand.result()
    engine.totals.note_get(channel, no_ack, bool(answer))
    if not answer:
        return None
    data, slot, redelivered, remaining = answer
    message = decode_message(data)
    delivery = 0 if no_ack else fetching.note_got(slot)
    tag = channel.note_get(fetching.queue, delivery, no_ack)
    if channel.traced:
        engine.trace_delivery(channel, queue, message, redelivered)
    return message, tag, redelivered, remaining


def consumer_lost(engine: Engine, consumer: Consumer) -> None:
    """The home is gone, or does not take the consumer back: its client is told."""
    consumer.cancel()
    if drop(consumer):
        engine.tell_cancelled(consumer)


def attach_again(engine: Engine, queue: Any, consumer: Consumer, number: int) -> None:
    """There is a new link to the home: it knows nothing of the consumer any more."""
    request = ask_to_attach(engine, queue, consumer, number, once=True)
    standing = queue.standing()

    def answered() -> None:
        if consumer.cancelled or queue.standing() != standing:
            return
        try:
            request.result()
        except LinkLostError:
            return  # The next link brings it up again; that the home is gone is told otherwise.
        except MovedError:
            attach_later(engine, queue, consumer, ATTACH_PAUSE_MS)
        except Exception:  # noqa: BLE001 - whatever it is, there will be no deliveries
            queue.remove_consumer(consumer)
            consumer_lost(engine, consumer)
        else:
            queue.grant(consumer)

    request.when_done(answered)


def attach_later(engine: Engine, queue: Any, consumer: Consumer, pause_ms: int) -> None:
    """The home was not the queue's for a moment: ask again, unless something else happens first."""
    standing = queue.standing()

    def ring(_now_ms: int) -> None:
        if not consumer.cancelled and not queue.deleted and queue.standing() == standing:
            attach_again(engine, queue, consumer, queue.number_of(consumer))

    engine.timers.at(engine.clock.now_ms() + pause_ms, ring)


def disown(queue: Any, consumers: Iterable[Consumer]) -> None:
    """What they were given comes again: until they settle it, it takes no room from that."""
    for channel in dict.fromkeys(consumer.channel for consumer in consumers):
        channel.disown(queue)
