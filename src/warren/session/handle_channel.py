"""Methods about the channel itself, and its two modes: confirms and transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren.model.errors import NotImplemented_, PreconditionFailed

if TYPE_CHECKING:
    from warren.session.channel import Channel

Reply = tuple[Any, ...] | None


def flow(_channel: Channel, active: bool) -> Reply:
    if not active:
        raise NotImplemented_("active=false")
    return "channel.flow-ok", True


def close(channel: Channel, _code: int, _text: str, _class_id: int, _method_id: int) -> Reply:
    channel.tell_confirms()
    channel.engine.end_channel(channel)
    channel.closing = True
    channel.connection.send(channel.number, "channel.close-ok")
    channel.connection.drop_channel(channel.number)
    return None


def access_request(_channel: Channel, *_arguments: object) -> Reply:
    """Left over from AMQP 0-8: accepted, and means nothing."""
    return "access.request-ok", 1


def confirm_select(channel: Channel, no_wait: bool) -> Reply:
    if channel.transaction is not None:
        raise PreconditionFailed("cannot switch from tx to confirm mode")
    channel.select_confirms()
    return None if no_wait else ("confirm.select-ok",)


def tx_select(channel: Channel) -> Reply:
    if channel.confirms is not None:
        raise PreconditionFailed("cannot switch from confirm to tx mode")
    if channel.transaction is None:
        channel.transaction = new_transaction()
    return ("tx.select-ok",)


def new_transaction() -> list[Any]:
    """The tags it settles, then its steps: publishes and settlements in the order they came."""
    return [set()]


def tx_commit(channel: Channel) -> Reply:
    """Publishes and settlements happen now, in the order they were asked for."""
    if channel.transaction is None:
        raise PreconditionFailed("channel is not transactional")
    (_, *steps), channel.transaction = channel.transaction, None
    refused = 0
    try:
        for step in steps:
            if isinstance(step[0], int):
                channel.settle_tag(*step)
            else:
                refused |= channel.engine.publish(channel, *step)
    finally:
        channel.transaction = new_transaction()
    if refused:
        raise PreconditionFailed("partial tx completion")
    return ("tx.commit-ok",)


def tx_rollback(channel: Channel) -> Reply:
    """Publishes are dropped; what was acknowledged is outstanding as before."""
    if channel.transaction is None:
        raise PreconditionFailed("channel is not transactional")
    channel.transaction = new_transaction()
    return ("tx.rollback-ok",)
