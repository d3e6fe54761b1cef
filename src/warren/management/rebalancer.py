"""Spreads the masters of mirrored queues over the nodes: on demand, at a time, or by timer.

Whoever leads the agreement does it, so there is never more than one at work. An appointment is a
global parameter: all nodes know it, and whoever leads when it is due keeps it.
"""

from __future__ import annotations

import asyncio
import datetime
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from warren.management.errors import ApiError, bad_request, not_found
from warren.management.patterns import is_cheap
from warren.management.peers import ACT_S, PeerSilent, Question
from warren.management.rebalancing import STRATEGIES, MirroredQueue, Move, plan
from warren.management.transferring import transfer
from warren.telemetry.log import logger

if TYPE_CHECKING:
    from warren.management.context import Context

APPOINTMENT = "rebalance"
#: One move begins so long after the other. Each is a round through the agreement, a new epoch and
#: some syncs of three disks, some 3 ms of a core in all, which clients wait behind when many come
#: at once: without a pace a thousand queues took a second, and clients waited six times as long as
#: before. So it takes a quarter of a core, and 666 masters move in 8 s. Twice as fast, the p99 of
#: those who publish meanwhile was 3.4 and 10.8 ms where it is 2.8 and 3.0 now.
PACE_S = 0.012
#: No more than these are under way, so where moves take longer than that, since the machine has
#: other things to do, they come slower.
MOVES_AT_A_TIME = 4
#: How often appointments and the timer are looked at.
LOOK_S = 1.0
#: Failures that are told one by one.
FAILURES_MAX = 100
#: An operator who wants to go slower than one master in an hour forgets about it.
PAUSE_S_MAX = 3600.0

_Number = int


class NodeFacts(msgspec.Struct):
    """What one node tells of itself: its clients, and the messages of the queues it masters."""

    connections: int
    messages: dict[_Number, int]


class Order(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What is to be done; None at `at`: at once."""

    strategy: str = "min-masters"
    vhost_pattern: str = ""
    queue_pattern: str = ""
    #: Between two moves, which then go one by one.
    pause_s: float = 0.0
    dry_run: bool = False
    at: str | None = None


def read_order(body: dict[str, Any]) -> Order:
    """The order in a request. Raises 400."""
    try:
        order = msgspec.convert(body, Order)
    except msgspec.ValidationError as error:
        raise bad_request(str(error)) from error
    if order.strategy not in STRATEGIES:
        raise bad_request(f"strategy '{order.strategy}' is not one of {', '.join(STRATEGIES)}")
    if not 0 <= order.pause_s <= PAUSE_S_MAX:
        raise bad_request(f"pause_s must be between 0 and {PAUSE_S_MAX:g}")
    for pattern in (order.vhost_pattern, order.queue_pattern):
        try:
            fine = is_cheap(pattern)
        except re.error as error:
            raise bad_request(f"'{pattern}' is no regular expression: {error}") from error
        if not fine:
            raise bad_request(f"the pattern '{pattern}' would take too long to match")
    if order.at is not None:
        _when(order.at)
    return order


def _when(text: str) -> datetime.datetime:
    """Without a zone it is UTC. Raises 400."""
    try:
        when = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise bad_request(f"'{text}' is no time: give one as 2030-12-31T23:00:00+00:00") from None
    return when if when.tzinfo is not None else when.replace(tzinfo=datetime.UTC)


@dataclass(slots=True)
class Progress:
    """How far the rebalancing that is under way, or was last, has come."""

    strategy: str
    planned: int
    moved: int = 0
    failed: int = 0
    failures: list[dict[str, str]] = field(default_factory=list)
    is_over: bool = False

    def shown(self) -> dict[str, Any]:
        return {
            "state": "idle" if self.is_over else "running",
            "strategy": self.strategy,
            "planned": self.planned,
            "moved": self.moved,
            "failed": self.failed,
            "failures": self.failures,
        }


async def at_a_pace(moves: Sequence[Move], make: Callable[[Move], Awaitable[None]]) -> None:
    """Make all moves, evenly spread over time."""
    waiting = iter(moves)
    clock = asyncio.get_running_loop().time
    turn_s = clock()

    async def work() -> None:
        nonlocal turn_s
        for move in waiting:
            # What was missed is not made up for: the next ones would come in a heap.
            turn_s = max(turn_s, clock() - PACE_S) + PACE_S
            await asyncio.sleep(max(0.0, turn_s - clock()))
            await make(move)

    async with asyncio.TaskGroup() as workers:
        for _ in range(min(MOVES_AT_A_TIME, len(moves))):
            workers.create_task(work())


class Rebalancer:
    """See the module's text. What it does is done on the node that leads the agreement."""

    def __init__(self, context: Context, dice: random.Random | None = None) -> None:
        self._context = context
        self._dice = dice or random.Random()
        self._log = logger("cluster")
        self.last: Progress | None = None
        #: Planning counts, too: two plans at once would undo each other.
        self._is_busy = False
        self._work: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._last_s: float | None = None

    def start(self) -> None:
        """Look after appointments and the timer."""
        self._watch = asyncio.get_running_loop().create_task(self._watch_forever())

    async def stop(self) -> None:
        """Begin no more moves."""
        tasks = [task for task in (self._work, self._watch) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def leader(self) -> str | None:
        """Whose work it is; None: nobody's at present."""
        control = self._context.cluster_control()
        if control is None or self._context.peers is None:
            return self._context.node_name
        leaders = [it.name for it in control.status().members if it.role == "leader"]
        return leaders[0] if leaders else None

    # -- what operators ask for --------------------------------------------------------------------

    async def order(self, order: Order) -> list[Move] | None:
        """Begin, or only tell the moves of a dry run. Raises 409 when one is under way."""
        if order.at is not None:
            await self._appoint(order)
            return None
        if self._is_busy:
            raise ApiError(
                409,
                "rebalance_in_progress",
                "another rebalancing is under way; wait for it, or end it: "
                "warrenctl rebalance --cancel",
            )
        self._is_busy = True
        try:
            moves = await self._plan(order)
            if order.dry_run:
                return moves
            self.last = Progress(order.strategy, len(moves))
            self._last_s = asyncio.get_running_loop().time()
            self._work = asyncio.get_running_loop().create_task(
                self._carry_out(self.last, moves, order.pause_s)
            )
            self._work.add_done_callback(self._ended)
        finally:
            if self._work is None:
                self._is_busy = False
        return None

    def _ended(self, _work: asyncio.Task[None]) -> None:
        """Also of one that was cancelled before it began."""
        self._is_busy = False
        self._work = None
        if self.last is not None:
            self.last.is_over = True

    async def _appoint(self, order: Order) -> None:
        engine = self._context.engine
        value = msgspec.to_builtins(order)
        await self._context.agree(lambda: engine.set_global_parameter(APPOINTMENT, value))

    async def cancel(self) -> None:
        """Make no further moves, and forget the appointment. Raises 404 when there is neither."""
        had_one = self._appointment() is not None
        if had_one:
            await self._forget_appointment()
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
        elif not had_one:
            raise not_found("no rebalancing is under way, and none is appointed")

    async def _forget_appointment(self) -> None:
        engine = self._context.engine
        await self._context.agree(lambda: engine.clear_global_parameter(APPOINTMENT))

    def _appointment(self) -> Order | None:
        value = self._context.engine.global_parameters.get(APPOINTMENT)
        try:
            return None if value is None else read_order(value)
        except ApiError:
            return None  # Somebody has set a parameter of that name to something else.

    def shown(self) -> dict[str, Any]:
        """What is under way or was last, what is appointed, and who has how many masters."""
        shown = {"state": "idle"} if self.last is None else self.last.shown()
        appointment = self._appointment()
        # This is asked for several times a second while masters move, so it must cost little.
        views = self._context.engine.views.values()
        counts = Counter(it.master for it in views if it.master is not None and len(it.wanted) > 1)
        names = sorted({*counts, *self._candidates()})
        return {
            **shown,
            "appointment": None if appointment is None else msgspec.to_builtins(appointment),
            "nodes": [{"name": name, "masters": counts[name]} for name in names],
        }

    # -- what there is -----------------------------------------------------------------------------

    def facts(self) -> NodeFacts:
        """Of this node."""
        engine = self._context.engine
        mastered = [] if engine.mirrors is None else engine.mirrors.mastered()
        messages = {it.queue.number: it.queue.ready + it.queue.unacked for it in mastered}
        return NodeFacts(len(engine.connections), messages)

    def _candidates(self) -> list[str]:
        peers = self._context.peers
        return sorted({self._context.node_name, *(() if peers is None else peers.running())})

    async def _all_facts(self) -> dict[str, NodeFacts]:
        """By node; one that does not answer, or is drained, takes no part."""
        here, peers = self._context.node_name, self._context.peers
        drained = self._context.drained_nodes()
        found = {} if here in drained else {here: self.facts()}
        if peers is None:
            return found
        names = [it for it in self._candidates() if it != here and it not in drained]
        what = Question("GET", "/rebalance/facts")
        answers = await asyncio.gather(
            *(peers.ask(name, what) for name in names), return_exceptions=True
        )
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, PeerSilent):
                continue
            if isinstance(answer, BaseException):
                raise answer
            if answer.status == 200:
                found[name] = msgspec.json.decode(answer.body, type=NodeFacts)
        return found

    def _mirrored(self, order: Order, facts: dict[str, NodeFacts]) -> list[MirroredQueue]:
        engine = self._context.engine
        in_vhost = re.compile(order.vhost_pattern).search
        in_queue = re.compile(order.queue_pattern).search
        found = []
        for vhost in engine.vhosts.values():
            if not in_vhost(vhost.name):
                continue
            for queue in vhost.queues.values():
                view = engine.views.get(queue.number)
                if view is None or view.master is None or len(view.wanted) < 2:
                    continue
                if not in_queue(queue.name):
                    continue
                master = view.master
                messages = facts[master].messages if master in facts else {}
                # Whom a policy does not want would hand the queue on at once.
                heirs = [n for n in view.in_sync if n in view.wanted and n in facts]
                found.append(
                    MirroredQueue(
                        vhost.name,
                        queue.name,
                        master,
                        tuple(name for name in heirs if name != master),
                        messages.get(queue.number, 0),
                    )
                )
        return found

    async def _plan(self, order: Order) -> list[Move]:
        facts = await self._all_facts()
        connections = {name: told.connections for name, told in facts.items()}
        queues = self._mirrored(order, facts)
        return await asyncio.to_thread(plan, order.strategy, queues, connections, self._dice)

    # -- the moves ---------------------------------------------------------------------------------

    async def _carry_out(self, progress: Progress, moves: list[Move], pause_s: float) -> None:
        emit = self._context.engine.emit
        emit("rebalance.started", strategy=progress.strategy, planned=progress.planned)
        self._log.info("rebalancing by %s: %d masters move", progress.strategy, len(moves))
        try:
            if pause_s:
                for at, move in enumerate(moves):
                    await self._make(progress, move)
                    if at + 1 < len(moves):
                        await asyncio.sleep(pause_s)
            else:
                await at_a_pace(moves, partial(self._make, progress))
        finally:
            emit("rebalance.ended", moved=progress.moved, failed=progress.failed)
            self._log.info(
                "rebalancing has moved %d masters of %d, %d could not be moved",
                progress.moved,
                progress.planned,
                progress.failed,
            )

    async def _make(self, progress: Progress, move: Move) -> None:
        try:
            await self._transfer(move)
            progress.moved += 1
        except (ApiError, PeerSilent) as error:
            progress.failed += 1
            self._log.warning("queue '%s' stays on %s: %s", move.name, move.source, error)
            if len(progress.failures) < FAILURES_MAX:
                progress.failures.append(
                    {"vhost": move.vhost, "name": move.name, "reason": str(error)}
                )

    async def _transfer(self, move: Move) -> None:
        """Raises ApiError or PeerSilent."""
        context = self._context
        if move.source == context.node_name:
            vhost = context.engine.vhosts.get(move.vhost)
            queue = None if vhost is None else vhost.queues.get(move.name)
            if queue is None or queue.is_remote:
                raise not_found(f"queue '{move.name}' is not here any more")
            await transfer(context, queue, move.target)
            return
        assert context.peers is not None
        path = f"/queues/{quote(move.vhost, safe='')}/{quote(move.name, safe='')}/actions"
        body = msgspec.json.encode({"action": "transfer_leader", "node": move.target})
        answer = await context.peers.ask(move.source, Question("POST", path, "", None, body), ACT_S)
        if answer.status >= 400:
            raise ApiError(answer.status, "refused", answer.body.decode(errors="replace"))

    # -- by appointment and by timer ---------------------------------------------------------------

    async def _watch_forever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self._look()
            except ApiError as error:
                self._log.info("no rebalancing now: %s", error)
            except Exception:  # noqa: BLE001 - the next look may find things otherwise
                self._log.exception("a fault of ours while looking after rebalancing")

    async def _look(self) -> None:
        cluster = self._context.settings.cluster
        appointment = self._appointment()
        if appointment is None and cluster.rebalance != "timer":
            return
        if self.leader() != self._context.node_name:
            self._last_s = None
            return
        if appointment is not None and appointment.at is not None:
            # One that is under way is waited for, and the appointment kept after it.
            if datetime.datetime.now(datetime.UTC) >= _when(appointment.at) and not self._is_busy:
                await self._forget_appointment()
                await self.order(msgspec.structs.replace(appointment, at=None))
            return
        now_s = asyncio.get_running_loop().time()
        if self._last_s is None:
            self._last_s = now_s
        elif now_s - self._last_s >= cluster.rebalance_interval_s and not self._is_busy:
            self._last_s = now_s
            await self.order(Order(cluster.rebalance_strategy))
