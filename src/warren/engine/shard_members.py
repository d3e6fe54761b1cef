"""The members of a consumer that takes from several queues, in its channel: see `shards`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.routing.exchange import MODULUS_TYPE

if TYPE_CHECKING:
    from warren.engine.vhost import VHost
    from warren.session.channel import Channel, Consumer

#: The argument of a member's consumer that says which exchange it is of; clients cannot set it.
SHARD_OF = "x-shard-of"


def shard_names(vhost: VHost, name: str) -> list[str]:
    """The queues that a name stands for, which is an exchange's; mostly none."""
    exchange = vhost.exchanges.get(name)
    if exchange is None or exchange.type != MODULUS_TYPE or not name or name in vhost.queues:
        return []
    bound = {it.destination for it in exchange.bindings() if it.destination_kind == "queue"}
    return sorted(bound & vhost.queues.keys())


def members_of(channel: Channel, tag: str) -> list[Consumer]:
    """All that stand behind one tag."""
    return [
        consumer
        for key, consumer in channel.consumers.items()
        if key == tag or key.startswith(f"{tag}\0")
    ]


def take_others(channel: Channel, tag: str) -> list[Consumer]:
    """The consumer is cancelled: the members besides the first, which leave the channel."""
    keys = [key for key in channel.consumers if key.startswith(f"{tag}\0")]
    return [channel.consumers.pop(key) for key in keys]


def drop(consumer: Consumer) -> bool:
    """Take a consumer whose queue is gone out of its channel; whether its client is to hear it."""
    consumers: dict[str, Consumer] = consumer.channel.consumers
    tag = consumer.tag
    if SHARD_OF not in consumer.arguments:
        consumers.pop(tag, None)
        return True
    key = next((key for key, held in consumers.items() if held is consumer), None)
    if key is None:
        return False
    del consumers[key]
    if key != tag:
        return False
    other = next((key for key in consumers if key.startswith(f"{tag}\0")), None)
    if other is None:
        return True
    consumers[tag] = consumers.pop(other)
    return False
