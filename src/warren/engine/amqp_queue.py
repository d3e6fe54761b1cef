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


#: What `Described` needs; a class in C can have only one heir with slots of its own.
DESCRIBED_SLOTS = (
    "absence",
    "awaits_view",
    "born_mirrored",
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
    "operator_policy",
    "owner",
    "policy",
    "sources",
    "used_ms",
    "vhost",
    "view_errand",
)


class Described:
    """What is known of a queue on every node: its declaration, policy and owner."""

    __slots__ = ()

    is_remote = False
    name: str
    #: Why clients cannot have it at present; None: they can.
    absence: str | None
    vhost: VHost
    declaration: QueueDeclaration
    #: The connection that an exclusive queue lives and dies with.
    owner: Connection | None
    effective: EffectiveArguments
    policy: Policy | None
    operator_policy: Policy | None
    had_consumers: bool
    #: How often basic.get found nothing.
    got_empty: int
    deleted: bool
    #: In a cluster: its removal is under way.
    dropping: Errand | None
    #: The node that its messages are on.
    home: str
    #: It was declared under a policy that mirrors, so it has a view, or will have one.
    born_mirrored: bool
    #: Its first view is not here yet: for those who publish it is not there, so it is empty.
    awaits_view: bool
    #: Ends when all nodes know its first view; None: nobody has to wait for that.
    view_errand: Errand | None
    #: Names of the exchanges that have a binding to it.
    sources: set[str]
    #: When it was last used, for its own expiry.
    used_ms: int
    lease_timer: Timer | None
    #: The armed timer for the message at the head, and its time.
    expiry_timer: Timer | None
    expire_at_ms: int

    def check_there(self) -> None:
        """Raises NotFound when its home is down, and Postponed while it comes or goes."""
        if self.dropping is not None:
            raise Postponed(errand=self.dropping)
        if self.absence is not None:
            raise NotFound(self.absence)
        if self.view_errand is not None:
            raise Postponed(errand=self.view_errand)

    @property
    def arguments(self) -> dict[str, Any]:
        return dict(self.declaration.arguments)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} in {self.vhost.name!r}>"


def describe(
    queue: Any,
    vhost: VHost,
    declaration: QueueDeclaration,
    owner: Connection | None,
    effective: EffectiveArguments,
    home: str,
) -> None:
    """To be called once, when a queue is made."""
    queue.vhost = vhost
    queue.declaration = declaration
    queue.owner = owner
    queue.effective = effective
    queue.home = home
    queue.absence = None
    queue.policy = queue.operator_policy = None
    queue.had_consumers = queue.deleted = False
    queue.dropping = queue.view_errand = None
    queue.awaits_view = queue.born_mirrored = False
    queue.sources = set()
    queue.got_empty = queue.used_ms = queue.expire_at_ms = 0
    queue.lease_timer = queue.expiry_timer = None
    queue.set_paused(queue.name in vhost.pauses)


class AmqpQueue(Described, Queue):
    """The message queue plus its declaration, policy and owner."""

    __slots__ = (*DESCRIBED_SLOTS, "number")

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
        Queue.__init__(
            self,
            name,
            effects,
            max_priority=-1 if effective.max_priority is None else effective.max_priority,
            single_active=effective.single_active_consumer,
        )
        #: The same on all nodes.
        self.number = 0
        describe(self, vhost, declaration, owner, effective, home)
        if effects.on_queue is not None:
            effects.on_queue(self)

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


def _or_none(limit: int | None) -> int:
    """The compiled part writes "no limit" as -1."""
    return -1 if limit is None else limit
