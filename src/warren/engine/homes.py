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

from warren.engine import adopting, remote_consume
from warren.engine.home_requests import HomeRequests, decode_error, is_moved
from warren.engine.remote_queue import RemoteAmqpQueue
from warren.gateway.errors import HomeGoneError, LinkLostError, MovedError
from warren.gateway.gateway import Gateway
from warren.gateway.home import HomeEnd
from warren.gateway.identity import gateway_id
from warren.gateway.record import GatewayRecord
from warren.model.errand import Errand

if TYPE_CHECKING:
    from warren.engine.engine import Engine
    from warren.gateway.lending import RemoteConsumer
    from warren.gateway.stash import StashRoom
    from warren.model.ports import PeerPort

#: Requests have their verb in the payload; the frame's own field is for later.
VERB = 0
#: A home that lets go of a queue has handed it over, or else nothing is heard of that for so long.
HANDED_OVER_MS = 1000
#: Direct replies are dropped while so much waits to be sent: nothing else bounds them.
UNSENT_REPLY_BYTES_MAX = 16 * 1024 * 1024
#: Requests about one queue, which begin anew when it moves: they begin with its place.
QUEUE_VERBS = frozenset({"facts", "purge", "delete", "get", "consume", "adopt", "merge"})
#: A home that says, or seems, to be none any more is asked again after so long ...
RETRY_MS = 10
#: ... and publishes that wait for one are sent again after twice as long each time, up to this.
RETRY_MS_MAX = 320


@dataclass(slots=True)
class _Request:
    """A request until it is answered."""

    payload: bytes
    errand: Errand
    #: The virtual host and the name of the queue that it is about, if it is about one.
    place: tuple[str, str] | None = None
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
        #: Nodes that operators have taken out of service.
        self.drained: frozenset[str] = frozenset()
        #: What gateways on other nodes have sent, by node and incarnation.
        self._records: dict[str, tuple[int, GatewayRecord]] = {}
        #: Number of a queue that moves, and is here -> the number of the newest publish to it by
        #: this node, and of the newest attempt: homes remember both.
        self.orders: dict[int, tuple[int, int]] = {}
        #: Queues that have been handed over to this node and wait for what others hold.
        self.adoptions: dict[int, adopting.Adoption] = {}
        #: Where publishes for homes that cannot be reached are put aside; None: they are refused.
        self.stash_room: StashRoom | None = None
        self.requests = HomeRequests(engine)

    # -- what the engine asks ----------------------------------------------------------------------

    def living_nodes(self) -> Sequence[str]:
        return sorted(name for name, (_, alive) in self._nodes.items() if alive)

    def linked_nodes(self) -> Sequence[str]:
        """Those that can be reached at present, this one among them."""
        own = self._engine.settings.node_name
        return [it for it in self.living_nodes() if it == own or self.gateway_to(it).has_link]

    def nodes_in_service(self) -> Sequence[str]:
        return [name for name in self.living_nodes() if name not in self.drained]

    def has_all_links(self) -> bool:
        """Whether all nodes that are alive can be reached."""
        own = self._engine.settings.node_name
        return all(self.gateway_to(name).has_link for name in self.living_nodes() if name != own)

    def pick(self, count: int) -> int:
        return self._pick(count)

    def make_remote(self, name: str, vhost: Any, *rest: Any) -> Any:
        home: str = rest[-1]
        queue = RemoteAmqpQueue(self.gateway_to(home), name, vhost, *rest)
        queue.when_held = self._publishes_held
        if not self._is_alive(home):
            queue.absence = absence_text(queue)
        return queue

    def request(
        self, home: str, verb: str, arguments: tuple[Any, ...], once: bool = False
    ) -> Errand:
        errand = Errand()
        agreed = self._engine.agreed
        applied = 0 if agreed is None else agreed.applied
        place = (arguments[0], arguments[1]) if verb in QUEUE_VERBS else None
        payload = msgspec.msgpack.encode((verb, applied, *arguments))
        request = _Request(payload, errand, place, once)
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
            gateway.on_dropped_queue = self._queue_dropped
            if self.stash_room is not None:
                gateway.use_stash(self.stash_room)
            if not self._is_alive(home):
                gateway.home_gone()
            self._gateways[home] = gateway
        return gateway

    # -- requests ----------------------------------------------------------------------------------

    def _send(self, home: str, request: _Request) -> None:
        gateway = self.gateway_to(home)
        if self._has_moved(request, home):
            request.errand.fail(HomeGoneError(f"the queue is not on node '{home}' any more"))
        elif gateway.has_link:
            memo = request.errand.memo
            if isinstance(memo, remote_consume.Fetching):
                memo.sent_again()
            sent = gateway.request(VERB, request.payload)
            sent.when_done(partial(self._answered, home, request, sent))
        elif request.once:
            request.errand.fail(LinkLostError(f"there is no link to {home}"))
        elif self._is_alive(home):
            self._waiting.setdefault(home, []).append(request)
        elif self._follows(request):
            self._ask_later(request)
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
        if not is_good and is_moved(payload):
            self._ask_later(request)
        elif not is_good:
            request.errand.fail(decode_error(payload))
        else:
            request.errand.finish(msgspec.msgpack.decode(payload))

    def _queue_of(self, request: _Request) -> Any:
        if request.place is None:
            return None
        vhost = self._engine.vhosts.get(request.place[0])
        return None if vhost is None else vhost.queues.get(request.place[1])

    def _follows(self, request: _Request) -> bool:
        """Whether its queue goes where its master goes, so that another home may come up."""
        queue = self._queue_of(request)
        return queue is not None and queue.is_remote and queue.following and not queue.absent

    def _has_moved(self, request: _Request, home: str) -> bool:
        queue = self._queue_of(request)
        return queue is not None and (not queue.is_remote or queue.home != home)

    def _ask_later(self, request: _Request) -> None:
        """The queue is on its way from one home to another: the method begins anew in a moment."""
        if request.once:
            request.errand.fail(MovedError("the queue is on its way to another node"))
            return

        def ring(_now_ms: int) -> None:
            request.errand.fail(HomeGoneError("the queue was on its way to another node"))

        self._engine.timers.at(self._engine.clock.now_ms() + RETRY_MS, ring)

    # -- queues that move --------------------------------------------------------------------------

    @property
    def own_gateway_id(self) -> int:
        """Who this node is to mirrored queues, as a publisher."""
        own = self._engine.settings.node_name
        return gateway_id(own, self._nodes.get(own, (0, False))[0])

    def _publishes_held(self, queue: RemoteAmqpQueue) -> None:
        """They are sent again after a while, unless the queue has another home by then."""
        queue.pause_ms = min(max(queue.pause_ms * 2, RETRY_MS), RETRY_MS_MAX)

        def ring(_now_ms: int) -> None:
            queue.follow_again()

        self._engine.timers.at(self._engine.clock.now_ms() + queue.pause_ms, ring)

    def _queue_dropped(self, queue: RemoteAmqpQueue) -> None:
        """Its home is none any more, or was for a while none: consumers are attached anew.

        If clients hold something of it, it may have been handed over: that is waited for.
        """
        if not queue.adopting:
            self._attach_anew(queue)
            return
        standing = queue.standing()

        def ring(_now_ms: int) -> None:
            if not queue.deleted and queue.standing() == standing:
                queue.call_off_adoption()
                self._attach_anew(queue)

        self._engine.timers.at(self._engine.clock.now_ms() + HANDED_OVER_MS, ring)

    def _attach_anew(self, queue: RemoteAmqpQueue) -> None:
        consumers: list[Any] = list(queue.consumers)
        remote_consume.disown(queue, consumers)
        for consumer in consumers:
            remote_consume.attach_later(self._engine, queue, consumer, RETRY_MS)

    def adopted_by(self, number: int, node: str) -> None:
        """A node has said what its clients hold of a queue."""
        adopting.heard_from(self._engine, self, number, node)

    def is_waiting(self, consumer: Any) -> bool:
        """Whether a consumer is to be attached when a queue is adopted."""
        return any(consumer in adoption.consumers for adoption in self.adoptions.values())

    def forget_waiting(self, consumer: Any) -> bool:
        """Whether a consumer, which goes, was to be attached when a queue is adopted."""
        for adoption in self.adoptions.values():
            if consumer in adoption.consumers:
                adoption.consumers.remove(consumer)
                return True
        return False

    def queue_left(self, number: int) -> None:
        """This node is the home of a queue no more: gateways keep what it has not answered."""
        for _, record in self._records.values():
            record.queue_left(number)

    def queue_moved(self, queue: Any, home_before: str) -> None:
        """What waits for the home that it had begins anew."""
        self._engine.burials.hurry()
        self._begin_anew(home_before, lambda request: self._queue_of(request) is queue)

    def queue_deleted(self, queue: Any) -> None:
        """What waits for its home begins anew, and finds no queue.

        It may wait for this node itself, to which there is no link that would end.
        """
        place = (queue.vhost.name, queue.name)
        self._begin_anew(queue.home, lambda request: request.place == place)

    def _begin_anew(self, home: str, is_meant: Callable[[_Request], bool]) -> None:
        waiting = self._waiting.pop(home, [])
        meant = [request for request in waiting if is_meant(request)]
        stay = [request for request in waiting if not is_meant(request)]
        if stay:
            self._waiting[home] = stay
        for request in meant:
            request.errand.fail(HomeGoneError(f"the queue has left node '{home}'"))

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
        self._engine.burials.hurry()

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
            if node not in self._nodes and node in self._gateways:
                self._forgotten(self._gateways[node], before[node][0])

    def _forgotten(self, gateway: Gateway, incarnation: int) -> None:
        """A node will not be back; but another of its name may be here already, by a link."""
        if gateway.incarnation <= incarnation:
            gateway.home_forgotten()

    def _came(self, node: str) -> None:
        """Its queues can be had again."""
        for queue in self._plain_queues_of(node):
            queue.absence = None
        gateway = self.gateway_to(node)
        if not gateway.has_link:
            gateway.home_back()

    def _went(self, node: str, incarnation: int) -> None:
        """Its queues cannot be had any more."""
        for queue in self._plain_queues_of(node):
            queue.absence = absence_text(queue)
        for number in list(self.adoptions):
            self.adopted_by(number, node)
        gateway = self.gateway_to(node)
        if gateway.incarnation <= incarnation:
            # A link to a later life of it is of no concern here.
            gateway.home_gone()
        for request in self._waiting.pop(node, []):
            if self._follows(request):
                self._ask_later(request)
            else:
                request.errand.fail(HomeGoneError(f"node '{node}' is down or inaccessible"))

    def _plain_queues_of(self, node: str) -> Iterator[Any]:
        """Those that stay with the node; the others have, or will be given, another home."""
        for vhost in self._engine.vhosts.values():
            queues: list[Any] = list(vhost.queues.values())
            for queue in queues:
                if queue.home == node and queue.is_remote and not queue.following:
                    yield queue


def absence_text(queue: Any) -> str:
    """Why a queue whose home is down cannot be had; the text that clients know."""
    kind = "durable queue" if queue.declaration.durable else "queue"
    return (
        f"home node '{queue.home}' of {kind} '{queue.name}' in vhost '{queue.vhost.name}' "
        "is down or inaccessible"
    )
