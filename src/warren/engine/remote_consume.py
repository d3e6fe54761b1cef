"""Taking messages from queues whose home is another node: consume, cancel, get.

All three ask the home and come again with its answer. What the home did for a client that is gone
by then is undone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warren.engine.errands import Asked, Undone, memo_of
from warren.gateway.errors import LinkLostError
from warren.gateway.messages import decode_message
from warren.model.errand import Errand
from warren.model.errors import Postponed
from warren.session.channel import Channel, Consumer
from warren.wire.tables import encode_table

if TYPE_CHECKING:
    from warren.engine.engine import Engine
    from warren.model.message import Message


@dataclass(frozen=True, slots=True)
class Attaching(Undone):
    """The home is asked to attach a consumer."""

    engine: Engine
    queue: Any
    number: int
    tag: str

    def abandon(self, errand: Errand) -> None:  # noqa: ARG002
        self.queue.give_up_number(self.number)
        detach(self.engine, self.queue, self.number)


@dataclass(frozen=True, slots=True)
class Fetching(Undone):
    """The home is asked for a message."""

    queue: Any
    no_ack: bool

    def abandon(self, errand: Errand) -> None:
        if self.no_ack:
            return
        try:
            answer = errand.result()
        except Exception:  # noqa: BLE001 - then there is nothing to give back
            return
        if answer:
            self.queue.give_back(self.queue.note_got(answer[1]))


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
    if attaching is None or attaching.queue is not queue:
        number = queue.next_number()
        consumer = Consumer(
            channel, tag, queue, no_ack, exclusive, priority, arguments, channel.prefetch
        )
        request = ask_to_attach(engine, queue, consumer, number)
        request.memo = Attaching(engine, queue, number, tag)
        raise Postponed(errand=request)
    consumer = Consumer(
        channel, attaching.tag, queue, no_ack, exclusive, priority, arguments, channel.prefetch
    )
    queue.expect(consumer, attaching.number)
    channel.consumers[consumer.tag] = consumer
    return consumer


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
    assert engine.cluster is not None
    request = engine.cluster.request(queue.home, "cancel", (queue.vhost.name, number), once=True)
    # Whatever the outcome: without a link, or a home, it is off its queue too.
    over = Errand()
    request.when_done(over.finish)
    return over


def cancel(engine: Engine, queue: Any, consumer: Consumer, errand: Errand | None) -> None:
    """Take a consumer off; what the home sent before it knew reaches the client first."""
    if memo_of(errand, Asked) != Asked("cancel"):
        request = detach(engine, queue, queue.number_of(consumer))
        request.memo = Asked("cancel")
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
        request.memo = Fetching(queue, no_ack)
        raise Postponed(errand=request)
    answer = errand.result()
    engine.totals.note_get(channel, no_ack, bool(answer))
    if not answer:
        return None
    data, slot, redelivered, remaining = answer
    message = decode_message(data)
    delivery = 0 if no_ack else queue.note_got(slot)
    tag = channel.note_get(queue, delivery, no_ack)
    if channel.traced:
        engine.trace_delivery(channel, queue, message, redelivered)
    return message, tag, redelivered, remaining


def consumer_lost(engine: Engine, consumer: Consumer) -> None:
    """The home is gone, or does not take the consumer back: its client is told."""
    consumer.cancel()
    consumer.channel.consumers.pop(consumer.tag, None)
    engine.tell_cancelled(consumer)


def attach_again(engine: Engine, queue: Any, consumer: Consumer, number: int) -> None:
    """There is a new link to the home: it knows nothing of the consumer any more."""
    request = ask_to_attach(engine, queue, consumer, number, once=True)

    def answered() -> None:
        if consumer.cancelled:
            return
        try:
            request.result()
        except LinkLostError:
            return  # The next link brings it up again; that the home is gone is told otherwise.
        except Exception:  # noqa: BLE001 - whatever it is, there will be no deliveries
            queue.remove_consumer(consumer)
            consumer_lost(engine, consumer)
        else:
            queue.grant(consumer)

    request.when_done(answered)
