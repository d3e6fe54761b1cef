"""A node among others: the agreement, the links and the homes of queues, joined to the node.

Clients are let in when the node is ready: its start is known to all, and it has caught up. While it
has no part in a majority it does what `cluster_partition_handling` says.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from warren.cluster import control_frames
from warren.cluster.member_effects import ApplyDefinition, Change, NodesChanged, ViewsChanged, Why
from warren.config.cluster import (
    goes_on_without_majority,
    heals,
    waits_for_homes,
)
from warren.engine.agreed import AgreedKeeper
from warren.engine.homes import Homes
from warren.engine.mending import Mending
from warren.engine.parameters import CLUSTER_NAME
from warren.gateway.stash import StashRoom
from warren.management.definitions import DefinitionsError, load_steps
from warren.model.errand import Errand
from warren.model.errors import AmqpError, InternalError, NoMajority, Postponed, ResourceError
from warren.net.peers.handshake import Hello, Refusal
from warren.net.peers.network import PeerNetwork
from warren.net.peers.owner import PeerOwner
from warren.net.peers.settings import Identity
from warren.node import next_start
from warren.node.agreement import Agreement, AgreementConfig, ProposalError
from warren.node.draining import Draining
from warren.node.errors import StartError, listen_error
from warren.node.forking import FORKS, Forking
from warren.node.link_addresses import LinkAddresses, own_endpoint, own_tls
from warren.node.lost_nodes import forget_lost
from warren.node.operated_cluster import OperatedCluster, ended
from warren.node.peer_alarms import ALARMS, PeerAlarms
from warren.node.peer_facts import FACTS, TELL_AGAIN, NodeFacts, PeerFacts
from warren.node.peer_questions import ANSWER, ASK, PeerQuestions
from warren.node.placing import Placing
from warren.node.rings import Rings
from warren.node.stash_file import StashFiles
from warren.node.views import QueueViews
from warren.telemetry.log import logger

if TYPE_CHECKING:
    from warren.engine.engine import Engine
    from warren.engine.ring_sink import RingSink
    from warren.gateway.gateway import Gateway
    from warren.gateway.home import HomeEnd
    from warren.net.hub import Hub
    from warren.net.peers.peer_link import PeerLink
    from warren.node.next_start import NextStart
    from warren.node.node import Node

_ERRORS: dict[Why, type[AmqpError]] = {
    Why.BUSY: ResourceError,
    Why.TOO_LARGE: ResourceError,
    Why.NO_MAJORITY: NoMajority,
}
#: How often the node looks at what its links heard, in seconds.
LOOK_S = 0.25


class NodeCluster(OperatedCluster, PeerOwner):
    """Made before the node's store is read; `start` inside the loop; `stop` before the store's."""

    def __init__(self, node: Node, plan: NextStart | None = None) -> None:
        self._node = node
        self._engine: Engine = node.engine
        self.log = logger("cluster")
        self.homes = Homes(node.engine, random.Random().randrange)
        self.homes.stash_room = self._make_stash_room()
        node.engine.cluster = self.homes
        node.engine.burials.hold()
        self.rings = Rings(node, lambda: self.links, lambda it: self._agreement().change_view(it))
        self.agreement: Agreement | None = None
        self.links: PeerNetwork | None = None
        self.alarms = PeerAlarms(node.engine, self._sender(ALARMS))
        self.facts = PeerFacts(self._own_facts, self._sender(FACTS))
        self.questions = PeerQuestions(self._send, self._who_can_be_asked)
        self.queue_views = QueueViews(node.engine, lambda: self._agreement().everywhere())
        self.placement = Placing(self.queue_views, self._agreement, self.questions, node)
        self.draining = Draining(node, lambda: self.homes.drained)
        is_healing = heals(node.settings.cluster)
        self.forking = Forking(node.engine, is_healing, self._is_linked, self._sender(FORKS))
        self.addresses = LinkAddresses(node.settings, node.name, node.data_dir)
        #: What this start is to be, by an operator's word.
        self._plan = plan
        self.link_port = 0
        #: A node that is called although it is no member, to be joined.
        self._called: str | None = None
        self._keeper: AgreedKeeper | None = None
        #: Until the definitions of a damaged log are sure again.
        self._mending: Mending | None = None
        self._opening: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heard_ms: dict[str, int] = {}
        self._members: frozenset[str] = frozenset()
        self._addresses: dict[str, tuple[str, int]] = {}
        #: Set when clients are let in for the first time.
        self.opened = asyncio.Event()

    # -- coming up ---------------------------------------------------------------------------------

    def make_keeper(self, engine: Engine, append: Callable[[bytes], None]) -> AgreedKeeper:
        """The keeper of the definitions that the store, or a node without one, is to use."""
        self._keeper = AgreedKeeper(engine, append, self._propose, self.log)
        return self._keeper

    def prepare(self) -> None:
        """What the node has kept is there: read the agreement's log. Raises StartError."""
        assert self._keeper is not None
        settings = self._node.settings.cluster
        plan, own = self._plan, self._node.name
        peers = settings.peers if plan is None or plan.forget else ()
        joins = () if plan is None else plan.join
        if plan is not None:
            self.addresses.told(plan.addresses)
        config = AgreementConfig(
            node=own,
            cluster_name=settings.name or "",
            founders=() if joins else tuple(sorted({*peers, own})),
            preferred=self._preferred(),
            seeds=joins,
            definitions=b"" if self._keeper.is_empty else self._keeper.snapshot(),
            data_dir=self._node.data_dir,
            fresh=self.rings.are_damaged,
            behind=self.rings.are_cut,
            lost=() if plan is None else plan.forget,
        )
        self.queue_views.learn()
        self.agreement = Agreement(config, self, self.begin_mending())
        self.rings.start(self.agreement.incarnation)

    def begin_mending(self) -> int:
        """How far the definitions are for sure: after damage all is taken once more."""
        assert self._keeper is not None
        if not self._keeper.is_doubtful:
            return self._keeper.applied
        self._mending = Mending(self._engine, self._keeper, self.log)
        return 0

    def _agreement(self) -> Agreement:
        assert self.agreement is not None
        return self.agreement

    def _preferred(self) -> tuple[str, ...]:
        """With `pause_if_all_down` the nodes that it lists decide: where they are, work goes on."""
        settings = self._node.settings.cluster
        is_listed = settings.partition_handling == "pause_if_all_down"
        return tuple(sorted(settings.pause_nodes)) if is_listed else ()

    def start(self, hub: Hub) -> None:
        """Join the running loop and the other nodes. Raises StartError."""
        assert self.agreement is not None
        node, agreement = self._node, self.agreement
        identity = Identity(node.name, agreement.incarnation, agreement.cluster_id)
        tls = own_tls(node.settings)
        self.links = PeerNetwork(hub, identity, node.secret, self.log, self, tls=tls)
        endpoint = own_endpoint(node.settings)
        try:
            self.link_port = self.links.listen(endpoint.host or "0.0.0.0", endpoint.port)
        except OSError as error:
            self.links.close()
            raise listen_error(endpoint, error) from error
        agreement.start(self.links, node.in_turn, node.failure)
        self._call_members()
        self._look()

    def _make_stash_room(self) -> StashRoom | None:
        """Without a majority homes out of reach are waited for; see `gateway/stream.pyx`."""
        settings, data_dir = self._node.settings.cluster, self._node.data_dir
        if not waits_for_homes(settings) or data_dir is None:
            return None
        files = StashFiles(data_dir / "stash", self._node.failure.set)
        return StashRoom(files.open, settings.stash_limit_bytes)

    def _call_members(self) -> None:
        """Links go to all members, and at the first start to all who found the cluster."""
        assert self.agreement is not None
        assert self.links is not None
        status = self.agreement.status()
        members = frozenset((*status.voters, *status.learners))
        if self._node.name not in members:
            # Not let in yet: whoever is known is asked.
            members |= set(self.agreement.config.seeds) | self.addresses.names()
        self._members = members - {self._node.name}
        called = self._members if self._called is None else self._members | {self._called}
        addresses = {name: self.addresses.of(name) for name in sorted(called)}
        if addresses != self._addresses:
            self._addresses = addresses
            self.links.set_peers(addresses)

    async def stop(self) -> None:
        """Leave the others; they are told by the closing of the links."""
        self.draining.stop()
        await self.rings.hand_over()
        self._stop_looking()
        self.questions.stop()
        if self._opening is not None:
            self._opening.cancel()
        if self.agreement is not None:
            # It is down because it was told to, which is another thing than a failure.
            await self.agreement.retire()
        if self.links is not None:
            self.links.close()

    def abandon(self) -> None:
        """The node has failed: say nothing more to anybody."""
        self._stop_looking()
        if self.agreement is not None:
            self.agreement.abandon()
        if self.links is not None:
            self.links.close()

    def _stop_looking(self) -> None:
        self.placement.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """Tell the agreement whom the links have heard, and what the members are now."""
        assert self.agreement is not None
        assert self.links is not None
        for name in self._members:
            heard_ms = self.links.last_heard_ms(name)
            if heard_ms is not None and heard_ms > self._heard_ms.get(name, 0):
                self._heard_ms[name] = heard_ms
                self.agreement.on_heard(name)
        self._call_members()
        is_ready = self.agreement.member.ready
        if not is_ready:
            self._pause_if_due()
        self._node.in_turn(lambda: self.forking.look(is_ready, self._node.is_open))
        self.alarms.look()
        self.facts.look()
        self.placement.look()
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    # -- definitions -------------------------------------------------------------------------------

    def _propose(self, change: bytes) -> Errand:
        assert self.agreement is not None
        if len(change) > control_frames.CHANGE_BYTES_MAX:
            raise ResourceError(f"a definition of {len(change)} bytes is too large for the cluster")
        proposed = self.agreement.propose(change)
        errand = Errand()

        def over() -> None:
            try:
                errand.finish(proposed.result())
            except ProposalError as error:
                kind = _ERRORS.get(error.why, InternalError)
                errand.fail(kind(f"a definition was not changed: {error}"))

        proposed.when_done(over)
        return errand

    def apply(self, entries: Sequence[ApplyDefinition]) -> None:
        """The agreement has decided on changes."""
        assert self._keeper is not None
        self.forking.majority_spoke()
        changes = [(entry.index, entry.change) for entry in entries]
        if self._mending is not None:
            changes = self._mending.apply(changes)
            if changes:
                self._mended()
        self._keeper.apply_agreed(changes)

    def _mended(self) -> None:
        """All that the definitions should have is known."""
        mending, self._mending = self._mending, None
        if mending is not None:
            mending.finish()
            self.queue_views.learn()

    def restore(self, index: int, image: bytes) -> Iterator[None] | None:
        """This node is far behind: all definitions at once, or in slices if there are no clients.

        Whoever is connected must not see half of them.
        """
        assert self._keeper is not None
        self.forking.majority_spoke()
        if self._mending is not None and self._mending.restore(index, image):
            return None
        self._mending = None
        if not self._node.is_open:
            return self._take_over(index, image)
        breathe = _do_nothing if self.links is None else self.links.keep_alive
        for _ in self._take_over(index, image):
            breathe()
        return None

    def _take_over(self, index: int, image: bytes) -> Iterator[None]:
        assert self._keeper is not None
        burials = self._engine.burials
        burials.hold()
        yield from self._keeper.taking_over(index, image)
        self.queue_views.learn()
        if self._agreement().member.ready:
            burials.release()

    def image(self) -> bytes:
        """All definitions, for a node that is far behind."""
        assert self._keeper is not None
        return (self._mending or self._keeper).snapshot()

    def nodes_changed(self, change: NodesChanged) -> None:
        """A node came or went: queues that live and die with it go, the others wait for it."""
        assert self._keeper is not None
        self.forking.majority_spoke()
        if self._mending is not None:
            if self._mending.nodes_changed(change):
                return
            self._mended()
        self._keeper.nodes_changed(change)
        if change.what is Change.FORGOTTEN and self.links is not None:
            self.links.forget(change.node)
        table = {name: (node.incarnation, node.is_alive) for name, node in change.table.items()}
        self.homes.drained = frozenset(n for n, node in change.table.items() if node.drained)
        self.homes.nodes_are(table)
        own = (self._agreement().member.incarnation, True)
        self.queue_views.nodes_are(table, table.get(self._node.name) == own)
        self._drop_dead_links(table)
        if table.get(self._node.name) == own:
            self.draining.agreed(self._node.name in self.homes.drained)

    def happened(self, event: str, **details: object) -> None:
        """Something that operators look for."""
        self._engine.emit(event, **details)

    def views_changed(self, change: ViewsChanged) -> None:
        """Mirrored queues are held by others than before."""
        self.forking.majority_spoke()
        if self._mending is not None:
            self._mending.views_changed(change)
        self.queue_views.changed(change)

    def reached(self, index: int) -> None:
        """The agreement has been carried out up to here."""
        assert self._keeper is not None
        if self._mending is not None and index >= self._keeper.applied:
            self._mended()
        self._keeper.reach(index)

    def leads_changed(self, leads: bool) -> None:
        """Whoever leads the agreement says where mirrors are to be."""
        self.placement.leads_changed(leads)

    def _drop_dead_links(self, table: dict[str, tuple[int, bool]]) -> None:
        """Who is down by agreement is so for us too: it begins anew when it is back."""
        if self.links is None:
            return
        for name, (incarnation, is_alive) in table.items():
            link = self.links.link_to(name)
            if link is not None and not is_alive and link.incarnation == incarnation:
                self.links.drop(name)

    # -- letting clients in ------------------------------------------------------------------------

    def ready_changed(self, ready: bool) -> None:
        """Whether this node may serve clients."""
        if self._opening is not None:
            self._opening.cancel()
        if ready:
            self.forking.majority_spoke()
            self._engine.burials.release()
            self._opening = asyncio.get_running_loop().create_task(self._open())
        else:
            self._opening = None
            self._pause_if_due()

    def _pause_if_due(self) -> None:
        """A node that is not ready sends its clients away, if the partition handling says so."""
        if self._node.is_open and self._opening is None and self._must_pause():
            self.log.warning("no majority of the cluster can be reached: clients are sent away")
            self._opening = asyncio.get_running_loop().create_task(self._node.close_clients())

    def _must_pause(self) -> bool:
        """What the partition handling says of a node without a majority."""
        settings = self._node.settings.cluster
        if settings.partition_handling == "pause_if_all_down":
            listed = settings.pause_nodes
            return not any(name == self._node.name or self._is_linked(name) for name in listed)
        return not goes_on_without_majority(settings)

    def _is_linked(self, name: str) -> bool:
        return self.links is not None and self.links.link_to(name) is not None

    async def _open(self) -> None:
        try:
            await self._make_first_content()
            self._node.open_clients()
        except StartError as error:
            self._node.failure.set(error)
        else:
            self.opened.set()
            plan, self._plan = self._plan, None
            if plan is not None and self._node.data_dir is not None:
                await forget_lost(self, plan.forget)
                next_start.done(self._node.data_dir)

    def cluster_known(self, cluster_id: str) -> None:
        """A node that joins learns whose it is; links say so from now on."""
        if self.links is not None:
            self.links.identity = dataclasses.replace(self.links.identity, cluster_id=cluster_id)

    async def _make_first_content(self) -> None:
        """A cluster without anything gets the default user and virtual host, or the definitions."""
        paths = self._node.definition_paths
        for path in paths:
            await self._import(path)
        names = self._engine.global_parameters  # The cluster's comes last of all.
        if not paths and CLUSTER_NAME not in names and self._node.lacks_default_content:
            for step in self._node.default_content():
                await self.agree(step)
        if CLUSTER_NAME not in self._engine.global_parameters:
            # Each would tell its own name otherwise.
            name = self._engine.settings.cluster_name
            await self.agree(lambda: self._engine.set_global_parameter(CLUSTER_NAME, name))

    async def agree(self, step: Callable[[], object]) -> None:
        """One change, made on all nodes."""
        try:
            self._node.in_turn(step)
        except Postponed as later:
            if later.errand is None:
                raise
            await ended(later.errand)
            later.errand.result()

    async def _import(self, path: str) -> None:
        try:
            for errand in load_steps(self._engine, path):
                if errand is not None:
                    await ended(errand)
        except DefinitionsError as error:
            raise StartError(f"definitions cannot be imported:\n{error}") from error

    # -- what the links tell -----------------------------------------------------------------------

    def accept(self, hello: Hello) -> Refusal | None:
        assert self.agreement is not None
        if hello.name == self._called:
            # We call it to join its cluster, which is another than the one we leave for it.
            return None
        ours = self.agreement.cluster_id
        if hello.cluster_id and ours and hello.cluster_id != ours:
            return Refusal.OTHER_CLUSTER
        if hello.cluster_id and hello.name not in self._members:
            return Refusal.NOT_A_MEMBER
        return None

    def make_gateway_sink(self, link: PeerLink) -> Gateway:
        return self.homes.make_gateway_sink(link)

    def make_home_sink(self, link: PeerLink) -> HomeEnd:
        return self.homes.make_home_sink(link)

    def make_ring_sink(self, link: PeerLink) -> RingSink | None:
        return self.rings.make_sink(link)

    def on_control(self, peer: str, kind: int, payload: bytes) -> None:
        assert self.agreement is not None
        if kind == ALARMS:
            self.alarms.told(peer, payload)
        elif kind == FACTS:
            self.addresses.told(self.facts.told(peer, payload), peer)
            if self.links is not None and self.links.link_to(peer) is None:
                self.facts.tell(peer)
        elif kind == TELL_AGAIN:
            self.alarms.tell(peer)
            self.facts.tell(peer)
        elif kind == FORKS:
            self.forking.told(peer, payload)
        elif kind == ASK:
            self.questions.on_ask(peer, payload)
        elif kind == ANSWER:
            self.questions.on_answer(peer, payload)
        else:
            self.agreement.on_control(peer, kind, payload)

    def on_up(self, peer: str, incarnation: int) -> None:
        assert self.agreement is not None
        self.agreement.on_up(peer, incarnation)
        self.rings.peer_up(peer)
        self.agreement.tell_retired(peer)
        self.alarms.tell(peer)
        self.facts.tell(peer)
        self.forking.came(peer)
        if self.facts.of(peer) is None:
            # Nothing is known of it since our link to it was lost. Its own may not have been:
            # then it would not tell us anything again until something changes.
            self._send(peer, TELL_AGAIN, b"")

    def on_down(self, peer: str) -> None:
        assert self.agreement is not None
        self.agreement.on_down(peer, "" if self.links is None else self.links.why_over(peer))
        self.rings.peer_down(peer)
        self.alarms.gone(peer)
        self.facts.gone(peer)
        self.forking.gone(peer)
        self.questions.gone(peer)

    def on_refused(self, peer: str) -> None:
        assert self.agreement is not None
        self.agreement.on_refused(peer)
        silent_ms = self._engine.clock.now_ms() - self._heard_ms.get(peer, 0)
        self.forking.refused(peer, silent_ms)

    def _send(self, peer: str, kind: int, payload: bytes) -> bool:
        if self.links is None:
            return False
        if self.links.send(peer, kind, payload):
            return True
        # One that is no member is not called, but may have called.
        link = self.links.link_from(peer)
        if link is not None:
            link.send(kind, payload)
        return link is not None

    def _sender(self, kind: int) -> Callable[[str | None, bytes], None]:
        """Sends frames of a kind to one node, or to all."""

        def send(peer: str | None, payload: bytes) -> None:
            for name in [peer] if peer is not None else sorted(self._members):
                self._send(name, kind, payload)

        return send

    # -- what operators see and do -----------------------------------------------------------------

    def member_names(self) -> list[str]:
        """All nodes that belong to the cluster."""
        assert self.agreement is not None
        status = self.agreement.status()
        return sorted({*status.voters, *status.learners, *status.nodes, self._node.name})

    def _own_facts(self) -> NodeFacts:
        node, settings = self._node, self._engine.settings
        shown = node.operating.context.listeners if node.operating is not None else []
        listeners = [(it.protocol, it.host, it.port, it.tls) for it in shown]
        endpoint = own_endpoint(self._node.settings)
        listeners.append(("clustering", endpoint.host or "0.0.0.0", self.link_port, False))
        return NodeFacts(
            node.is_open,
            settings.product,
            settings.version,
            tuple(listeners),
            self._unreachable(),
            self.addresses.known(self.link_port),
        )

    def _who_can_be_asked(self) -> tuple[list[str], list[str]]:
        others = [name for name in self.member_names() if name != self._node.name]
        known = {name: self.facts.of(name) for name in others}
        running = [name for name, facts in known.items() if facts is not None and facts.is_open]
        return running, [name for name in others if name not in running]

    @contextmanager
    def calling(self, name: str) -> Iterator[None]:
        """Have a link to a node of another cluster, as one who wants to join it."""
        assert self.links is not None
        before = self.links.identity
        self.links.identity = dataclasses.replace(before, cluster_id="")
        self._called = name
        self._call_members()
        try:
            yield
        finally:
            self._called = None
            self.links.identity = before
            self._call_members()


def _do_nothing() -> None:
    pass
