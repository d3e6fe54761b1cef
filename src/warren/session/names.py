"""What a name in a method may stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.model.errors import FrameError, NotFound

if TYPE_CHECKING:
    from warren.session.channel import Channel

DIRECT_REPLY_TO = "amq.rabbitmq.reply-to"


def clean_name(name: str) -> str:
    """Line breaks are stripped from names; bytes that are no UTF-8 are refused."""
    if any("\ud800" <= character <= "\udfff" for character in name):
        raise FrameError("a name is not valid UTF-8")
    return name.replace("\r", "").replace("\n", "")


def queue_name(channel: Channel, name: str) -> str:
    """The empty name stands for the queue this channel declared last."""
    if name:
        return clean_name(name)
    if channel.last_queue is None:
        raise NotFound("no previously declared queue")
    return channel.last_queue
