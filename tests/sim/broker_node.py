"""A simulated node with the product's own engine, mirrors, gateways, placement and store in it.

What is simulated is the outside: time, the loop, disks, links and clients. `NodeCluster` is the
product's own join between agreement, links and homes; `BrokerNode` is its loop and its agreement.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from sim.broker_links import NodeLinks
from sim.broker_loop import NodeLoop
from sim.broker_store import NodeStore
from sim.member_node import MemberNode
from warren.auth.directory import Directory
from warren.cluster import control_frames
from warren.cluster import member_effects as effects
from warren.cluster.raft.effects import Persist, Role
from warren.config.settings import Settings
from warren.engine.engine import Engine
from warren.engine.settings import EngineSettings
from warren.model.errand import Errand
from warren.model.errors import Postponed
from warren.node.agreement import ProposalError
from warren.node.cluster import NodeCluster
from warren.store.faulty_disk import FaultyDisk

if TYPE_CHECKING:
    from sim.broker_client import SimClient
    from sim.broker_cluster import BrokerCluster

LOOK_US = 250_000
#: The engine's clock never says 0.
CLOCK_BASE_MS = 1_000_000

silent = logging.getLogger("warren.simulated")
silent.addHandler(logging.NullHandler())
silent.propagate = False
silent.setLevel(logging.ERROR)


class Complaints(logging.Handler):
    """Whatever the product takes for a fault of its own is one."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(logging.Formatter().format(record))


complaints = Complaints()
silent.addHandler(complaints)


class SimAgreement:
    """What `NodeCluster` asks of its agreement."""

    def __init__(self, node: BrokerNode) -> None:
        self._node = node

    @property
    def member(self) -> Any:
        return self._node.member

    def propose(self, change: bytes) -> Errand:
        return self._node.errand(self._node.member.propose(change))

    def change_view(self, command: Any) -> Errand:
        self._node.cluster.watch.proposed(self._node, command)
        return self._node.errand(self._node.member.change_view(command))

    def everywhere(self) -> Errand:
        return self._node.errand(self._node.member.everywhere())


class SimProduct(NodeCluster):
    """Links and agreement are simulated, the rest is as it is."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        #: What other nodes were asked and have not answered, be it for clients that are gone.
        self.asked: set[Errand] = set()
        ask = self.homes.request

        def request(*arguments: Any, **options: Any) -> Errand:
            errand = ask(*arguments, **options)
            self.asked.add(errand)
            errand.when_done(lambda: self.asked.discard(errand))
            return errand

        self.homes.request = request  # type: ignore[method-assign]

    def on_up(self, peer: str, incarnation: int) -> None:
        self.rings.peer_up(peer)
        self.forking.came(peer)

    def on_down(self, peer: str) -> None:
        self.rings.peer_down(peer)
        self.forking.gone(peer)


class BrokerNode(MemberNode):
    """See the module's text."""

    cluster: BrokerCluster
    settings = Settings()

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self.platter = FaultyDisk(self.world.random.getrandbits(32))
        self.loop = NodeLoop(self)
        self.clients: list[SimClient] = []
        self.is_ready = self.is_stopping = False
        #: An operator wants it in, until it serves clients.
        self.is_joining = False
        #: It stops, and is to start again as soon as it has.
        self.is_wanted_again = False
        self.sync_max_us = 3_000
        #: Whether links go on by themselves with what they have left unread.
        self.reads_on = False

    # -- helpers for whoever acts on it

    @property
    def is_paused(self) -> bool:
        return self._paused

    @property
    def lets_clients_in(self) -> bool:
        """Whether clients may connect."""
        return self.is_ready and not self.is_stopping

    def now_engine_ms(self) -> int:
        return CLOCK_BASE_MS + self.now_ms

    def in_life(self, action: Callable[[], None]) -> Callable[[], None]:
        """Only while this life lasts."""
        return self._in_this_life(action)

    def soon(self, action: Callable[[], None]) -> Callable[[], None]:
        """The same, and when the node is awake."""
        boot = self.boot

        def act() -> None:
            if not self.is_up:
                return
            if self._paused:
                self._backlog.append(guarded)
            elif self.boot == boot:
                action()

        def guarded() -> None:
            if self.is_up and self.boot == boot:
                action()

        return act

    def later(self, action: Callable[[], None]) -> None:
        """When what goes on now is over."""
        self.world.after(0, self.soon(action))

    def sync_delay(self) -> int:
        return self.world.random.randint(100, self.sync_max_us)

    # -- life

    def start(self) -> None:
        if self.is_up:
            return
        self.boot += 1
        self.is_up = True
        self._paused = self.is_ready = self.is_stopping = self.is_wanted_again = False
        self._backlog, self._tick_at, self._armed_ms = [], 0, 0
        self._heard_ms, self._linked, self.asked = {}, {}, {}
        self._errands: dict[int, Errand] = {}
        self._is_waking = False
        self._depth = 0
        self.clients = []
        self.applied_index = 0
        try:
            with self.loop.running():
                self._build()
        except OSError as error:
            self._fail_to_start(error)
            return
        self.world.note(f"start {self.name} boot={self.boot} applied={self.keeper.applied}")
        for number, mirror in self.engine.mirrors.by_number.items():
            log = mirror.log
            self.world.note(
                f"{self.name} has {number} up to {log.last_index}, {log.applied_index} applied, "
                f"{mirror.queue.ready} messages {'broken' if log.is_broken else ''}"
            )
        for damage in self.store.damages:
            self.world.note(f"{self.name} {damage}")
        self.cluster.promises.doubted(self)
        self.links.start()
        self.store.start()
        self.in_turn(self._catch_up)
        self.pump()
        dice = self.world.random
        self.world.after(dice.randint(0, 120_000), self.in_life(self._look_at_links))
        self.world.after(dice.randint(0, LOOK_US), self.in_life(self._look))

    def _fail_to_start(self, error: OSError) -> None:
        """Its disk fails when its log is read: it ends, and somebody starts it again."""
        self.world.note(f"{self.name} cannot start: {error}")
        self.is_up = False
        self.disk.crash()
        self.platter.cut_power()
        self.platter.faults = type(self.platter.faults)()
        self.cluster.restart_later(self)

    def _build(self) -> None:
        dice, count = self.world.random, iter(range(1, 1 << 30))
        clock = SimpleNamespace(
            now_ms=self.now_engine_ms, wall_s=lambda: 1_700_000_000 + self.now_ms // 1000
        )
        tokens = SimpleNamespace(token=lambda: f"{self.name}.{self.boot}.{next(count)}")
        self.engine = Engine(
            EngineSettings(node_name=self.name), Directory(), clock, tokens, silent
        )
        self.engine.effects.on_postponed = self._pump_later
        self.links = NodeLinks(self)
        shell = SimpleNamespace(
            engine=self.engine,
            name=self.name,
            settings=self.settings,
            data_dir=Path("/nonexistent"),
            in_turn=self.in_turn,
            failure=SimpleNamespace(error=None, set=lambda _error: None),
            is_open=True,
        )
        self.product = SimProduct(cast("Any", shell))
        self.product.log = silent
        self.product.homes._pick = dice.randrange
        self.product.links = cast("Any", self.links)
        self._equip()
        self.store = NodeStore(self, self.product.make_keeper)
        self.keeper = self.product._keeper
        self.product.queue_views.learn()
        self.member = self.cluster.member_class(
            self.name,
            self.disk.stored,
            self.cluster.member_settings,
            dice.randint,
            self.boot,
            self.now_ms,
            cluster_id="sim",
            seeds=tuple(self.cluster.nodes),
            joins=self.is_joining,
            definitions_applied=self.product.begin_mending(),
            fresh=self.product.rings.are_damaged,
            behind=self.product.rings.are_cut,
            sessions_class=self.cluster.sessions_class,
        )
        self.raft = self.member.raft
        self.product.agreement = cast("Any", SimAgreement(self))
        self.product.rings.start(self.boot)

    def _equip(self) -> None:
        """What else a node has, before its log is read."""

    def _catch_up(self) -> None:
        now_ms = self.now_engine_ms()
        for vhost in list(self.engine.vhosts.values()):
            for queue in list(vhost.queues.values()):
                if queue.ready:
                    queue.expire(now_ms)

    def crash(self) -> None:
        if not self.is_up:
            return
        self.world.note(f"crash {self.name}")
        self.is_up = self.is_ready = False
        self.product.placement.stop()
        self.disk.crash()
        self.store.crash()
        self.links.crashed()
        self._drop_clients()

    def _drop_clients(self) -> None:
        clients, self.clients = self.clients, []
        for client in clients:
            client.node_gone()

    def stop(self) -> None:
        """As an operator stops it: clients go, masters are handed over, then it ends in order."""
        if not self.is_up or self.is_stopping or self._paused:
            return
        self.world.note(f"stop {self.name}")
        self.is_stopping = True
        self.send_clients_away()
        with self.loop.running():
            task = self.loop.create_task(self._stop())
        task.add_done_callback(lambda it: it.result())

    async def _stop(self) -> None:
        await self.product.rings.hand_over()
        self.product.placement.stop()
        self.member.hand_over()
        self.pump()
        payload = control_frames.encode(control_frames.Stopped(self.boot))
        for name in self.cluster.nodes:
            if name != self.name:
                head = bytes((control_frames.STOPPED,)) + self.boot.to_bytes(4, "big")
                self.cluster.network.send(self.name, name, head + payload)
        try:
            self.store.stop()
        except OSError:
            self.fail_disk()
            return
        self.world.note(f"stopped {self.name}")
        self.is_up = self.is_ready = False
        self.disk.crash()
        self.links.crashed()
        self._drop_clients()
        if self.is_wanted_again:
            self.world.after(0, self.start)

    def send_clients_away(self) -> None:
        self.in_turn(lambda: self.engine.close_all("shutdown"))
        for client in list(self.clients):
            self.world.after(5_000, client.hang_up_of(self.boot))

    # -- turns

    def in_turn(self, action: Callable[[], Any]) -> Any:
        """One turn of the node, and what a hub does at its end."""
        try:
            return self._turn(action)
        except OSError:
            if self._depth or not self.is_up:
                raise
            # The log takes no more: as the product does, it says nothing more to anybody.
            self.fail_disk()
            return None

    def _turn(self, action: Callable[[], Any]) -> Any:
        engine = self.engine
        with self.loop.running():
            if self._depth == 0:
                engine.turn.now_ms = self.now_engine_ms()
                engine.turn.now_us = self.world.now_us
            self._depth += 1
            try:
                result = action()
                engine.run_effects()
            finally:
                self._depth -= 1
            if self._depth == 0 and self.is_up:
                self._end_turn()
        return result

    def _end_turn(self) -> None:
        engine = self.engine
        self._depth += 1
        try:
            while engine.resuming:
                actions = list(engine.resuming)
                engine.resuming.clear()
                for action in actions:
                    action()
                for client in list(self.clients):
                    client.feed(b"")
            if engine.effects.pending:
                engine.run_effects()
            engine.turn.end()
            self.store.end_turn()
            engine.turn.end()
        finally:
            self._depth -= 1
        self.links.flush()
        for client in self.clients:
            client.collect()
        self._arm()
        self.cluster.watch.turn(self)

    def _arm(self) -> None:
        due_ms = self.engine.timers.next_ms()
        if due_ms is not None and (not self._armed_ms or due_ms < self._armed_ms):
            self._armed_ms = due_ms
            at_us = int((due_ms - CLOCK_BASE_MS) * 1000 / self.clock_rate) + 1000
            self.world.at(at_us, self.soon(lambda: self._ring(due_ms)))

    def _ring(self, due_ms: int) -> None:
        if due_ms == self._armed_ms:
            self._armed_ms = 0
            self.in_turn(self.engine.tick)

    def _pump_later(self, queue: Any) -> None:
        self.later(lambda: self.in_turn(lambda: queue.run(self.now_engine_ms())))

    # -- the agreement

    def errand(self, ticket: int) -> Errand:
        errand = self._errands[ticket] = Errand()
        self.wake()
        return errand

    def wake(self) -> None:
        if not self._is_waking:
            self._is_waking = True
            self.later(self._woken)

    def _woken(self) -> None:
        self._is_waking = False
        self.pump()

    def pump(self) -> None:
        if self.is_up:
            self.in_turn(self._carry_all_out)
        if self.is_up:
            self.cluster.promises.look(self)
            self._schedule_tick()

    def _carry_all_out(self) -> None:
        while taken := self.member.take_effects():
            for kind, same in groupby(taken, type):
                if kind is effects.ApplyDefinition:
                    self.product.apply(cast("list[effects.ApplyDefinition]", list(same)))
                    continue
                for effect in same:
                    if self.is_up:
                        self._do(effect)
        self.applied_index = self.member.applied_index
        self.product.reached(self.applied_index)

    def _do(self, effect: effects.MemberEffect) -> None:
        match effect:
            case effects.SendFrame():
                head = bytes((effect.kind,)) + self.boot.to_bytes(4, "big")
                self.cluster.network.send(self.name, effect.to, head + effect.payload)
            case Persist():
                self.disk.write(effect, self._on_synced(), self.in_life(self.fail_disk))
            case effects.RestoreDefinitions():
                for _ in self.product.restore(effect.index, effect.image) or ():
                    pass
            case effects.NodesChanged():
                self.cluster.promises.nodes_changed(self, effect)
                self.product.nodes_changed(effect)
            case effects.ViewsChanged():
                self.cluster.watch.views_changed(self, effect)
                self.product.views_changed(effect)
            case effects.ProposalDone():
                errand = self._errands.pop(effect.ticket, None)
                if errand is not None:
                    errand.finish(effect.index)
            case effects.ProposalFailed():
                errand = self._errands.pop(effect.ticket, None)
                if errand is not None:
                    errand.fail(ProposalError(effect.why))
            case effects.LeaderChanged():
                self.product.leads_changed(effect.role is Role.LEADER)
            case effects.ReadyChanged():
                self._ready_changed(effect.ready)
            case effects.SnapshotNeeded():
                self.member.compact(effect.index, self.product.image())
            case effects.Refused():
                self.cluster.promises.refused(self, effect.reason)

    def _ready_changed(self, ready: bool) -> None:
        self.is_ready = ready
        if ready:
            self.is_joining = False
            self.engine.burials.release()
        if not ready and not self.is_stopping:
            # Without a majority: as `pause_minority` has it.
            self.later(self.send_clients_away)

    def _look(self) -> None:
        self.world.after(LOOK_US, self.in_life(self._look))
        if not self._paused:
            self.in_turn(self.product.placement.look)

    # -- orders of operators

    def order(self, step: Callable[[], object]) -> Errand | None:
        """One change of the definitions; None: it is made, or needs none."""
        try:
            self.in_turn(step)
        except Postponed as later:
            return later.errand
        return None
