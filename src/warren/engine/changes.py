"""What is told of every change of users, virtual hosts and entities, in the call that makes it.

The verbs of the engine call these methods at the place of the change: additions before they are
done, so that one which cannot be kept is refused whole; removals while it can still be seen what
goes with them. `engine.metadata` is one of these; this one keeps nothing, which makes a broker that
lives in memory only.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warren.auth.directory import DirectoryChange
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.new_vhost import NewVHost
    from warren.engine.vhost import VHost
    from warren.model.policy import Policy
    from warren.routing.binding import Binding
    from warren.routing.exchange import Exchange

_NOTHING = nullcontext()


class Changes:
    """See the module's text."""

    def sparing(self) -> AbstractContextManager[None]:
        """Inside, what is so already as far as this node knows is no change."""
        return _NOTHING

    def together(self) -> AbstractContextManager[None]:
        """Changes made inside are one: after a crash either all of them are there, or none."""
        return _NOTHING

    def directory_changed(self, changes: Sequence[DirectoryChange]) -> None:
        """Users, permissions or limits are about to change."""

    def vhost_added(self, name: str, defaults: NewVHost) -> None:
        """A virtual host is about to be made; its defaults follow in the same change."""

    def vhost_set(self, name: str, description: str, tags: Sequence[str]) -> None:
        """A virtual host is about to be described anew."""

    def vhost_removed(self, vhost: VHost) -> None:
        """A virtual host is about to go, with everything in it."""

    def policy_set(self, policy: Policy, operator: bool) -> None:
        """A policy is about to be made or replaced."""

    def policy_cleared(self, vhost: VHost, name: str, operator: bool) -> None:
        """A policy goes."""

    def parameter_set(self, vhost: str, component: str, name: str, value: Any) -> None:
        """A runtime parameter is about to be set or replaced."""

    def parameter_cleared(self, vhost: str, component: str, name: str) -> None:
        """A runtime parameter goes."""

    def global_parameter_set(self, name: str, value: Any) -> None:
        """A parameter of the whole cluster is about to be set or replaced."""

    def global_parameter_cleared(self, name: str) -> None:
        """A parameter of the whole cluster goes."""

    def exchange_added(self, vhost: VHost, exchange: Exchange) -> None:
        """An exchange is about to be put in place."""

    def exchange_removed(self, vhost: VHost, exchange: Exchange) -> None:
        """An exchange is about to go, with the bindings it still has."""

    def queue_added(self, queue: AmqpQueue) -> None:
        """A queue is about to be put in place; nothing can have reached it yet."""

    def queue_removed(self, queue: AmqpQueue) -> None:
        """A queue is about to go, with the bindings it still has."""

    def mirror_link_added(self, vhost: VHost, queue: str, node: str) -> None:
        """An operator wants a replica of a queue on a node."""

    def mirror_link_removed(self, vhost: VHost, queue: str, node: str) -> None:
        """An operator does not want it any more."""

    def queue_paused(self, queue: AmqpQueue, by: str, at_ms: int) -> None:
        """The consumers of a queue are about to be paused."""

    def queue_resumed(self, queue: AmqpQueue) -> None:
        """They go on."""

    def binding_added(
        self, vhost: VHost, exchange: Exchange, binding: Binding, target: Any
    ) -> None:
        """A binding is about to be put in place, or was there already."""

    def binding_removed(self, vhost: VHost, binding: Binding) -> None:
        """A binding goes by itself, not with its exchange or destination."""
