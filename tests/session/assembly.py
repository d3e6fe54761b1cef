"""Engines that agree on definitions and on views, and one of them that places mirrors.

The state machine of views is the real one. Nobody carries messages from replica to replica here:
`Mirrors` only notes what it is told.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from parliament import Parliament

from warren.cluster.member_effects import ViewsChanged, Why
from warren.cluster.metadata import Metadata, View
from warren.cluster.metadata_commands import Answer, Command, Forget, NodeDown, NodeUp, Register
from warren.engine.engine import Engine
from warren.engine.homes import absence_text
from warren.model.errand import Errand
from warren.model.errors import Postponed
from warren.model.policy import Policy
from warren.node.agreement import ProposalError
from warren.node.placement import Placement
from warren.node.views import QueueViews


class Mirrors:
    """What this node would do with its copies."""

    def __init__(self) -> None:
        self.told: list[tuple[str, View, bool]] = []
        #: Numbers of the queues that this node would have a copy of.
        self.by_number: set[int] = set()

    def govern(self, queue: Any) -> None:
        """Policies of rings mean nothing here."""

    def queue_removed(self, number: int) -> None:
        """There is no copy to strike off."""

    def view_changed(self, queue: Any, view: View, registered: bool) -> None:
        self.told.append((queue.name, view, registered))
        self.by_number.add(queue.number)


class Assembly(Parliament):
    """`settle` carries out definitions and views in the order they were proposed."""

    def __init__(self, count: int = 3) -> None:
        self.metadata = Metadata()
        self.now_ms = 0
        #: Keys of policies that a test adds to its own.
        self.extra: dict[str, Any] = {}
        self.commands: list[tuple[Command, Errand]] = []
        self.everywhere: list[Errand] = []
        self.views: list[QueueViews] = []
        self.mirrors: list[Mirrors] = []
        self.placements: list[Placement] = []
        super().__init__(count)
        for engine in self.engines:
            self._join(engine)
        for engine in self.engines:
            self.decree(Register(engine.settings.node_name, 1, False))
        self.lead(0)

    def _join(self, engine: Engine) -> None:
        mirrors = engine.mirrors = Mirrors()
        views = QueueViews(engine, self._wait_everywhere, self._rehome)
        views.learn()
        self.mirrors.append(mirrors)
        self.views.append(views)
        self.placements.append(
            Placement(
                views,
                self.metadata.views,
                self.metadata.nodes,
                self._change_view,
                lambda: None,
                lambda: self.now_ms,
                self._find_best,
            )
        )

    def lead(self, number: int) -> None:
        for one, placement in enumerate(self.placements):
            placement.leads_changed(one == number)

    def _wait_everywhere(self) -> Errand:
        errand = Errand()
        self.everywhere.append(errand)
        return errand

    def _rehome(self, engine: Engine, queue: Any, home: str | None, _planned: bool) -> None:
        """What `moving.rehome` does to the queue itself."""
        queue.absence = absence_text(queue) if home is None else None
        if home is not None:
            engine.queues_at[queue.home] -= 1
            engine.queues_at[home] += 1
            queue.home = home

    def _find_best(self, _queue: Any, names: tuple[str, ...]) -> Errand:
        """The last one by name."""
        errand = Errand()
        errand.finish(max(names))
        return errand

    def _change_view(self, command: Command) -> Errand:
        errand = Errand()
        self.commands.append((command, errand))
        return errand

    # -- what happens

    def decree(self, command: Command) -> Answer:
        """A command of the agreement, carried out on all nodes."""
        self.index += 1
        result = self.metadata.carry_out(self.index, command)
        changed = self.metadata.take_changed_views()
        table = {
            name: (node.incarnation, node.is_alive) for name, node in self.metadata.nodes().items()
        }
        for keeper, views in zip(self.keepers, self.views, strict=True):
            if changed:
                views.changed(ViewsChanged(self.index, dict(changed), True))
            if isinstance(command, NodeDown):
                keeper.forget_transient(self.index, command.node)
            if isinstance(command, Forget):
                keeper.forget_all_of(self.index, command.node)
            if isinstance(command, NodeDown | NodeUp | Register | Forget):
                self._tell_homes(keeper._engine, table)
                views.nodes_are(table)
        return result.answer

    def _tell_homes(self, engine: Engine, table: dict[str, tuple[int, bool]]) -> None:
        """As `Homes.nodes_are` does."""
        for queue in engine.vhosts["/"].queues.values():
            if queue.is_remote:
                is_there = table.get(queue.home, (0, False))[1]
                queue.absence = None if is_there else absence_text(queue)

    def place(self) -> None:
        """Have the leader propose, and nothing more."""
        for placement in self.placements:
            placement.run()

    def decide(self) -> None:
        """Carry out what was proposed about views so far."""
        commands, self.commands = self.commands, []
        for command, errand in commands:
            answer = self.decree(command)
            if answer is Answer.DONE:
                errand.finish()
            else:
                errand.fail(ProposalError(Why.CONFLICT))

    def agree(self, action: Callable[[Engine], object]) -> None:
        """A change of definitions, carried out; views stay behind."""
        with suppress(Postponed):
            action(self.engines[0])
        self.apply_definitions()

    def apply_definitions(self) -> None:
        """Carry out what was proposed about definitions; views stay behind."""
        super().settle()

    def settle(self) -> None:
        self.apply_definitions()
        while True:
            self.go_on()
            for placement in self.placements:
                placement.look()
            self.place()
            if not self.commands and not self.everywhere:
                break
            self.decide()
            waiting, self.everywhere = self.everywhere, []
            for errand in waiting:
                errand.finish()
            self.go_on()
            self.apply_definitions()

    # -- what operators do and see

    def set_policy(self, name: str, pattern: str = "^m", **definition: Any) -> None:
        keys = {key.replace("_", "-"): value for key, value in definition.items()}
        self.agree(lambda engine: engine.set_policy(Policy("/", name, pattern, keys)))

    def clear_policy(self, name: str) -> None:
        self.agree(lambda engine: engine.clear_policy("/", name))

    def view(self, name: str, node: int = 0) -> View | None:
        queue = self.engines[node].vhosts["/"].queues[name]
        return self.metadata.view(str(queue.number))
