"""A simulated node with queues and policies in its definitions, and the leader's placement.

Queues hold nothing. Their masters say now and then that a mirror has everything, or does not keep
up; who that is, and whether it is true, is the business of the rings' simulator.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sim.ledger import Ledger
from sim.member_node import MemberNode
from sim.world import Violation
from warren.cluster import member_effects as effects
from warren.cluster.metadata import View, ViewCommand
from warren.cluster.metadata_commands import Expand, Shrink
from warren.cluster.placement import Wish
from warren.cluster.raft.effects import Role
from warren.model.errand import Errand
from warren.model.policy import EffectiveArguments
from warren.node.agreement import ProposalError
from warren.node.placement import Placement

if TYPE_CHECKING:
    from sim.run_placed import PlacedCluster

#: How soon what has failed is tried again.
LOOK_US = 250_000


@dataclass(slots=True)
class Placed:
    """A queue as `Placement` knows it."""

    number: int
    home: str
    born_mirrored: bool
    effective: EffectiveArguments
    declaration: Any = field(default_factory=lambda: SimpleNamespace(exclusive=False))
    name: str = ""
    #: No operator has asked for mirrors by name.
    vhost: Any = field(default_factory=lambda: SimpleNamespace(mirror_links={}))
    #: The life of the home that it was declared in, as this node saw it; 0: not known.
    born: int = 0


def effective_of(mode: str, param: str, promote: str) -> EffectiveArguments:
    """`all -`, `exactly 2`, `nodes n1+n2`, or `none`; and `always` where losses are taken."""
    if mode == "none":
        return EffectiveArguments()
    given = {"ha_promote_on_failure": promote or "when-synced", "ha_mode": mode}
    if mode == "exactly":
        return EffectiveArguments(ha_params=int(param), **given)
    names = tuple(param.split("+")) if mode == "nodes" else None
    return EffectiveArguments(ha_params=names, **given)


def wish_in(queue: Placed) -> Wish:
    """What the policy of a queue wants, for the oracle."""
    params = queue.effective.ha_params
    if isinstance(params, tuple):
        return Wish(queue.effective.ha_mode, names=params)
    return Wish(queue.effective.ha_mode, count=params or 1)


class PlacedNode(MemberNode):
    """Its definitions are commands such as `p1/7 declare 3 n1` and `p1/8 policy exactly 2`."""

    cluster: PlacedCluster

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self._forget_all()
        self.placement = self._make_placement()

    def _forget_all(self) -> None:
        self.placed: dict[int, Placed] = {}
        self.policy = EffectiveArguments()
        self.incarnations: dict[str, int] = {}
        self.views_told: dict[str, View] = {}
        self.errands: dict[int, Errand] = {}
        self._is_waking = False

    def _make_placement(self) -> Placement:
        return Placement(
            self,  # type: ignore[arg-type]
            lambda: self.member.views,
            lambda: self.member.nodes,
            self.order,
            self._wake,
            lambda: self.now_ms,
            self._find_best,
        )

    def _find_best(self, _queue: Any, names: tuple[str, ...]) -> Errand:
        """By dice, and it takes a while; its owner may be dead by then."""
        errand = Errand()
        name = self.world.random.choice(names)
        delay_us = self.world.random.choice((0, 1_000, 500_000))
        finish = self._in_this_life(lambda: errand.finish(name))
        self.world.after(delay_us, lambda: self._when_awake(finish))
        return errand

    # -- what `Placement` asks of the queues

    def numbers(self) -> list[int]:
        return sorted(self.placed)

    def queue(self, number: int) -> Placed | None:
        return self.placed.get(number)

    def empty_since(self, number: int) -> int:
        return self.placed[number].born

    def on_touched(self, number: int | None) -> None:
        """Replaced by `Placement`."""

    # -- life

    def start(self) -> None:
        if self.is_up:
            return
        self._forget_all()
        self.placement = self._make_placement()
        index, image = self.kept
        if index:
            kept = Ledger()
            kept.restore(image)
            self._fold(kept)
        super().start()
        self._look()

    def _fold(self, ledger: Ledger) -> None:
        """All definitions at once; what happened since is not known."""
        self.placed, self.policy = {}, EffectiveArguments()
        for command in ledger.commands:
            self._carry_out(command.decode(), restored=True)
        self.on_touched(None)

    def _look(self) -> None:
        self.world.after(LOOK_US, self._in_this_life(self._look))
        self._when_awake(self._in_this_life(self.placement.look))

    def _wake(self) -> None:
        if not self._is_waking:
            self._is_waking = True
            self.world.after(0, lambda: self._when_awake(self._in_this_life(self._run)))

    def _run(self) -> None:
        self._is_waking = False
        self.placement.run()
        self.pump()

    # -- definitions

    def _define(self, effect: effects.ApplyDefinition) -> None:
        super()._define(effect)
        self._carry_out(effect.change.decode(), restored=False)

    def _carry_out(self, command: str, restored: bool) -> None:
        _, what, *rest = (*command.split(), "", "", "")
        if what == "declare":
            number = int(rest[0])
            born_mirrored = self.policy.ha_mode is not None
            queue = Placed(number, rest[1], born_mirrored, self.policy)
            if born_mirrored and not restored:
                queue.born = self.incarnations.get(queue.home, 0)
            self.placed[number] = queue
            self.on_touched(number)
        elif what == "delete":
            self.placed.pop(int(rest[0]), None)
            self.on_touched(int(rest[0]))
        elif what == "policy":
            self.policy = effective_of(rest[0], rest[1], rest[2])
            for queue in self.placed.values():
                queue.effective = self.policy
            self.on_touched(None)

    # -- views

    def order(self, command: ViewCommand) -> Errand:
        errand = Errand()
        self.errands[self.member.change_view(command)] = errand
        return errand

    def _views_changed(self, effect: effects.ViewsChanged) -> None:
        self.cluster.view_oracle(self, effect)
        for key, view in effect.views.items():
            if view is None:
                self.views_told.pop(key, None)
            else:
                if effect.registered:
                    self._check_birth(int(key), view)
                self.views_told[key] = view
                queue = self.placed.get(int(key))
                if queue is not None:
                    queue.home = view.master or queue.home
                if view.master == self.name and effect.registered:
                    self._serve(key, view)
            self.on_touched(int(key))

    def _check_birth(self, number: int, view: View) -> None:
        """Mirrors may begin in sync only if nothing can have been put into the queue."""
        queue = self.placed.get(number)
        if view.epoch == 1 and len(view.in_sync) > 1 and queue is not None:
            if view.master == self.name and queue.born not in {0, self.boot}:
                raise Violation(f"queue {number} was born in another life of {self.name}")
            if view.master == self.name and not queue.born_mirrored:
                raise Violation(f"queue {number} may hold something")

    def _serve(self, key: str, view: View) -> None:
        """A learner has everything after a while; somebody in sync may fall behind."""
        dice = self.world.random
        if view.learners:
            newcomer = dice.choice(view.learners)
            self._later(dice.randint(1, 300) * 1000, Expand(key, view.epoch, newcomer))
        others = [name for name in view.in_sync if name != self.name]
        if others and not self.cluster.is_calm and dice.random() < 0.1:
            shrink = Shrink(key, view.epoch, dice.choice(others))
            self._later(dice.randint(1, 500) * 1000, shrink)

    def _later(self, delay_us: int, command: ViewCommand) -> None:
        def act() -> None:
            self.order(command)
            self.pump()

        self.world.after(delay_us, lambda: self._when_awake(self._in_this_life(act)))

    # -- effects

    def _do(self, effect: effects.MemberEffect) -> None:
        match effect:
            case effects.ViewsChanged():
                self._views_changed(effect)
            case effects.ProposalDone() | effects.ProposalFailed() if effect.ticket in self.errands:
                errand = self.errands.pop(effect.ticket)
                if isinstance(effect, effects.ProposalDone):
                    errand.finish()
                else:
                    self.cluster.promises.counts[effect.why] += 1
                    errand.fail(ProposalError(effect.why))
            case effects.LeaderChanged():
                self.placement.leads_changed(effect.role is Role.LEADER)
            case effects.NodesChanged():
                super()._do(effect)
                self.incarnations = {n: node.incarnation for n, node in effect.table.items()}
                self.on_touched(None)
            case effects.RestoreDefinitions():
                super()._do(effect)
                self._fold(self.ledger)
            case _:
                super()._do(effect)

    def pump(self) -> None:
        super().pump()
        if self.is_up and self.views_told != self.member.views:
            raise Violation(f"{self.name} was not told of all views")
