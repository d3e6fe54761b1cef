"""What every new virtual host is given by the configuration: limits, operator policies, users.

`default_limits.vhosts.*`, `default_policies.operator.*` and `default_users.*` act whenever a
virtual host is made whose name fits their pattern, not only at the first start.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any

from warren.config.settings import Settings
from warren.engine.engine import Engine
from warren.model.policy import Policy

_ANY = ".*"
_PATTERNS = ("vhost_pattern", "queue_pattern")


class VHostDefaults:
    """Listens for new virtual hosts; attach it before the first one is made."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self._settings = settings
        self._engine = engine

    def attach(self) -> None:
        self._engine.listeners.append(self._on_event)

    def _on_event(self, event: str, details: dict[str, Any]) -> None:
        if event == "vhost.created":
            self.apply(details["name"])

    def apply(self, vhost: str) -> None:
        """Raises DirectoryError or PolicyError for defaults that cannot be used."""
        self._apply_limits(vhost)
        self._apply_operator_policies(vhost)
        self._apply_users(vhost)

    def _apply_limits(self, vhost: str) -> None:
        for group in self._settings.limits.default_vhost_limits.values():
            if _fits(group, "pattern", vhost):
                limits = {
                    key.replace("_", "-"): value for key, value in group.items() if key != "pattern"
                }
                self._engine.directory.set_vhost_limits(vhost, limits)
                # Only the first group that fits counts.
                return

    def _apply_operator_policies(self, vhost: str) -> None:
        for name, group in self._settings.limits.default_operator_policies.items():
            if not _fits(group, "vhost_pattern", vhost):
                continue
            definition = {
                key.removeprefix("classic_queues.").replace("_", "-"): value
                for key, value in group.items()
                if key not in _PATTERNS
            }
            pattern = str(group.get("queue_pattern", _ANY))
            policy = Policy(vhost, name, pattern, definition, apply_to="queues")
            self._engine.set_policy(policy, operator=True)

    def _apply_users(self, vhost: str) -> None:
        directory = self._engine.directory
        for name, group in self._settings.auth.default_users.items():
            if not _fits(group, "vhost_pattern", vhost):
                continue
            if not directory.has_user(name):
                tags = [tag.strip() for tag in group.get("tags", "").split(",") if tag.strip()]
                # Without a password in the configuration nobody can know this one.
                directory.add_user(name, group.get("password") or secrets.token_urlsafe(32), tags)
            directory.set_permissions(
                name,
                vhost,
                group.get("configure", _ANY),
                group.get("write", _ANY),
                group.get("read", _ANY),
            )


def _fits(group: Mapping[str, object], key: str, vhost: str) -> bool:
    return re.search(str(group.get(key, _ANY)), vhost) is not None
