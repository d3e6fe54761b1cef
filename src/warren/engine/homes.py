"""The other nodes as homes of queues, and this node as a home for theirs: both ends of all links.

A request to a home that cannot be reached for a moment waits until there is a link again; it fails
when the agreement says that the home is down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from warren.engine import remote_consume
from warren.engine.home_requests import HomeRequests, decode_error
from warren.engine.remote_queue import RemoteAmqpQueue
from warren.gateway.errors import HomeGoneError, LinkLostError
from warren.gateway.gateway import Gateway
from warren.gateway.home import HomeEnd
from warren.gateway.record import GatewayRecord
from warren.model.errand import Errand

if TYPE_CHECKING:
    from warren.engine.engine import Engine
    from warren.gateway.lending import RemoteConsumer
    from warren.model.ports import PeerPort

#: Requests have their verb in the payload; the frame's own field is for later.
VERB = 0
#: Direct replies are dropped while so much waits to be sent: nothing else bounds them.
UNSENT_REPLY_BYTES_MAX = 16 * 1024 * 1024


@dataclass(slots=True)
class _Request:
    """A request until it is answered."""

    payload: bytes
    errand: Errand
    #: It means nothing on another link than the one it was sent on.
    once: bool = False


class Homes:
    """A `ClusterPort` for the engine. `pick(n)` throws dice with n sides."""

    def __init__(self, engine: Engine, pick: Callable[[int], int]) -> None:
        self._engine = engine
        self._pick = pick
        self._gateways: dict[str, Gateway] = {}
        self._waiting: dict[str, list[_Request]] = {}
        #: Node -> its incarnation and whether it is alive, as all nodes agree.
        self._nodes: Mapping[str, tuple[int, bool]] = {}
        #: What gateways on other nodes have sent, by node and incarnation.
        self._records: dict[str, tuple[int, GatewayRecord]] = {}
        self.requests = HomeRequests(engine)

    # -- what the engine asks ----------------------------------------------------------------------

    def living_nodes(self) -> Sequence[str]:
        return sorted(name for name, (_, alive) in self._nodes.items() if alive)

    def pick(self, count: int) -> int:
        return self._pick(count)

    def make_remote(self, name: str, vhost: Any, *rest: Any) -> Any:
        home: str = rest[-1]
        queue = RemoteAmqpQueue(self.gateway_to(home), name, vhost, *rest)
        if not self._is_alive(home):
            queue.absence = absence_text(queue)
        return queue

    def request(
        self, home: str, verb: str, arguments: tuple[Any, ...], once: bool = False
    ) -> Errand:
        errand = Errand()
        agreed = self._engine.agreed
        applied = 0 if agreed is None else agreed.applied
        request = _Request(msgspec.msgpack.encode((verb, applied, *arguments)), errand, once)
        self._send(home, request)
        return errand

    def send_reply(self, node: str, arguments: tuple[Any, ...]) -> None:
        if self.gateway_to(node).pending_bytes <= UNSENT_REPLY_BYTES_MAX:
            self.request(node, "reply", arguments, once=True)

    def gateway_to(self, home: str) -> Gateway:
        """Where publishes and settlements for the queues of a home go."""
        gateway = self._gateways.get(home)
        if gateway is None:
            gateway = Gateway(self._engine.turn, self._engine.effects, home)
            gateway.on_attached = self._attached
            gateway.on_consumer_lost = self._consumer_lost
            if not self._is_alive(home):
                gateway.home_gone()
            self._gateways[home] = gateway
        return gateway

    # -- requests ----------------------------------------------------------------------------------

    def _send(self, home: str, request: _Request) -> None:
        gateway = self.gateway_to(home)
        if gateway.has_link:
            sent = gateway.request(VERB, request.payload)
            sent.when_done(partial(self._answered, home, request, sent))
        elif request.once:
            request.errand.fail(LinkLostError(f"there is no link to {home}"))
        elif self._is_alive(home):
            self._waiting.setdefault(home, []).append(request)
        else:
            request.errand.fail(HomeGoneError(f"node '{home}' is down or inaccessible"))

    def _answered(self, home: str, request: _Request, sent: Errand) -> None:
        try:
            is_good, payload = sent.result()
        except LinkLostError as lost:
            if request.once:
                request.errand.fail(lost)
                return
            # The home may have done it; all that is asked for can be asked for twice.
            self._send(home, request)
            return
        if not is_good:
            request.errand.fail(decode_error(payload))
        else:
            request.errand.finish(msgspec.msgpack.decode(payload))

    # -- links -------------------------------------------------------------------------------------

    def make_gateway_sink(self, link: PeerPort) -> Gateway:
        """We have dialled a node: it is a home for us."""
        gateway = self.gateway_to(link.peer)
        gateway.attach_link(link)
        return gateway

    def _attached(self, gateway: Gateway) -> None:
        attached: Any = gateway.attached()
        for queue, consumer, number in attached:
            remote_consume.attach_again(self._engine, queue, consumer, number)
        for request in self._waiting.pop(gateway.home, []):
            self._send(gateway.home, request)

    def _consumer_lost(self, queue: Any, consumer: Any) -> None:
        queue.remove_consumer(consumer)
        remote_consume.consumer_lost(self._engine, consumer)

    def make_home_sink(self, link: PeerPort) -> HomeEnd:
        """A node has dialled us: we are a home for it."""
        incarnation, record = self._records.get(link.peer, (0, GatewayRecord()))
        if incarnation != link.incarnation:
            record = GatewayRecord()
        self._records[link.peer] = (link.incarnation, record)
        engine = self._engine
        home = HomeEnd(link, record, engine.numbered, engine.turn, engine.journal)
        home.on_request = self._on_request
        home.on_consumer_gone = self._on_consumer_gone
        return home

    def _on_request(self, home: HomeEnd, request: int, _verb: int, payload: bytes) -> None:
        self.requests.handle(home, request, payload)

    def _on_consumer_gone(self, consumer: RemoteConsumer) -> None:
        self.requests.consumer_gone(consumer.queue, consumer.tag)

    # -- who is there ------------------------------------------------------------------------------

    def _is_alive(self, node: str) -> bool:
        return self._nodes.get(node, (0, False))[1]

    def nodes_are(self, nodes: Mapping[str, tuple[int, bool]]) -> None:
        """The nodes' table is this one now: incarnations, and whether they are alive."""
        before, self._nodes = self._nodes, dict(nodes)
        for node in sorted(self._nodes.keys() | before.keys()):
            if node == self._engine.settings.node_name:
                continue
            was, is_alive = before.get(node, (0, False))[1], self._is_alive(node)
            if was and not is_alive:
                self._went(node, before[node][0])
            elif is_alive and not was:
                self._came(node)

    def _came(self, node: str) -> None:
        """Its queues can be had again."""
        for queue in self._queues_of(node):
            queue.absence = None
        gateway = self.gateway_to(node)
        if not gateway.has_link:
            gateway.home_back()

    def _went(self, node: str, incarnation: int) -> None:
        """Its queues cannot be had any more."""
        for queue in self._queues_of(node):
            queue.absence = absence_text(queue)
        gateway = self.gateway_to(node)
        if gateway.incarnation <= incarnation:
            # A link to a later life of it is of no concern here.
            gateway.home_gone()
        for request in self._waiting.pop(node, []):
            request.errand.fail(HomeGoneError(f"node '{node}' is down or inaccessible"))

    def _queues_of(self, node: str) -> Iterator[Any]:
        for vhost in self._engine.vhosts.values():
            for queue in vhost.queues.values():
                if queue.home == node and queue.is_remote:
                    yield queue


def absence_text(queue: Any) -> str:
    """Why a queue whose home is down cannot be had; the text that clients know."""
    kind = "durable queue" if queue.declaration.durable else "queue"
    return (
        f"home node '{queue.home}' of {kind} '{queue.name}' in vhost '{queue.vhost.name}' "
        "is down or inaccessible"
    )
