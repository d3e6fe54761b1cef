"""A user as the broker knows it: its credentials, its tags and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from warren.auth.password import DEFAULT_ALGORITHM, verify_password


class OperatorName(str):
    """The name of whoever acts on the node's own machine with all rights.

    Rights are told by the type: a user who has the same name has none of them.
    """

    __slots__ = ()


#: As RabbitMQ calls what its command line tools did.
OPERATOR = OperatorName("rmq-cli")


@dataclass(frozen=True, slots=True)
class User:
    """One user; a change makes a new object, so that one held by a connection never moves."""

    name: str
    password_hash: str = field(default="", repr=False)
    hashing_algorithm: str = DEFAULT_ALGORITHM
    tags: tuple[str, ...] = ()
    #: `max-connections`, `max-channels`; negative or absent means no limit.
    limits: Mapping[str, int] = field(default_factory=dict)

    def accepts_password(self, password: str) -> bool:
        """Whether the password is this user's; an empty one never is."""
        if not password or not self.password_hash:
            return False
        return verify_password(password, self.password_hash, self.hashing_algorithm)

    def has_tag(self, tag: str) -> bool:
        """Whether the user carries the tag."""
        return tag in self.tags

    def limit(self, name: str) -> int | None:
        """The limit's value, or None when there is none."""
        return limit_value(self.limits, name)


def limit_value(limits: Mapping[str, int], name: str) -> int | None:
    """A limit out of a table of them; a negative value switches it off."""
    value = limits.get(name, -1)
    return value if value >= 0 else None
