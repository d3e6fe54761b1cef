"""A queue whose home is another node, as clients of this one know it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from warren.engine.amqp_queue import DESCRIBED_SLOTS, Described, describe
from warren.gateway.remote_queue import RemoteQueue

if TYPE_CHECKING:
    from warren.engine.effects import Effects
    from warren.engine.vhost import VHost
    from warren.gateway.gateway import Gateway
    from warren.model.policy import EffectiveArguments
    from warren.model.queue_arguments import QueueDeclaration
    from warren.session.channel import Consumer
    from warren.session.connection import Connection


class RemoteAmqpQueue(Described, RemoteQueue):
    """What the engine asks of a queue, as far as it can be known here; the rest is at its home."""

    __slots__ = (*DESCRIBED_SLOTS, "_expected", "name", "pause_ms", "when_held")

    is_remote = True
    #: What only the home knows, and counts.
    ready = unacked = buried = unreadable = 0
    ready_bytes = total_bytes = retained = retained_bytes = 0
    delivered_no_ack = got = got_no_ack = redelivered = acked = dropped = 0
    damage = ""
    single_active = False
    cursors = None
    active = exclusive_consumer = None

    def __init__(
        self,
        gateway: Gateway,
        name: str,
        vhost: VHost,
        _effects: Effects,
        declaration: QueueDeclaration,
        owner: Connection | None,
        effective: EffectiveArguments,
        home: str,
    ) -> None:
        RemoteQueue.__init__(self, gateway, 0)
        self.name = name
        #: Called with the queue when publishes wait for its home, and how long the next wait is.
        self.when_held: Callable[[RemoteAmqpQueue], None] | None = None
        self.pause_ms = 0
        #: Consumers that the home has attached and that are about to start here: their numbers.
        self._expected: dict[Consumer, int] = {}
        describe(self, vhost, declaration, owner, effective, home)

    @property
    def home_gateway(self) -> Gateway:
        """The way to its home."""
        return cast("Gateway", self.gateway)

    def now_holding(self) -> None:
        """Publishes wait: the home is gone, or is its home no more."""
        if self.when_held is not None:
            self.when_held(self)

    def expect(self, consumer: Consumer, number: int) -> None:
        """The home has attached this consumer under this number."""
        self._expected[consumer] = number

    def add_consumer(self, consumer: Any, exclusive: bool = False, number: int = 0) -> int:
        return super().add_consumer(consumer, exclusive, self._expected.pop(consumer, number))

    def govern(self, effective: EffectiveArguments, _now_ms: int) -> None:
        """Take over what arguments and policies say now; the home acts on it."""
        self.effective = effective

    def configure(self) -> None:
        """Only the home has limits to keep."""

    def purge(self) -> int:
        """What it held was at its home; what waits for one is refused when it is deleted."""
        if self.deleted:
            if not self.following:
                self.home_gateway.queue_deleted(self.number)
            self.refuse_all(over=True)
        return 0

    def expire(self, now_ms: int) -> None:
        """Messages expire at the home."""
