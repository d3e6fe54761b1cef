"""The product's store on a disk in memory: journal, log, checkpoints and recovery, step by step."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from warren.engine.agreed import AgreedKeeper
from warren.store.faulty_disk import Faults, FaultyDisk, PowerCut
from warren.store.records import Kind
from warren.store.recovery import Recovery
from warren.store.start_marks import CUT_MARK, DAMAGE_MARK, clear_mark, keep_damage
from warren.store.stepped_log import SteppedLog
from warren.store.upkeep import Upkeep, UpkeepSettings

if TYPE_CHECKING:
    from sim.broker_node import BrokerNode

TICK_US = 50_000
WALL_OFFSET_MS = 1_700_000_000_000


class NodeStore:
    """One life of a node's store, as `node.store.NodeStore` joins its parts."""

    def __init__(self, node: BrokerNode, make_keeper: Callable[..., AgreedKeeper]) -> None:
        self._node = node
        engine = node.engine
        self.platter: FaultyDisk = node.platter
        self.keeper = make_keeper(engine, lambda it: self.journal.put(Kind.METADATA, it))
        self.keeper.on_queue = self._enrol
        self.keeper.on_queue_gone = self._strike_off
        plan = node.cluster.store_plan
        recovery = Recovery(self.platter, WALL_OFFSET_MS, plan.salt)
        self.journal = engine.journal = recovery.journal
        engine.mirrors.attach_journal(self.journal)
        recovery.run(self.keeper.load, self.keeper.apply)
        self.log = SteppedLog(
            self.platter,
            recovery.next_sequence,
            plan.segment_bytes,
            recovery.last_segment,
            self.journal.salt,
        )
        self.damages = recovery.damages
        engine.mirrors.is_cut = recovery.is_cut
        engine.mirrors.on_registered = self._all_is_told
        if keep_damage(self.platter, bool(recovery.damages), engine.mirrors.is_damaged):
            engine.mirrors.doubt()
            self.keeper.is_doubtful = True
        engine.mirrors.is_doubtful = engine.mirrors.is_damaged
        self.journal.start(self.log)
        self.keeper.attach()
        self.upkeep = Upkeep(self.journal, self.platter, self.keeper.snapshot, plan.upkeep)
        self._is_syncing = False
        self._synced = 0

    def _enrol(self, queue: Any) -> None:
        self.journal.queues[queue.queue_id] = queue
        queue.attach(self.journal)

    def _strike_off(self, queue: Any) -> None:
        self.journal.queues.pop(queue.queue_id, None)
        queue.detach()

    def _all_is_told(self) -> None:
        clear_mark(self.platter, CUT_MARK)
        if not self._node.engine.mirrors.forks.merging.is_in_doubt:
            clear_mark(self.platter, DAMAGE_MARK)

    # -- at work

    def start(self) -> None:
        self._node.world.after(TICK_US, self._node.in_life(self._tick))
        self._node.engine.mirrors.scrub.go_through()

    def _tick(self) -> None:
        node = self._node
        node.world.after(TICK_US, node.in_life(self._tick))
        if node.is_paused:
            return

        def keep_up() -> None:
            self.journal.finish_turn()
            self.journal.advance()
            self.upkeep.tick()

        node.in_turn(keep_up)
        if node.is_up and self.upkeep.error is not None:
            node.fail_disk()

    def end_turn(self) -> None:
        """What the turn has written is synced some time later, with all that comes meanwhile."""
        self.journal.finish_turn()
        if not self._is_syncing and self.log.pending_bytes:
            self._is_syncing = True
            node = self._node
            # The disk goes on while its node is paused.
            node.world.after(node.sync_delay(), node.in_life(self._sync))

    def _sync(self) -> None:
        self._is_syncing = False
        self.log.step()
        node = self._node
        node.world.after(node.world.random.choice((0, 0, 300)), node.soon(self._synced_more))

    def _synced_more(self) -> None:
        node = self._node
        node.in_turn(lambda: self.journal.moved_on(node.engine.turn.now_ms))

    # -- the end

    def crash(self) -> None:
        """What is not synced is lost, or some of it is there: a write may be cut in the middle."""
        dice = self._node.world.random
        if dice.random() < 0.4:
            self.platter.cut_at = self.platter.operations + dice.randint(1, 4)
            with suppress(PowerCut):
                self.log.step()
        self.platter.cut_power()
        self.platter.faults = Faults()
        self.let_go()

    def stop(self) -> None:
        """A clean end."""
        self.upkeep.write_now(clean=True)
        self.let_go()

    def let_go(self) -> None:
        self.journal.queues.clear()


def plan_upkeep(dice: Any) -> UpkeepSettings:
    """Small bounds, so that checkpoints and compaction happen."""
    return UpkeepSettings(
        checkpoint_bytes=dice.choice((20_000, 60_000, 200_000)),
        dead_bytes=dice.choice((1, 40_000)),
        patience_ticks=dice.choice((3, 20)),
        compact_below=dice.choice((0.25, 0.6)),
        waste_bytes=dice.choice((10_000, 100_000)),
        inline_chunks=dice.choice((1, 32)),
        indexes_a_tick=2,
    )
