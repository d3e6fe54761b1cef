"""The fanout exchange: every destination gets every message."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from warren.routing.matcher import Table


class FanoutMatcher:
    """Destinations, counted by their bindings; keys and arguments do not count."""

    caches_by_key = True

    def __init__(self) -> None:
        self._counts: dict[Hashable, int] = {}

    @property
    def is_empty(self) -> bool:
        return not self._counts

    def validate(self, routing_key: bytes, arguments: Table) -> None:
        """Every binding is valid."""

    def bind(self, routing_key: bytes, arguments: Table, destination: Hashable) -> None:  # noqa: ARG002
        self._counts[destination] = self._counts.get(destination, 0) + 1

    def unbind(self, routing_key: bytes, arguments: Table, destination: Hashable) -> None:  # noqa: ARG002
        if self._counts[destination] > 1:
            self._counts[destination] -= 1
        else:
            del self._counts[destination]

    def match(
        self,
        routing_key: bytes,  # noqa: ARG002
        headers: Table | None,  # noqa: ARG002
        properties: Table | None = None,  # noqa: ARG002
    ) -> list[Any]:
        return list(self._counts)
