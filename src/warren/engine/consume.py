"""Taking messages: consume, cancel, get, and what happens when a channel ends."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from warren.engine import remote_consume, shards
from warren.engine.direct_reply import new_address
from warren.engine.errands import take_errand, undo
from warren.engine.opening import until_open
from warren.engine.queues import check_exclusive, drop_unused, note_consumer, touch
from warren.engine.shard_asking import get_from_any
from warren.engine.shard_members import SHARD_OF, drop, shard_names, take_others
from warren.model.errors import NotAllowed, PreconditionFailed
from warren.model.message import Message
from warren.model.queue_arguments import amqp_type_name, queue_text
from warren.session.channel import Channel, Consumer
from warren.session.names import DIRECT_REPLY_TO

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine
    from warren.model.errand import Errand
    from warren.session.connection import Connection


def consume(
    engine: Engine,
    channel: Channel,
    name: str,
    tag: str,
    no_ack: bool,
    exclusive: bool,
    arguments: dict[str, Any],
) -> Consumer:
    """A new consumer; it gets messages only after `start_consumer`."""
    errand = take_errand(channel.connection)
    limit = engine.settings.consumer_max_per_channel
    if limit is not None and len(channel.consumers) >= limit:
        raise NotAllowed(f"reached maximum ({limit}) of consumers per channel")
    if tag in channel.consumers:
        raise NotAllowed(f"attempt to reuse consumer tag '{tag}'")
    tag = tag or f"amq.ctag-{engine.dice.token()}"
    if name == DIRECT_REPLY_TO:
        return _consume_replies(engine, channel, tag, no_ack)
    connection = channel.connection
    name, arguments = shards.choose_first(engine, connection, name, exclusive, arguments, errand)
    queue = _readable(engine, connection, name, errand)
    priority = _priority(queue, arguments)
    if queue.is_remote:
        return remote_consume.attach(
            engine, channel, queue, tag, errand, no_ack, exclusive, priority, arguments
        )
    remote_consume.give_up_attaching(errand)
    check_exclusive(queue, exclusive)
    consumer = Consumer(
        channel, tag, queue, no_ack, exclusive, priority, arguments, channel.prefetch
    )
    channel.consumers[tag] = consumer
    return consumer


def _readable(
    engine: Engine, connection: Connection, name: str, errand: Errand | None
) -> AmqpQueue:
    """A queue that the client may read from. Raises: then what its home has done is undone.

    It may have lost its master while the home's answer was on its way.
    """
    try:
        queue: AmqpQueue = connection.vhost.queue(name)
        engine.check_access(connection, "queue", name, "read")
        engine.check_owner(connection, queue)
    except Exception:
        undo(errand)
        raise
    return queue


def _priority(queue: AmqpQueue, arguments: dict[str, Any]) -> int:
    priority = arguments.get("x-priority", 0)
    if not isinstance(priority, int) or isinstance(priority, bool):
        raise PreconditionFailed(
            f"invalid arg 'x-priority' for {queue_text(queue.name, queue.vhost.name)}: "
            f'"expected integer, got {amqp_type_name(priority)}"'
        )
    if abs(priority) > 2**31 - 1:
        raise PreconditionFailed("consumer priority must fit 32 bits")
    failover = arguments.get("x-cancel-on-ha-failover", False)
    if not isinstance(failover, bool):
        raise PreconditionFailed(
            "invalid arg 'x-cancel-on-ha-failover' for "
            f"{queue_text(queue.name, queue.vhost.name)}: a boolean is expected"
        )
    return priority


def _consume_replies(engine: Engine, channel: Channel, tag: str, no_ack: bool) -> Consumer:
    """Direct reply-to: a consumer without a queue, addressed by a name nobody can guess."""
    if not no_ack:
        raise PreconditionFailed("reply consumer cannot acknowledge")
    if reply_address(engine, channel) is not None:
        raise PreconditionFailed("reply consumer already set")
    consumer = Consumer(channel, tag, None, True)
    channel.consumers[tag] = consumer
    address = new_address(engine)
    engine.reply_addresses[channel] = address
    engine.reply_consumers[address] = consumer
    return consumer


def reply_address(engine: Engine, channel: Channel) -> str | None:
    """The address of the channel's reply consumer, of which it can have one."""
    return engine.reply_addresses.get(channel)


def start_consumer(engine: Engine, consumer: Consumer) -> None:
    """The client knows its consumer tag now: deliveries may begin."""
    queue: AmqpQueue | None = consumer.queue
    if queue is None:
        return
    start_member(engine, consumer)
    if SHARD_OF in consumer.arguments:
        shards.attach_others(engine, consumer.channel, consumer.tag)


def start_member(engine: Engine, consumer: Consumer) -> None:
    """Deliveries of one queue may begin."""
    queue: Any = consumer.queue
    note_consumer(engine, queue)
    queue.add_consumer(consumer, consumer.exclusive)
    engine.emit("consumer.created", vhost=queue.vhost.name, queue=queue.name, tag=consumer.tag)
    queue.run(engine.clock.now_ms())


def cancel(engine: Engine, channel: Channel, tag: str) -> None:
    """Cancelling an unknown tag is no error: it may have been cancelled from our side."""
    errand = take_errand(channel.connection)
    consumer = channel.consumers.get(tag)
    if consumer is not None:
        is_waiting = engine.cluster is not None and engine.cluster.is_waiting(consumer)
        if consumer.queue is not None and consumer.queue.is_remote and not is_waiting:
            remote_consume.cancel(engine, consumer.queue, consumer, errand)
        del channel.consumers[tag]
        _leave(engine, consumer, is_off=True)
        for member in take_others(channel, tag):
            _leave(engine, member)


def _leave(engine: Engine, consumer: Consumer, is_off: bool = False) -> None:
    queue = _detach(engine, consumer, is_off)
    if queue is not None:
        queue.run(engine.clock.now_ms())
        delete_if_unused(engine, queue)


def _detach(engine: Engine, consumer: Consumer, is_off: bool = False) -> Any:
    """Takes a consumer off its queue; the queue, if it has one. `is_off`: its home knows."""
    consumer.cancel()
    queue: Any = consumer.queue
    if queue is None:
        del engine.reply_consumers[engine.reply_addresses.pop(consumer.channel)]
        return None
    if engine.cluster is not None and engine.cluster.forget_waiting(consumer):
        # It has not been attached yet, to what stands for its queue by now.
        return queue.vhost.queues.get(queue.name, queue)
    if not queue.deleted:
        number = queue.remove_consumer(consumer)
        if queue.is_remote and not is_off:
            remote_consume.detach(engine, queue, number)
        touch(engine, queue)
        engine.emit("consumer.deleted", vhost=queue.vhost.name, queue=queue.name, tag=consumer.tag)
    return queue


def delete_if_unused(engine: Engine, queue: AmqpQueue) -> None:
    """An auto-delete queue goes with its last consumer."""
    if queue.is_remote or queue.vhost.queues.get(queue.name) is not queue:
        return  # Its home sees to it, which knows all consumers.
    if not queue.declaration.auto_delete or not queue.had_consumers or queue.consumers:
        return
    # While dead letters wait for their targets it stays: they would go with it.
    if not queue.buried:
        drop_unused(engine, queue, partial(delete_if_unused, engine))


def cancel_consumers(engine: Engine, queue: Any) -> None:
    """The queue goes away: its consumers are told, if they understand it.

    They are told when the turn ends and the deletion is on the disk: whoever deleted the queue
    gets the answer to that first.
    """
    leaving: Any = queue
    for consumer in list(queue.consumers):
        number = leaving.remove_consumer(consumer)
        if not isinstance(consumer, Consumer):
            # Of a client on another node, which sees the queue go by itself and asks for this.
            continue
        consumer.cancel()
        if queue.is_remote:
            remote_consume.detach(engine, queue, number)
        if drop(consumer):
            engine.later(partial(_tell_when_written, engine, consumer))


def _tell_when_written(engine: Engine, consumer: Consumer, _now_ms: int) -> None:
    journal = engine.journal
    if journal is not None and journal.persisted < journal.appended:
        journal.when_persisted(journal.appended, partial(tell_cancelled, engine, consumer))
    else:
        tell_cancelled(engine, consumer)


def tell_cancelled(_engine: Engine, consumer: Consumer) -> None:
    """The client hears that its consumer is no more, if it understands it."""
    channel = consumer.channel
    if channel.connection.capabilities.get("consumer_cancel_notify") and not channel.closing:
        channel.connection.send(channel.number, "basic.cancel", consumer.tag, True)


def get(
    engine: Engine, channel: Channel, name: str, no_ack: bool
) -> tuple[Message, int, bool, int] | None:
    """(message, delivery tag, redelivered, ready messages left), or None from an empty queue."""
    connection = channel.connection
    errand = take_errand(connection)
    names = shard_names(connection.vhost, name)
    if names:
        return get_from_any(engine, channel, names, no_ack, errand, _get_from)
    return _get_from(engine, channel, name, no_ack, errand)


def _get_from(
    engine: Engine, channel: Channel, name: str, no_ack: bool, errand: Errand | None
) -> tuple[Message, int, bool, int] | None:
    queue = _readable(engine, channel.connection, name, errand)
    if queue.is_remote or remote_consume.is_fetched(errand):
        return remote_consume.get(engine, channel, queue, no_ack, errand)
    touch(engine, queue)
    # Who asks again and again is a consumer, too.
    found = None if queue.paused else queue.get(no_ack, channel.outlet.now_ms)
    engine.totals.note_get(channel, no_ack, found is not None)
    if found is None:
        queue.got_empty += 1
        return None
    if found == 0:
        raise until_open(queue, queue.open_mark)
    message, slot, redelivered = found
    tag = channel.note_get(queue, slot, no_ack)
    if channel.traced:
        engine.trace_delivery(channel, queue, message, redelivered)
    return message, tag, redelivered, queue.ready


def end_channel(engine: Engine, channel: Channel) -> None:
    """The channel is over: consumers go, what they held goes back, auto-delete queues go last."""
    end_channels(engine, [channel])


def end_channels(engine: Engine, channels: list[Channel]) -> None:
    """Channels that end together: none may be given what another of them gives back."""
    queues: dict[AmqpQueue, None] = {}
    for channel in channels:
        consumers = list(channel.consumers.values())
        channel.consumers.clear()
        channel.transaction = None
        for consumer in consumers:
            queue = _detach(engine, consumer)
            if queue is not None:
                queues[queue] = None
    for channel in channels:
        queues.update(dict.fromkeys(channel.give_back_all()))
    # Only now that all are back, so that whoever takes them gets them in their order.
    now_ms = engine.clock.now_ms()
    for queue in queues:
        if not queue.deleted:
            queue.run(now_ms)
            delete_if_unused(engine, queue)
    for channel in channels:
        engine.timeout_looks.pop(channel, None)
        engine.channel_count -= 1
        engine.channels_of_user[channel.connection.user] -= 1
        engine.totals.retire_channel(channel)
        engine.totals.churn["channel_closed"] += 1
        engine.emit("channel.closed", connection=channel.connection.name, channel=channel.number)
