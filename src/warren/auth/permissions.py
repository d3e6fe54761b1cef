"""Permissions: patterns that say which names a user may configure, write to and read from.

A pattern is searched, not anchored. The empty pattern is the exception: it stands for `^$`, so it
allows nothing but the empty name, which no entity has (the default exchange is checked as
`amq.default`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from warren.base.text import compile_pattern

Access = Literal["configure", "write", "read"]
ResourceKind = Literal["queue", "exchange"]

DEFAULT_EXCHANGE_CHECKED_AS = "amq.default"

_VARIABLE = re.compile(r"\{(username|vhost|client_id)\}")


@dataclass(frozen=True, slots=True)
class Permission:
    """What one user may do in one vhost."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str

    def allows(self, access: Access, kind: ResourceKind, name: str) -> bool:
        """Whether the pattern for this access finds the entity's name."""
        if kind == "exchange" and not name:
            name = DEFAULT_EXCHANGE_CHECKED_AS
        return pattern_allows(self.pattern(access), name)

    def pattern(self, access: Access) -> str:
        """The pattern that governs this kind of access."""
        if access == "configure":
            return self.configure
        return self.write if access == "write" else self.read


@dataclass(frozen=True, slots=True)
class TopicPermission:
    """Which routing keys one user may write to and read from one topic exchange."""

    user: str
    vhost: str
    exchange: str
    write: str
    read: str

    def allows(
        self, access: Literal["write", "read"], routing_key: str, variables: Mapping[str, str]
    ) -> bool:
        """Whether the pattern, with its variables filled in, finds the routing key."""
        pattern = self.write if access == "write" else self.read
        return pattern_allows(expand_variables(pattern, variables), routing_key)


def pattern_allows(pattern: str, name: str) -> bool:
    """Whether the pattern finds the name; the empty pattern finds the empty name only."""
    if not pattern:
        return not name
    return compile_pattern(pattern).search(name) is not None


def expand_variables(pattern: str, variables: Mapping[str, str]) -> str:
    """Fill `{username}`, `{vhost}` and `{client_id}` in, quoted: a name is never a pattern.

    A variable without a value stays as it is written.
    """

    def value(found: re.Match[str]) -> str:
        name = found.group(1)
        return re.escape(variables[name]) if name in variables else found.group(0)

    return _VARIABLE.sub(value, pattern)
