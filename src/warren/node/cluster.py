"""A node among others: the agreement, the links and the homes of queues, joined to the node.

Clients are let in when the node is ready: its start is known to all, and it has caught up. While it
has no part in a majority it does what `cluster_partition_handling` says.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from warren.cluster import control_frames
from warren.cluster.member_effects import ApplyDefinition, Change, NodesChanged
from warren.config.cluster import effective_partition_handling, link_endpoint, peer_endpoint
from warren.engine.agreed import AgreedKeeper
from warren.engine.homes import Homes
from warren.management.definitions import DefinitionsError, load_steps
from warren.model.errors import Postponed, ResourceError
from warren.net.peers.handshake import Hello, Refusal
from warren.net.peers.network import PeerNetwork
from warren.net.peers.owner import PeerOwner
from warren.net.peers.settings import Identity
from warren.node.agreement import Agreement, AgreementConfig
from warren.node.errors import StartError, listen_error
from warren.node.link_tls import make_link_tls
from warren.node.peer_alarms import ALARMS, PeerAlarms
from warren.telemetry.log import logger

if TYPE_CHECKING:
    from warren.config.settings import Endpoint
    from warren.engine.engine import Engine
    from warren.gateway.gateway import Gateway
    from warren.gateway.home import HomeEnd
    from warren.model.errand import Errand
    from warren.net.hub import Hub
    from warren.net.peers.peer_link import PeerLink
    from warren.node.node import Node

#: How often the node looks at what its links heard, in seconds.
LOOK_S = 0.25


class NodeCluster(PeerOwner):
    """Made before the node's store is read; `start` inside the loop; `stop` before the store's."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._engine: Engine = node.engine
        self.log = logger("cluster")
        self.homes = Homes(node.engine, random.Random().randrange)
        node.engine.cluster = self.homes
        self.agreement: Agreement | None = None
        self.links: PeerNetwork | None = None
        self.alarms = PeerAlarms(node.engine, self._send_alarms)
        self._keeper: AgreedKeeper | None = None
        self._opening: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heard_ms: dict[str, int] = {}
        self._members: frozenset[str] = frozenset()
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
        config = AgreementConfig(
            node=self._node.name,
            cluster_name=settings.name or "",
            founders=tuple(sorted({*settings.peers, self._node.name})),
            data_dir=self._node.data_dir,
        )
        self.agreement = Agreement(config, self, self._keeper.applied)

    def start(self, hub: Hub) -> None:
        """Join the running loop and the other nodes. Raises StartError."""
        assert self.agreement is not None
        node, agreement = self._node, self.agreement
        identity = Identity(node.name, agreement.incarnation, agreement.cluster_id)
        tls = make_link_tls(node.settings.cluster.tls)
        self.links = PeerNetwork(hub, identity, node.secret, self.log, self, tls=tls)
        endpoint = self._link_endpoint()
        try:
            self.links.listen(endpoint.host or "127.0.0.1", endpoint.port)
        except OSError as error:
            self.links.close()
            raise listen_error(endpoint, error) from error
        agreement.start(self.links, node.in_turn, node.failure)
        self._call_members()
        self._look()

    def _link_endpoint(self) -> Endpoint:
        try:
            return link_endpoint(self._node.settings)
        except ValueError as error:
            raise StartError(str(error)) from error

    def _call_members(self) -> None:
        """Links go to all members, and at the first start to all who found the cluster."""
        assert self.agreement is not None
        assert self.links is not None
        status = self.agreement.status()
        members = frozenset((*status.voters, *status.learners)) - {self._node.name}
        if members == self._members:
            return
        self._members = members
        endpoints = {name: peer_endpoint(self._node.settings, name) for name in sorted(members)}
        self.links.set_peers(
            {name: (at.host or "127.0.0.1", at.port) for name, at in endpoints.items()}
        )

    async def stop(self) -> None:
        """Leave the others; they are told by the closing of the links."""
        self._stop_looking()
        if self._opening is not None:
            self._opening.cancel()
        if self.agreement is not None:
            await self.agreement.stop()
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
        if self._timer is not None:
            self._timer.cancel()

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
        self.alarms.look()
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    # -- definitions -------------------------------------------------------------------------------

    def _propose(self, change: bytes) -> Errand:
        assert self.agreement is not None
        if len(change) > control_frames.CHANGE_BYTES_MAX:
            raise ResourceError(f"a definition of {len(change)} bytes is too large for the cluster")
        return self.agreement.propose(change)

    def apply(self, entries: Sequence[ApplyDefinition]) -> None:
        """The agreement has decided on changes."""
        assert self._keeper is not None
        self._keeper.apply_agreed([(entry.index, entry.change) for entry in entries])

    def restore(self, index: int, image: bytes) -> None:
        """This node is far behind: all definitions at once."""
        assert self._keeper is not None
        self._keeper.take_over(index, image)

    def image(self) -> bytes:
        """All definitions, for a node that is far behind."""
        assert self._keeper is not None
        return self._keeper.snapshot()

    def nodes_changed(self, change: NodesChanged) -> None:
        """A node came or went: queues that live and die with it go, the others wait for it."""
        assert self._keeper is not None
        if change.what in {Change.DOWN, Change.REGISTERED}:
            self._keeper.forget_transient(change.index, change.node)
        elif change.what is Change.FORGOTTEN:
            self._keeper.forget_all_of(change.index, change.node)
        self.homes.nodes_are({name: node.is_alive for name, node in change.table.items()})

    # -- letting clients in ------------------------------------------------------------------------

    def ready_changed(self, ready: bool) -> None:
        """Whether this node may serve clients."""
        if self._opening is not None:
            self._opening.cancel()
        if ready:
            self._opening = asyncio.get_running_loop().create_task(self._open())
        elif effective_partition_handling(self._node.settings.cluster) != "ignore":
            self.log.warning("no majority of the cluster can be reached: clients are sent away")
            self._opening = asyncio.get_running_loop().create_task(self._node.close_clients())

    async def _open(self) -> None:
        try:
            await self._make_first_content()
            self._node.open_clients()
        except StartError as error:
            self._node.failure.set(error)
        else:
            self.opened.set()

    async def _make_first_content(self) -> None:
        """A cluster without anything gets the default user and virtual host, or the definitions."""
        assert self._keeper is not None
        paths = self._node.definition_paths
        for path in paths:
            await self._import(path)
        if not paths and self._keeper.is_empty:
            for step in self._node.default_content():
                await self._agree(step)

    async def _agree(self, step: Callable[[], object]) -> None:
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

    def on_control(self, peer: str, kind: int, payload: bytes) -> None:
        assert self.agreement is not None
        if kind == ALARMS:
            self.alarms.told(peer, payload)
        else:
            self.agreement.on_control(peer, kind, payload)

    def on_up(self, peer: str, incarnation: int) -> None:
        assert self.agreement is not None
        self.agreement.on_up(peer, incarnation)
        self.alarms.tell(peer)

    def on_down(self, peer: str) -> None:
        assert self.agreement is not None
        self.agreement.on_down(peer)
        self.alarms.gone(peer)

    def on_refused(self, peer: str) -> None:
        assert self.agreement is not None
        self.agreement.on_refused(peer)

    def _send_alarms(self, peer: str | None, payload: bytes) -> None:
        if self.links is not None:
            for name in [peer] if peer is not None else sorted(self._members):
                self.links.send(name, ALARMS, payload)


async def ended(errand: Errand) -> None:
    """Until an errand is over."""
    over = asyncio.Event()
    errand.when_done(over.set)
    await over.wait()
