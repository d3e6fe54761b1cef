"""What a new virtual host is given when it is made: limits, operator policies, users."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from warren.auth.directory import VHostLimitsChange, check_patterns, checked_vhost_limits
from warren.auth.permissions import Permission
from warren.auth.users import User
from warren.model.policy import Policy, validate_policy

if TYPE_CHECKING:
    from warren.auth.directory import DirectoryChange
    from warren.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class NewVHost:
    """See the module's text."""

    name: str
    limits: Mapping[str, object] = field(default_factory=dict)
    operator_policies: Sequence[Policy] = ()
    #: Users that are not there yet.
    users: Sequence[User] = ()
    permissions: Sequence[Permission] = ()

    def check(self) -> None:
        """Raises DirectoryError or PolicyError for what cannot be used."""
        checked_vhost_limits(self.limits)
        for permission in self.permissions:
            check_patterns(permission.configure, permission.write, permission.read)
        for policy in self.operator_policies:
            validate_policy(policy, True)

    def directory_changes(self) -> Iterator[DirectoryChange]:
        """What changes of users, permissions and limits, in an order in which it can."""
        if self.limits:
            yield VHostLimitsChange(self.name, checked_vhost_limits(self.limits))
        yield from self.users
        yield from self.permissions

    def apply(self, engine: Engine) -> None:
        """Give it all to the virtual host, which is there by now. Raises as `check` does."""
        directory = engine.directory
        if self.limits:
            directory.set_vhost_limits(self.name, self.limits)
        for user in self.users:
            directory.put_user(user.name, user.password_hash, user.hashing_algorithm, user.tags)
        for held in self.permissions:
            directory.set_permissions(held.user, held.vhost, held.configure, held.write, held.read)
        for policy in self.operator_policies:
            engine.set_policy(policy, operator=True)
