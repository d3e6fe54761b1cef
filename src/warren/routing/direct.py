"""The direct exchange: routing key and binding key are equal; an empty key is a key like others."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from warren.routing.matcher import Table


class DirectMatcher:
    """Bindings by their key."""

    caches_by_key = True

    def __init__(self) -> None:
        #: key -> destination -> number of bindings
        self._keys: dict[bytes, dict[Hashable, int]] = {}

    @property
    def is_empty(self) -> bool:
        return not self._keys

    def validate(self, routing_key: bytes, arguments: Table) -> None:
        """Every binding is valid."""

    def bind(self, routing_key: bytes, arguments: Table, destination: Hashable) -> None:  # noqa: ARG002
        counts = self._keys.setdefault(routing_key, {})
        counts[destination] = counts.get(destination, 0) + 1

    def unbind(self, routing_key: bytes, arguments: Table, destination: Hashable) -> None:  # noqa: ARG002
        counts = self._keys[routing_key]
        if counts[destination] > 1:
            counts[destination] -= 1
            return
        del counts[destination]
        if not counts:
            del self._keys[routing_key]

    def match(
        self,
        routing_key: bytes,
        headers: Table | None,  # noqa: ARG002
        properties: Table | None = None,  # noqa: ARG002
    ) -> list[Any]:
        counts = self._keys.get(routing_key)
        return list(counts) if counts else []
