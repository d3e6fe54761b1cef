"""A queue as clients know it: how it was declared, what governs it, who owns it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren.model.errors import NotFound, Postponed
from warren.model.policy import EffectiveArguments, Policy
from warren.model.queue_arguments import QueueDeclaration
from warren.queue.queue import Queue

if TYPE_CHECKING:
    from warren.base.timers import Timer
    from warren.engine.effects import Effects
    from warren.engine.vhost import VHost
    from warren.model.errand import Errand
    from warren.session.connection import Connection


class AmqpQueue(Queue):
    """The message queue plus its declaration, policy and owner."""

    __slots__ = (
        "declaration",
        "deleted",
        "dropping",
        "effective",
        "expire_at_ms",
        "expiry_timer",
        "got_empty",
        "had_consumers",
        "home",
        "lease_timer",
        "number",
        "operator_policy",
        "owner",
        "policy",
        "sources",
        "used_ms",
        "vhost",
    )

    #: Why clients cannot have it at present; None: they can.
    absence: str | None = None
    is_remote = False

    def __init__(
        self,
        name: str,
        vhost: VHost,
        effects: Effects,
        declaration: QueueDeclaration,
        owner: Connection | None,
        effective: EffectiveArguments,
        home: str = "",
    ) -> None:
        super().__init__(
            name,
            effects,
            max_priority=-1 if effective.max_priority is None else effective.max_priority,
            single_active=effective.single_active_consumer,
        )
        self.vhost = vhost
        self.declaration = declaration
        #: The connection that an exclusive queue lives and dies with.
        self.owner = owner
        self.effective = effective
        self.policy: Policy | None = None
        self.operator_policy: Policy | None = None
        self.had_consumers = False
        #: How often basic.get found nothing.
        self.got_empty = 0
        self.deleted = False
        #: In a cluster: its removal is under way.
        self.dropping: Errand | None = None
        #: The node that its messages are on, and its number, the same on all nodes.
        self.home = home
        self.number = 0
        #: Names of the exchanges that have a binding to it.
        self.sources: set[str] = set()
        #: When it was last used, for its own expiry.
        self.used_ms = 0
        self.lease_timer: Timer | None = None
        #: The armed timer for the message at the head, and its time.
        self.expiry_timer: Timer | None = None
        self.expire_at_ms = 0

    def govern(self, effective: EffectiveArguments, now_ms: int) -> None:
        """Take over what arguments and policies say now."""
        self.effective = effective
        self.configure(
            ttl_ms=_or_none(effective.message_ttl_ms),
            max_length=_or_none(effective.max_length),
            max_bytes=_or_none(effective.max_length_bytes),
            overflow=effective.overflow,
            delivery_limit=_or_none(effective.delivery_limit),
            dead_letters=effective.dead_letter_exchange is not None,
            now_ms=now_ms,
        )

    def check_there(self) -> None:
        """Raises NotFound when its home is down, and Postponed while it is on its way out."""
        if self.dropping is not None:
            raise Postponed(errand=self.dropping)
        if self.absence is not None:
            raise NotFound(self.absence)

    @property
    def arguments(self) -> dict[str, Any]:
        return dict(self.declaration.arguments)

    def __repr__(self) -> str:
        return f"<AmqpQueue {self.name!r} in {self.vhost.name!r}>"


def _or_none(limit: int | None) -> int:
    """The compiled part writes "no limit" as -1."""
    return -1 if limit is None else limit
