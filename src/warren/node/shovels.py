"""Joins the shovels to the node: where it listens, who runs, and what is agreed on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from warren.client.connection import ClientError
from warren.shovel.supervisor import COMPONENT, Shovels

if TYPE_CHECKING:
    from warren.management.context import Context

_ANYWHERE = {"::": "::1", "0.0.0.0": "127.0.0.1", "": "127.0.0.1"}


def make_shovels(context: Context, is_open: Callable[[], bool]) -> Shovels:
    """The shovels of the node that the API is of."""

    def own_place(tls: bool) -> tuple[str, int]:
        """Raises ClientError when nothing listens."""
        for listener in context.amqp_listeners():
            if listener.tls == tls:
                return _ANYWHERE.get(listener.host, listener.host), listener.port
        kind = "with" if tls else "without"
        raise ClientError(f"this node has no listener {kind} TLS: name a host in the address")

    def running() -> Sequence[str]:
        return () if context.peers is None else context.peers.running()

    async def forget(vhost: str, name: str) -> None:
        engine = context.engine
        await context.agree(lambda: engine.clear_parameter(vhost, COMPONENT, name))

    return Shovels(context.engine, own_place, running, is_open, forget)
