"""Who asks: the user behind a request, and what the tags let it see and do."""

from __future__ import annotations

from dataclasses import dataclass

from warren.auth.directory import Directory
from warren.auth.users import OperatorName, User
from warren.management.errors import ApiError, not_authorised

#: Tags that open the API at all; each of the later ones includes the first.
_MANAGEMENT = ("management", "policymaker", "monitoring", "administrator")


@dataclass(frozen=True, slots=True)
class Caller:
    """A logged-in user."""

    user: User
    directory: Directory

    @property
    def name(self) -> str:
        return self.user.name

    @property
    def is_administrator(self) -> bool:
        return self.user.has_tag("administrator")

    @property
    def is_monitor(self) -> bool:
        """May see everything, whoever it belongs to."""
        return self.is_administrator or self.user.has_tag("monitoring")

    @property
    def is_policymaker(self) -> bool:
        return self.is_administrator or self.user.has_tag("policymaker")

    def may_enter(self, vhost: str) -> bool:
        """Whether the user has permissions in the virtual host."""
        if isinstance(self.name, OperatorName):
            return True
        return self.directory.permission(self.name, vhost) is not None

    def sees_vhost(self, vhost: str) -> bool:
        """Whether lists show the virtual host and what is in it."""
        return self.is_monitor or self.may_enter(vhost)

    def sees_user(self, name: str) -> bool:
        """Whether lists show the connections and channels of a user."""
        return self.is_monitor or name == self.name

    def check_management(self) -> None:
        """Raises unless the API is open to the user at all."""
        if not any(self.user.has_tag(tag) for tag in _MANAGEMENT):
            raise not_authorised("Not management user")

    def check_monitor(self) -> None:
        if not self.is_monitor:
            raise not_authorised("Not monitor user")

    def check_administrator(self) -> None:
        if not self.is_administrator:
            raise not_authorised("Not administrator user")

    def check_policymaker(self, vhost: str | None = None) -> None:
        """Policies and parameters: for policymakers, in virtual hosts they may enter."""
        if not self.is_policymaker or (vhost is not None and not self._may_govern(vhost)):
            raise not_authorised("User not authorised to access object")

    def check_vhost(self, vhost: str) -> None:
        """What is done in a virtual host needs permissions in it, administrators included."""
        if not self.may_enter(vhost):
            raise _vhost_refused()

    def check_vhost_visible(self, vhost: str) -> None:
        if not self.sees_vhost(vhost):
            raise _vhost_refused()

    def _may_govern(self, vhost: str) -> bool:
        return self.is_administrator or self.may_enter(vhost)


def _vhost_refused() -> ApiError:
    return not_authorised("User not authorised to access virtual host")
