"""What the engine needs of the cluster: implemented by the node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.model.errand import Errand


class ClusterPort(Protocol):
    """The other nodes, as far as queues are concerned."""

    def living_nodes(self) -> Sequence[str]:
        """The names of the nodes that are there, sorted, with this one."""

    def linked_nodes(self) -> Sequence[str]:
        """Those of them that can be reached at this moment, with this one."""

    def nodes_in_service(self) -> Sequence[str]:
        """Those that can be the home of a new queue: not the ones that operators have drained."""

    def make_remote(self, *arguments: Any) -> AmqpQueue:
        """What stands for a queue whose home is another node; arguments as AmqpQueue's."""

    def request(
        self, home: str, verb: str, arguments: tuple[Any, ...], once: bool = False
    ) -> Errand:
        """Ask the home of a queue for something; `once`: not again when the link is lost."""

    def send_reply(self, node: str, arguments: tuple[Any, ...]) -> None:
        """Send a direct reply to a node; it may be lost, as one to a client that is gone."""

    def is_waiting(self, consumer: Any) -> bool:
        """Whether a consumer is still to be attached to its queue."""

    def queue_deleted(self, queue: Any) -> None:
        """What waits for its home waits for nothing."""

    def forget_waiting(self, consumer: Any) -> bool:
        """Whether a consumer, which goes, was not attached to its queue yet."""

    def adopted_by(self, number: int, node: str) -> None:
        """A node has said what its clients hold of a queue that was handed over to this one."""

    def pick(self, count: int) -> int:
        """Throw dice with `count` sides, numbered from 0."""
