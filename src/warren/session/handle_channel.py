"""Methods about the channel itself, and its two modes: confirms and transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren.model.errors import NotImplemented_, Postponed, PreconditionFailed
from warren.session.commit import Commit

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
    errand = channel.connection.errand
    if errand is not None and isinstance(errand.memo, Commit):
        return _answer_commit(channel, errand.memo)
    (_, *steps), channel.transaction = channel.transaction, None
    commit = Commit(channel.outlet.turn)
    waits = False
    commit.begin()
    try:
        for step in steps:
            if isinstance(step[0], int):
                channel.settle_tag(*step)
            elif channel.engine.publish(channel, *step):
                commit.refused = True
    finally:
        waits = commit.end()
        channel.transaction = new_transaction()
    journal = channel.engine.journal
    if journal is not None:
        # What was settled is said now, so that the answer waits for it too.
        journal.finish_turn()
    if waits:
        commit.mark = 0 if journal is None else journal.appended
        channel.connection.errand = commit.errand
        raise Postponed(errand=commit.errand)
    return _outcome(commit)


def _answer_commit(channel: Channel, commit: Commit) -> Reply:
    """The other nodes have answered; what this one wrote must be on its disk too."""
    journal = channel.engine.journal
    if journal is not None and journal.persisted < commit.mark:
        raise Postponed(commit.mark)
    channel.connection.errand = None
    return _outcome(commit)


def _outcome(commit: Commit) -> Reply:
    if commit.refused:
        raise PreconditionFailed("partial tx completion")
    return ("tx.commit-ok",)


def tx_rollback(channel: Channel) -> Reply:
    """Publishes are dropped; what was acknowledged is outstanding as before."""
    if channel.transaction is None:
        raise PreconditionFailed("channel is not transactional")
    channel.transaction = new_transaction()
    return ("tx.rollback-ok",)
