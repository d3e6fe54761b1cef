"""What nodes tell each other of themselves, for operators and so that they find each other.

Every node tells every other when a link comes up and whenever something has changed. Addresses are
passed on: who knows one node of a cluster soon knows them all.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from warren.management import machine
from warren.management.context import ListenerFacts

#: The kind of the control frame.
FACTS = 25
#: What was told is forgotten here: alarms and facts, please, once more.
TELL_AGAIN = 28

_Name = Annotated[str, Meta(max_length=255)]
_Listener = tuple[_Name, _Name, Annotated[int, Meta(ge=0, le=65535)], bool]


class NodeFacts(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One node at one moment."""

    #: Clients are let in.
    is_open: bool
    product: _Name
    version: _Name
    listeners: Annotated[tuple[_Listener, ...], Meta(max_length=64)]
    #: Nodes that count as alive and that it has no link to.
    unreachable: Annotated[tuple[_Name, ...], Meta(max_length=255)]
    #: Where nodes are called, `host:port` by name, with its own.
    addresses: Annotated[dict[_Name, _Name], Meta(max_length=255)]
    os_pid: int = msgspec.field(default_factory=os.getpid)
    runtime: _Name = msgspec.field(default_factory=platform.python_version)
    cpu_cores: int = msgspec.field(default_factory=machine.processors)

    def shown_listeners(self) -> list[ListenerFacts]:
        return [ListenerFacts(*listener) for listener in self.listeners]


_decoder = msgspec.msgpack.Decoder(NodeFacts)

#: Sends to one node, or to all.
Send = Callable[[str | None, bytes], None]


class PeerFacts:
    """`own` makes the facts of this node as they are now."""

    def __init__(self, own: Callable[[], NodeFacts], send: Send) -> None:
        self.own = own
        self._send = send
        self._told: NodeFacts | None = None
        self._of_peers: dict[str, NodeFacts] = {}

    def look(self) -> None:
        """To be called now and then: tell everybody when something has changed."""
        own = self.own()
        if own != self._told:
            self._told = own
            self._send(None, msgspec.msgpack.encode(own))

    def tell(self, peer: str) -> None:
        """A node has come."""
        own = self.own()
        if own != self._told:
            # It hears of a state that the others may never see: should all be as before when they
            # are looked at next, this one must hear that.
            self._told = None
        self._send(peer, msgspec.msgpack.encode(own))

    def told(self, peer: str, payload: bytes) -> Mapping[str, str]:
        """A node has told; the addresses that it knows. Raises ValueError."""
        try:
            facts = self._of_peers[peer] = _decoder.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"facts that cannot be read: {error}") from error
        return facts.addresses

    def of(self, peer: str) -> NodeFacts | None:
        """What a node has told; None while there is no link to it."""
        return self._of_peers.get(peer)

    def gone(self, peer: str) -> None:
        """A node cannot be reached: nothing is known of it."""
        self._of_peers.pop(peer, None)
