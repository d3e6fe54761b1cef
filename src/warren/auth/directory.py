"""The directory: users, their permissions and all limits, held in memory.

It answers who may do what. Every change raises `epoch`, so that a hot path may keep what it was
told for as long as the epoch stands. Requests that name something unknown raise `DirectoryError`;
what a client may not do raises the error the client is to see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from warren.auth.password import (
    ALGORITHMS,
    DEFAULT_ALGORITHM,
    hash_password,
    is_password_hash,
)
from warren.auth.permissions import (
    DEFAULT_EXCHANGE_CHECKED_AS,
    Access,
    Permission,
    ResourceKind,
    TopicPermission,
)
from warren.auth.users import User, limit_value
from warren.base.text import PatternError, compile_pattern, erlang_term
from warren.model.errors import AccessRefused, LoginRefused, NotAllowed

USER_LIMITS = ("max-connections", "max-channels")
VHOST_LIMITS = ("max-connections", "max-queues")


class DirectoryError(ValueError):
    """An operator's request that cannot be done: unknown name, invalid value."""


class CredentialsRefused(LoginRefused):
    """A failed login: the client learns nothing but that; `reason` is for the log."""

    def __init__(self, mechanism: str, reason: str) -> None:
        super().__init__(
            f"Login was refused using authentication mechanism {mechanism}. "
            "For details see the broker logfile."
        )
        self.reason = f"{mechanism} login refused: {reason}"


@dataclass(frozen=True, slots=True)
class VHostLimitsChange:
    """A virtual host has other limits."""

    vhost: str
    limits: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class UserDeletion:
    """A user goes, with every permission it has."""

    name: str


@dataclass(frozen=True, slots=True)
class PermissionDeletion:
    """A user's permission in a virtual host goes; with an exchange, its topic permission there."""

    user: str
    vhost: str
    exchange: str | None = None


#: A user or a permission stands for itself: it is added, or takes the place of the one before.
DirectoryChange = (
    User | UserDeletion | Permission | TopicPermission | PermissionDeletion | VHostLimitsChange
)


class Directory:
    """All users, permissions and limits of the broker."""

    def __init__(
        self,
        loopback_users: Iterable[str] = ("guest",),
        hashing_algorithm: str = DEFAULT_ALGORITHM,
        validate_credentials: Callable[[str, str], None] | None = None,
    ) -> None:
        self.epoch = 0
        #: Told of what changes together, before it does; what it raises prevents the change. That
        #: a vhost comes or goes is not told here: the engine, which makes it, tells that.
        self.on_change: Callable[[Sequence[DirectoryChange]], None] | None = None
        self.loopback_users = frozenset(loopback_users)
        self.hashing_algorithm = hashing_algorithm
        #: Raises ValueError with the reason when a new password is too weak.
        self._validate_credentials = validate_credentials
        self._users: dict[str, User] = {}
        self._vhosts: dict[str, dict[str, int]] = {}
        self._permissions: dict[tuple[str, str], Permission] = {}
        self._topic_permissions: dict[tuple[str, str, str], TopicPermission] = {}

    # Virtual hosts, as far as access is concerned.

    def add_vhost(self, name: str) -> None:
        """Make a vhost known; a second time changes nothing."""
        if name not in self._vhosts:
            self._vhosts[name] = {}
            self.epoch += 1

    def delete_vhost(self, name: str) -> None:
        """Forget a vhost, its limits and every permission in it."""
        self._require_vhost(name)
        del self._vhosts[name]
        self._drop_permissions(lambda permission: permission.vhost == name)

    def list_vhosts(self) -> list[str]:
        """The names of all vhosts, sorted."""
        return sorted(self._vhosts)

    def set_vhost_limits(self, name: str, limits: Mapping[str, object]) -> None:
        """Replace the vhost's limits (`max-connections`, `max-queues`)."""
        self._require_vhost(name)
        kept = checked_vhost_limits(limits)
        self._tell(VHostLimitsChange(name, kept))
        self._vhosts[name] = kept
        self.epoch += 1

    def vhost_limits(self, name: str) -> dict[str, int]:
        """The limits as they were set."""
        self._require_vhost(name)
        return dict(self._vhosts[name])

    def vhost_limit(self, name: str, limit: str) -> int | None:
        """One limit's value, or None when there is none."""
        return limit_value(self._vhosts.get(name, {}), limit)

    # Users.

    def add_user(self, name: str, password: str, tags: Iterable[str] = ()) -> User:
        """Add a user, or raise when the name is taken."""
        if name in self._users:
            raise DirectoryError(f"user '{name}' already exists")
        password_hash = self.hashed(name, password)
        return self._store(User(name, password_hash, self.hashing_algorithm, tuple(tags)))

    def put_user(
        self,
        name: str,
        password_hash: str,
        hashing_algorithm: str = DEFAULT_ALGORITHM,
        tags: Iterable[str] = (),
        limits: Mapping[str, object] | None = None,
    ) -> User:
        """Add or replace a user whose password is already hashed, as definitions give it."""
        if hashing_algorithm not in ALGORITHMS:
            raise DirectoryError(
                f"unknown hashing algorithm '{hashing_algorithm}'; "
                f"expected one of {', '.join(ALGORITHMS)}"
            )
        if not is_password_hash(password_hash):
            raise DirectoryError(f"the password hash of user '{name}' is not a salted hash")
        kept = _checked_limits(limits or {}, USER_LIMITS)
        return self._store(User(name, password_hash, hashing_algorithm, tuple(tags), kept))

    def change_password(self, name: str, password: str) -> User:
        """Give the user another password."""
        user = self.user(name)
        password_hash = self.hashed(name, password)
        changed = replace(
            user, password_hash=password_hash, hashing_algorithm=self.hashing_algorithm
        )
        return self._store(changed)

    def clear_password(self, name: str) -> User:
        """Take the user's password away: it can log in by certificate only."""
        return self._store(replace(self.user(name), password_hash=""))

    def set_user_tags(self, name: str, tags: Iterable[str]) -> User:
        """Replace the user's tags."""
        return self._store(replace(self.user(name), tags=tuple(tags)))

    def set_user_limits(self, name: str, limits: Mapping[str, object]) -> User:
        """Replace the user's limits (`max-connections`, `max-channels`)."""
        return self._store(replace(self.user(name), limits=_checked_limits(limits, USER_LIMITS)))

    def delete_user(self, name: str) -> None:
        """Delete the user and every permission it has."""
        self.user(name)
        self._tell(UserDeletion(name))
        del self._users[name]
        self._drop_permissions(lambda permission: permission.user == name)

    def user(self, name: str) -> User:
        """The user, or DirectoryError."""
        user = self._users.get(name)
        if user is None:
            raise DirectoryError(f"user '{name}' does not exist")
        return user

    def has_user(self, name: str) -> bool:
        """Whether the user exists."""
        return name in self._users

    def list_users(self) -> list[User]:
        """All users, by name."""
        return [self._users[name] for name in sorted(self._users)]

    # Permissions.

    def set_permissions(
        self, user: str, vhost: str, configure: str, write: str, read: str
    ) -> Permission:
        """Set what the user may do in the vhost."""
        self.user(user)
        self._require_vhost(vhost)
        check_patterns(configure, write, read)
        permission = Permission(user, vhost, configure, write, read)
        self._tell(permission)
        self._permissions[user, vhost] = permission
        self.epoch += 1
        return permission

    def clear_permissions(self, user: str, vhost: str) -> None:
        """Take the user's access to the vhost away."""
        self.user(user)
        self._require_vhost(vhost)
        if (user, vhost) in self._permissions:
            self._tell(PermissionDeletion(user, vhost))
            del self._permissions[user, vhost]
            self.epoch += 1

    def permission(self, user: str, vhost: str) -> Permission | None:
        """What the user may do in the vhost, or None when it has no access to it."""
        return self._permissions.get((user, vhost))

    def list_permissions(
        self, user: str | None = None, vhost: str | None = None
    ) -> list[Permission]:
        """Permissions by user and vhost, of all or of the ones named."""
        return [
            permission
            for (of_user, of_vhost), permission in sorted(self._permissions.items())
            if user in {None, of_user} and vhost in {None, of_vhost}
        ]

    def set_topic_permissions(
        self, user: str, vhost: str, exchange: str, write: str, read: str
    ) -> TopicPermission:
        """Set which routing keys of a topic exchange the user may use."""
        self.user(user)
        self._require_vhost(vhost)
        check_patterns(write, read)
        permission = TopicPermission(user, vhost, exchange, write, read)
        self._tell(permission)
        self._topic_permissions[user, vhost, exchange] = permission
        self.epoch += 1
        return permission

    def clear_topic_permissions(self, user: str, vhost: str, exchange: str | None = None) -> None:
        """Drop the user's topic permissions in the vhost: for one exchange, or for all."""
        self.user(user)
        self._require_vhost(vhost)
        gone = [
            key
            for key in self._topic_permissions
            if key[:2] == (user, vhost) and exchange in {None, key[2]}
        ]
        self._tell(*(PermissionDeletion(*key) for key in gone))
        for key in gone:
            del self._topic_permissions[key]
            self.epoch += 1

    def list_topic_permissions(
        self, user: str | None = None, vhost: str | None = None
    ) -> list[TopicPermission]:
        """Topic permissions by user, vhost and exchange, of all or of the ones named."""
        return [
            permission
            for (of_user, of_vhost, _), permission in sorted(self._topic_permissions.items())
            if user in {None, of_user} and vhost in {None, of_vhost}
        ]

    # Decisions.

    def authenticate(
        self,
        name: str,
        password: str | None,
        peer_is_loopback: bool,
        mechanism: str = "PLAIN",
    ) -> User:
        """The user who proved to be `name`, or CredentialsRefused.

        `password` is None when the mechanism proved the identity by itself (a certificate).
        """
        user = self._users.get(name)
        if user is None or not (password is None or user.accepts_password(password)):
            raise CredentialsRefused(mechanism, f"user '{name}' - invalid credentials")
        if name in self.loopback_users and not peer_is_loopback:
            raise CredentialsRefused(mechanism, f"user '{name}' can only connect via localhost")
        return user

    def check_vhost_access(self, user: str, vhost: str) -> None:
        """Raise NotAllowed unless the vhost exists and the user has permissions in it."""
        if vhost not in self._vhosts:
            raise NotAllowed(f"vhost {vhost} not found")
        if (user, vhost) not in self._permissions:
            raise NotAllowed(f"access to vhost '{vhost}' refused for user '{user}'")

    def check_access(
        self, user: str, vhost: str, kind: ResourceKind, name: str, permission: Access
    ) -> None:
        """Raise AccessRefused unless the user may access the queue or exchange that way."""
        held = self._permissions.get((user, vhost))
        if held is None or not held.allows(permission, kind, name):
            if kind == "exchange" and not name:
                name = DEFAULT_EXCHANGE_CHECKED_AS
            raise AccessRefused(
                f"{permission} access to {kind} '{name}' in vhost '{vhost}' "
                f"refused for user '{user}'"
            )

    def check_topic_access(
        self,
        user: str,
        vhost: str,
        exchange: str,
        routing_key: str,
        permission: Literal["write", "read"],
        *,
        client_id: str | None = None,
    ) -> None:
        """Raise AccessRefused when a topic permission is set and does not cover the routing key."""
        held = self._topic_permissions.get((user, vhost, exchange))
        if held is None:
            return
        variables = {"username": user, "vhost": vhost}
        if client_id is not None:
            variables["client_id"] = client_id
        if not held.allows(permission, routing_key, variables):
            raise AccessRefused(
                f"{permission} access to topic '{routing_key}' in exchange '{exchange}' "
                f"in vhost '{vhost}' refused for user '{user}'"
            )

    def _tell(self, *changes: DirectoryChange) -> None:
        if self.on_change is not None and changes:
            self.on_change(changes)

    def _store(self, user: User) -> User:
        self._tell(user)
        self._users[user.name] = user
        self.epoch += 1
        return user

    def hashed(self, name: str, password: str) -> str:
        """The password as it is kept, salted anew each time; DirectoryError if it is refused."""
        if self._validate_credentials is not None:
            try:
                self._validate_credentials(name, password)
            except ValueError as error:
                raise DirectoryError(str(error)) from error
        return hash_password(password, self.hashing_algorithm)

    def _require_vhost(self, name: str) -> None:
        if name not in self._vhosts:
            raise DirectoryError(f"vhost '{name}' does not exist")

    def _drop_permissions(self, concerned: Callable[[Permission | TopicPermission], bool]) -> None:
        self._permissions = {
            key: held for key, held in self._permissions.items() if not concerned(held)
        }
        self._topic_permissions = {
            key: held for key, held in self._topic_permissions.items() if not concerned(held)
        }
        self.epoch += 1


def check_patterns(*patterns: str) -> None:
    """Raises DirectoryError unless all of them are regular expressions."""
    for pattern in patterns:
        try:
            compile_pattern(pattern)
        except PatternError as error:
            raise DirectoryError(f"regular expression '{pattern}' is invalid: {error}") from error


def checked_vhost_limits(limits: Mapping[str, object]) -> dict[str, int]:
    """The limits of a virtual host; DirectoryError for what is none."""
    return _checked_limits(limits, VHOST_LIMITS)


def _checked_limits(limits: Mapping[str, object], known: tuple[str, ...]) -> dict[str, int]:
    checked: dict[str, int] = {}
    for name, value in limits.items():
        if name not in known:
            shown = f"{{{erlang_term(name)},{erlang_term(value)}}}"
            raise DirectoryError(f"Unrecognised terms [{shown}] in limits")
        if not isinstance(value, int) or isinstance(value, bool):
            shown = erlang_term(value)
            raise DirectoryError(f"{name} should be a number, actually was {shown}")
        checked[name] = value
    return checked
