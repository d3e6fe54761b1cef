"""What every new virtual host is given by the configuration: limits, operator policies, users.

`default_limits.vhosts.*`, `default_policies.operator.*` and `default_users.*` act whenever a
virtual host is made whose name fits their pattern, not only at the first start. In a cluster it is
the configuration of the node where the virtual host is made.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping

from warren.auth.permissions import Permission
from warren.auth.users import User
from warren.config.settings import Settings
from warren.engine.engine import Engine
from warren.engine.new_vhost import NewVHost
from warren.model.policy import Policy

_ANY = ".*"
_PATTERNS = ("vhost_pattern", "queue_pattern")


class VHostDefaults:
    """See the module's text."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self._settings = settings
        self._engine = engine

    def of(self, vhost: str) -> NewVHost:
        """What a virtual host of that name is given. Raises DirectoryError for a bad password."""
        groups = [
            (name, group)
            for name, group in self._settings.auth.default_users.items()
            if _fits(group, "vhost_pattern", vhost)
        ]
        return NewVHost(
            vhost,
            self._limits(vhost),
            list(self._operator_policies(vhost)),
            [self._user(name, group) for name, group in groups if self._is_new(name)],
            [_permission(name, vhost, group) for name, group in groups],
        )

    def _limits(self, vhost: str) -> Mapping[str, object]:
        for group in self._settings.limits.default_vhost_limits.values():
            if _fits(group, "pattern", vhost):
                # Only the first group that fits counts.
                return {
                    key.replace("_", "-"): value for key, value in group.items() if key != "pattern"
                }
        return self._engine.settings.default_vhost_limits

    def _operator_policies(self, vhost: str) -> Iterator[Policy]:
        for name, group in self._settings.limits.default_operator_policies.items():
            if _fits(group, "vhost_pattern", vhost):
                definition = {
                    key.removeprefix("classic_queues.").replace("_", "-"): value
                    for key, value in group.items()
                    if key not in _PATTERNS
                }
                pattern = str(group.get("queue_pattern", _ANY))
                yield Policy(vhost, name, pattern, definition, apply_to="queues")

    def _is_new(self, name: str) -> bool:
        return not self._engine.directory.has_user(name)

    def _user(self, name: str, group: Mapping[str, str]) -> User:
        directory = self._engine.directory
        tags = tuple(tag.strip() for tag in group.get("tags", "").split(",") if tag.strip())
        # Without a password in the configuration nobody can know this one.
        password = group.get("password") or secrets.token_urlsafe(32)
        return User(name, directory.hashed(name, password), directory.hashing_algorithm, tags)


def _permission(name: str, vhost: str, group: Mapping[str, str]) -> Permission:
    patterns = (group.get(key, _ANY) for key in ("configure", "write", "read"))
    return Permission(name, vhost, *patterns)


def _fits(group: Mapping[str, object], key: str, vhost: str) -> bool:
    return re.search(str(group.get(key, _ANY)), vhost) is not None
