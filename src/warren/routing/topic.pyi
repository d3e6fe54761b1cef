from collections.abc import Hashable
from typing import Any

from warren.routing.matcher import Table

class TopicMatcher:
    """Bindings in a trie of their patterns' words."""

    caches_by_key: bool
    @property
    def is_empty(self) -> bool: ...
    def validate(self, routing_key: bytes, arguments: Table) -> None: ...
    def bind(self, routing_key: bytes, arguments: Table, destination: Hashable) -> None: ...
    def unbind(self, routing_key: bytes, arguments: Table, destination: Hashable) -> None: ...
    def match(
        self, routing_key: bytes, headers: Table | None, properties: Table | None = None
    ) -> list[Any]: ...
