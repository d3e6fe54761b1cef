"""Users, permissions and limits as the API shows them."""

from __future__ import annotations

from typing import Any

from warren.auth.permissions import Permission, TopicPermission
from warren.auth.users import User

Shown = dict[str, Any]


def show_user(user: User) -> Shown:
    """With the password's hash: administrators only, who could change it anyway."""
    return {
        "name": user.name,
        "password_hash": user.password_hash,
        "hashing_algorithm": user.hashing_algorithm,
        "tags": list(user.tags),
        "limits": dict(user.limits),
    }


def show_permission(permission: Permission) -> Shown:
    return {
        "user": permission.user,
        "vhost": permission.vhost,
        "configure": permission.configure,
        "write": permission.write,
        "read": permission.read,
    }


def show_topic_permission(permission: TopicPermission) -> Shown:
    return {
        "user": permission.user,
        "vhost": permission.vhost,
        "exchange": permission.exchange,
        "write": permission.write,
        "read": permission.read,
    }
