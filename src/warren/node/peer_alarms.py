"""Alarms of the whole cluster: where one node is short of memory or disk, no node takes publishes.

A message may be for any node's queue, so publishers everywhere wait until the alarm is over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

if TYPE_CHECKING:
    from warren.engine.engine import Engine

#: The kind of the control frame.
ALARMS = 24

_Told = Annotated[list[Annotated[str, Meta(max_length=32)]], Meta(max_length=8)]
_decoder = msgspec.msgpack.Decoder(_Told)


class PeerAlarms:
    """Tells the others of this node's alarms, and raises theirs here."""

    def __init__(self, engine: Engine, send: Callable[[str | None, bytes], None]) -> None:
        self._engine = engine
        self._send = send
        #: What everybody was told last; None: not all know the same.
        self._told: frozenset[str] | None = frozenset()
        #: Node -> its alarms, as they are called here.
        self._of_peers: dict[str, frozenset[str]] = {}

    def own(self) -> frozenset[str]:
        """The alarms that this node has itself."""
        others = frozenset().union(*self._of_peers.values())
        return frozenset(self._engine.alarms) - others

    def of(self, peer: str) -> list[str]:
        """The alarms that another node has, as it calls them."""
        return sorted(alarm.removesuffix(f" on {peer}") for alarm in self._of_peers.get(peer, ()))

    def look(self) -> None:
        """To be called now and then: tell everybody when something has changed."""
        own = self.own()
        if own != self._told:
            self._told = own
            self._send(None, msgspec.msgpack.encode(sorted(own)))

    def tell(self, peer: str) -> None:
        """A node has come."""
        own = self.own()
        if own != self._told:
            # An alarm that is over at the next look must be over for this one too.
            self._told = None
        self._send(peer, msgspec.msgpack.encode(sorted(own)))

    def told(self, peer: str, payload: bytes) -> None:
        """A node has said which alarms it has. Raises ValueError for what no node says."""
        try:
            alarms = _decoder.decode(payload)
        except msgspec.DecodeError as error:
            raise ValueError(f"alarms that cannot be read: {error}") from error
        self._become(peer, frozenset(f"{alarm} on {peer}" for alarm in alarms))

    def gone(self, peer: str) -> None:
        """A node that cannot be reached has no alarms."""
        self._become(peer, frozenset())

    def _become(self, peer: str, alarms: frozenset[str]) -> None:
        before = self._of_peers.pop(peer, frozenset())
        if alarms:
            self._of_peers[peer] = alarms
        for alarm in sorted(before ^ alarms):
            self._engine.set_alarm(alarm, alarm in alarms)
