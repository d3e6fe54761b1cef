"""The modulus-hash exchange: every message goes to one of all that is bound, by its routing key.

As in RabbitMQ's sharding plugin, binding keys mean nothing here: the hash of the routing key,
modulo the number of destinations, says which one it is. Destinations are taken in the order of
their names, so that all nodes, and a node that has restarted, come to the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable
from typing import Any

from warren.routing.matcher import Table


class ModulusHashMatcher:
    """Destinations, each a string or with a `name`."""

    caches_by_key = True

    def __init__(self) -> None:
        #: destination -> number of bindings
        self._counts: dict[Hashable, int] = {}
        self._ordered: list[Any] = []

    @property
    def is_empty(self) -> bool:
        return not self._counts

    def validate(self, routing_key: bytes, arguments: Table) -> None:
        """Every binding is valid."""

    def bind(self, routing_key: bytes, arguments: Table, destination: Hashable) -> None:  # noqa: ARG002
        self._counts[destination] = self._counts.get(destination, 0) + 1
        self._order()

    def unbind(self, routing_key: bytes, arguments: Table, destination: Hashable) -> None:  # noqa: ARG002
        if self._counts[destination] > 1:
            self._counts[destination] -= 1
        else:
            del self._counts[destination]
        self._order()

    def _order(self) -> None:
        self._ordered = sorted(self._counts, key=_name_of)

    def match(
        self,
        routing_key: bytes,
        headers: Table | None,  # noqa: ARG002
        properties: Table | None = None,  # noqa: ARG002
    ) -> list[Any]:
        if not self._ordered:
            return []
        return [self._ordered[_mixed(routing_key) % len(self._ordered)]]


def _name_of(destination: Any) -> tuple[str, str]:
    """A queue and an exchange may have the same name."""
    if isinstance(destination, str):
        return destination, ""
    return destination.name, str(getattr(destination, "destination_kind", "queue"))


def _mixed(key: bytes) -> int:
    """A hash whose low bits are good: keys that count up must not all be even."""
    mixed = zlib.crc32(key) * 0x9E3779B1
    return (mixed ^ (mixed >> 15)) & 0xFFFFFFFF
