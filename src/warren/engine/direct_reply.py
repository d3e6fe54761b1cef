"""Direct reply-to: answers that go straight to the one who asked, without a queue.

In a cluster the address of a reply consumer ends with the name of its node, and an answer that is
published elsewhere is sent there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.engine.placing import ask_node
from warren.gateway.messages import encode_message
from warren.model.errors import NotFound
from warren.session.names import DIRECT_REPLY_TO

if TYPE_CHECKING:
    from warren.engine.engine import Engine
    from warren.engine.vhost import VHost
    from warren.model.errand import Errand
    from warren.model.message import Message

REPLY_PREFIX = DIRECT_REPLY_TO + "."
#: A client that leaves this much unread is sent no direct replies: nothing else bounds them.
UNREAD_REPLY_BYTES_MAX = 1024 * 1024


def new_address(engine: Engine) -> str:
    """A name that nobody can guess."""
    token = engine.dice.token()
    if engine.cluster is None:
        return f"{REPLY_PREFIX}{token}"
    return f"{REPLY_PREFIX}{token}.{engine.settings.node_name}"


def node_of(engine: Engine, address: str) -> str | None:
    """The other node that an address is on; None for this one, and for what is no address."""
    node = address.removeprefix(REPLY_PREFIX).partition(".")[2]
    if engine.cluster is None or node == engine.settings.node_name:
        return None
    return node if node in engine.cluster.living_nodes() else None


def reply(engine: Engine, vhost: VHost, address: str, message: Message) -> None:
    """To the consumer that waits for it, unless that one is gone or does not read."""
    consumer = engine.reply_consumers.get(address)
    if consumer is not None:
        outlet = consumer.channel.outlet
        if outlet.pending_bytes <= UNREAD_REPLY_BYTES_MAX:
            consumer.push(message)
        else:
            engine.log_unread_replies(consumer.channel.connection)
        return
    node = node_of(engine, address)
    if node is not None:
        assert engine.cluster is not None
        engine.cluster.send_reply(node, (vhost.name, address, encode_message(message)))


def inspect_reply_queue(
    engine: Engine, vhost: VHost, name: str, errand: Errand | None
) -> tuple[str, int, int]:
    """Declaring a reply address asks whether the one who waits for the reply is still there."""
    node = node_of(engine, name)
    if name == DIRECT_REPLY_TO or name in engine.reply_consumers:
        return name, 0, 1
    if node is not None and ask_node(engine, node, "awaits", errand, (vhost.name, name)):
        return name, 0, 1
    raise NotFound(f"no queue '{name}' in vhost '{vhost.name}'")
