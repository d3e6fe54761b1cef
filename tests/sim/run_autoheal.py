"""One schedule with `cluster_partition_handling = autoheal`: both sides of a partition go on.

The cluster is split for long enough that queues are forked. Clients stay on all sides. Nodes die in
the middle of the split and of the merge. In the end nothing that was confirmed is missing, what
clients of a fork have let go of is gone, and each message of a fork was brought back once.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

from gateway.small_disk import SmallDisk
from sim.broker_actors import Publisher
from sim.broker_cluster import BrokerCluster, Watch
from sim.broker_faults import Operator
from sim.broker_ledger import Ledger, name_of
from sim.broker_node import BrokerNode
from sim.run_broker import BrokerResult, Schedule
from sim.world import Violation, World
from warren.config.settings import Settings
from warren.engine.fork_slots import digest_of, message_at
from warren.gateway.stash import StashRoom
from warren.store.fork_files import FORK_BIT, ForkNote, Lost
from warren.wire.tables import split_entries

NAMESPACE = 1 << 43
_SETTINGS = Settings()
HEALING = dataclasses.replace(
    _SETTINGS, cluster=dataclasses.replace(_SETTINGS.cluster, partition_handling="autoheal")
)


class MemoryForkFiles:
    """What a node's directory of forks has on the disk."""

    def __init__(self) -> None:
        self._last = 0
        self._kept: dict[int, tuple[ForkNote, bytes]] = {}
        self._lost: dict[int, list[Lost]] = {}

    def reserve(self) -> int:
        self._last += 1
        return FORK_BIT | self._last

    def keep(self, note: ForkNote, rows: bytes) -> None:
        self._kept[note.number] = (note, rows)

    def notes(self) -> list[ForkNote]:
        return [note for note, _ in self._kept.values()]

    def unreadable(self) -> set[int]:
        return set()

    def rows(self, number: int) -> bytes | None:
        return self._kept[number][1] if number in self._kept else None

    def lose(self, number: int, lost: list[Lost]) -> None:
        self._lost[number] = list(lost)

    def lost(self, number: int) -> list[Lost] | None:
        return self._lost.get(number, [])

    def drop(self, number: int) -> None:
        self._kept.pop(number, None)
        self._lost.pop(number, None)


class ForkNode(BrokerNode):
    """A broker whose clients stay when the majority is lost."""

    settings = HEALING
    cluster: ForkCluster

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self.fork_files = MemoryForkFiles()
        self.is_open = False
        # Forks are plain queues: whoever waits for their log is not reminded by a ring.
        self.reads_on = True

    def start(self) -> None:
        self.is_open = self.is_open and self.is_up
        super().start()

    def _equip(self) -> None:
        forks = self.engine.mirrors.forks
        forks.files = self.fork_files
        names = frozenset(self.cluster.nodes) - {self.name}
        self.product._members = names
        self.product.homes.stash_room = StashRoom(
            SmallDisk().open, 1 << 30, window=2_000, chunk=600
        )
        self.engine.listeners.append(self._heard)
        add = forks.merging.add

        def watched(fork: Any) -> None:
            add(fork)
            merge = forks.merging._merges[fork.note.number]
            self.cluster.watch.to_merge(self, fork.note, merge)

        forks.merging.add = watched  # type: ignore[method-assign]

    def _heard(self, event: str, details: dict[str, Any]) -> None:
        if event.startswith("queue.fork"):
            self.world.note(f"{self.name} {event} {details}")
            if event == "queue.fork_merged":
                self.cluster.watch.counts["brought back"] += details["messages"]
                self.cluster.watch.counts["acks applied"] += details["acknowledged"]
            self.cluster.watch.tell(event, self)

    @property
    def lets_clients_in(self) -> bool:
        return self.is_up and self.is_open and not self.is_stopping

    def _ready_changed(self, ready: bool) -> None:
        self.is_ready = ready
        if ready:
            self.is_open = True
            self.in_turn(self.product.forking.majority_spoke)
            self.engine.burials.release()

    def _look(self) -> None:
        super()._look()
        if self.is_up and not self.is_paused:
            self.in_turn(lambda: self.product.forking.look(self.is_ready, self.is_open))

    @property
    def has_forks(self) -> bool:
        if not self.is_up:
            return bool(self.fork_files.notes())
        forks = self.engine.mirrors.forks
        return bool(forks.open) or forks.merging.count > 0


class ForkLedger(Ledger):
    """Order is not kept over a split."""

    def check_order(self, consumer: str, name: bytes) -> None: ...


class ForkWatch(Watch):
    """Knows what clients of forks have let go of."""

    def __init__(self, cluster: BrokerCluster) -> None:
        super().__init__(cluster)
        self.settled: set[tuple[int, int, bytes]] = set()

    def to_merge(self, node: BrokerNode, note: ForkNote, merge: Any) -> None:
        self.cluster.world.note(
            f"{node.name} {note.tag}: {len(merge.new)} new, {len(merge.settled)} settled"
        )
        self.settled.update((note.queue, *row) for row in merge.settled.items())


class ForkCluster(BrokerCluster):
    """See the module's text."""

    node_type = ForkNode
    nodes: dict[str, ForkNode]  # type: ignore[assignment]

    def __init__(self, *arguments: Any, **limits: Any) -> None:
        super().__init__(*arguments, **limits)
        self.ledger = ForkLedger(self.world)
        self.watch: ForkWatch = ForkWatch(self)


class Splits:
    """Parts the nodes for some seconds, again and again, and kills some of them meanwhile."""

    def __init__(self, schedule: ForkSchedule, count: int) -> None:
        self.schedule, self.cluster = schedule, schedule.cluster
        self.world = schedule.cluster.world
        self.left = count

    @property
    def is_over(self) -> bool:
        return self.left == 0

    def start(self) -> None:
        self.world.after(self.world.random.randint(200_000, 1_500_000), self._part)

    def _part(self) -> None:
        dice = self.world.random
        names = list(self.cluster.nodes)
        dice.shuffle(names)
        how = dice.random()
        if how < 0.15:
            sides = [[name] for name in names]
        elif how < 0.3:
            half = len(names) // 2
            sides = [names[:half], names[half:]]
        else:
            few = dice.randint(1, max(1, (len(names) - 1) // 2))
            sides = [names[:few], names[few:]]
        self.world.note(f"split {sides}")
        for number, side in enumerate(sides):
            for other in sides[number + 1 :]:
                self.cluster.network.part(side, other)
        lasts_us = dice.randint(5_000, 10_000) * 1000
        if dice.random() < 0.5:
            self.world.after(dice.randint(4_000_000, lasts_us + 1_000_000), self._kill_forked)
        if dice.random() < 0.4:
            self._aim()
        self.world.after(lasts_us, self._join)

    def _kill_forked(self) -> None:
        forked = [node for node in self.cluster.nodes.values() if node.is_up and node.has_forks]
        if forked:
            self._kill(self.world.random.choice(forked))

    def _kill(self, node: BrokerNode) -> None:
        self.world.note(f"splits kill {node.name}")
        node.crash()
        self.cluster.restart_later(node, 50, 3_000)

    def _aim(self) -> None:
        """Somebody dies when a fork is opened, closed or merged, or soon after."""
        dice = self.world.random
        what = dice.choice(("queue.fork_opened", "queue.fork_closed", "queue.fork_merged"))
        delay = dice.choice((0, 1_000, 20_000, 60_000, 200_000))
        is_other = dice.random() < 0.5

        def aim(happened: str, node: BrokerNode) -> None:
            if happened == what:
                self.cluster.watch.aim = None
                nodes = list(self.cluster.nodes.values())
                victim = dice.choice(nodes) if is_other else node
                self.world.after(delay, lambda: self._kill(victim))

        self.cluster.watch.aim = aim

    def _join(self) -> None:
        self.world.note("joined")
        self.cluster.network.heal()
        self.left -= 1
        if not self.is_over:
            self.world.after(self.world.random.randint(300_000, 6_000_000), self._part)


class ForkOperator(Operator):
    """Most queues are mirrored on several nodes, or there would be nothing to fork."""

    def definitions(self) -> list[dict[str, Any]]:
        everywhere = {"ha-mode": "all", "ha-sync-mode": "automatic"}
        return [everywhere, everywhere, *super().definitions()]


class ForkSchedule(Schedule):
    """See the module's text."""

    cluster: ForkCluster

    def __init__(self, seed: int, seen: Callable[[World], None] | None = None) -> None:
        super().__init__(NAMESPACE + seed, seen, ForkCluster)
        self.operator = ForkOperator(self.cluster, self.queues, self.operator.every_us)
        self.splits = Splits(self, self.dice.choice((1, 1, 2)))
        self.has_more_trouble = self.dice.random() < 0.3
        self.nemesis.every_us = 2_000_000

    def run(self) -> BrokerResult:
        if not self.has_more_trouble:
            self.nemesis.start = self.operator.start = lambda: None  # type: ignore[method-assign]
        return super().run()

    def add(self, actor: Any) -> None:
        if isinstance(actor, Publisher):
            # A split takes long, and a few messages tell as much as many.
            actor.every_us *= 6
        super().add(actor)

    def set_up(self) -> None:
        super().set_up()
        self.splits.start()
        self.trouble_ms = 1_000

    def make_peace(self) -> None:
        self.cluster.run_until(lambda: self.splits.is_over, 60_000)
        self.cluster.watch.aim = None
        super().make_peace()

    def problems(self) -> list[str]:
        found = [
            f"{node.name} has forks: {node.engine.mirrors.forks.describe()}"
            for node in self.cluster.nodes.values()
            if node.has_forks
        ]
        return found or super().problems()

    def drain(self) -> list[Any]:
        self._check_merged()
        return super().drain()

    def _check_merged(self) -> None:
        """What a fork's clients have acknowledged is gone, and all else was brought back once."""
        node = self.cluster.ready[0]
        for queue in self.queues:
            known = node.engine.vhosts["/"].queues[queue]
            copy = node.engine.mirrors.by_number[known.number].queue
            for number, slot, digest in self.cluster.watch.settled:
                message = message_at(copy, slot) if number == known.number else None
                if message is not None and digest_of(message) == digest:
                    name = name_of(bytes(message.body))
                    raise Violation(f"{name!r} was settled in a fork, and is still there")
            times: Counter[tuple[bytes, bytes]] = Counter()
            for row in copy.walk():
                message = message_at(copy, row[0])
                table = b"" if message is None else message.headers_table
                fork = split_entries(table).get("x-autoheal") if table else None
                if fork is not None and message is not None:
                    times[fork, name_of(bytes(message.body))] += 1
            again = [it for it, count in times.items() if count > 1]
            if again:
                raise Violation(f"{len(again)} messages came back more than once: {again[:3]}")
            self.cluster.watch.counts["from forks"] += len(times)


def run_autoheal(seed: int, seen: Callable[[World], None] | None = None) -> BrokerResult:
    """Run one schedule; Violation if anything is wrong."""
    return ForkSchedule(seed, seen).run()
