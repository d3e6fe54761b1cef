"""Views of mirrored queues, from the agreement to the copies on this node and to the homes.

A view names its queue by number. The number is the same on all nodes and is never given again, so
a view whose queue is not known is one of a queue that is gone: whoever leads has it dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from warren.engine import moving
from warren.engine.homes import absence_text
from warren.engine.mirroring import look_again, view_came
from warren.engine.ring_changes import UNCLEAN

if TYPE_CHECKING:
    from warren.cluster.member_effects import ViewsChanged
    from warren.cluster.metadata import View
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine
    from warren.model.errand import Errand


Rehome = Callable[["Engine", Any, str | None, bool], None]


class QueueViews:
    """Knows every queue by its number, and tells each of its views."""

    def __init__(
        self,
        engine: Engine,
        known_everywhere: Callable[[], Errand],
        rehome: Rehome = moving.rehome,
    ) -> None:
        """`known_everywhere`: an errand that ends when all nodes know what this one knows."""
        self._engine = engine
        self._known_everywhere = known_everywhere
        self._rehome = rehome
        #: Number -> virtual host and name; the queue itself may be replaced by another object.
        self._names: dict[int, tuple[str, str]] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        #: Number of a queue without a view -> the life of its home that it was declared in.
        self._born: dict[int, int] = {}
        #: Node -> incarnation, as of the entry that is being carried out.
        self._incarnations: dict[str, int] = {}
        #: Numbers of queues whose view has no master.
        self._masterless: set[int] = set()
        #: Told of every number whose queue, view or policy may be another now; None: of all.
        self.on_touched: Callable[[int | None], None] = _ignore
        engine.listeners.append(self._on_event)

    # -- which queues there are --------------------------------------------------------------------

    def learn(self) -> None:
        """All definitions have been put in place at once."""
        self._names.clear()
        self._numbers.clear()
        for vhost in self._engine.vhosts.values():
            for queue in vhost.queues.values():
                self._know(queue)
        self.on_touched(None)

    def numbers(self) -> list[int]:
        """Of all queues there are."""
        return sorted(self._names)

    def queue(self, number: int) -> AmqpQueue | None:
        """The queue with this number, if there is one (still)."""
        vhost, name = self._names.get(number, ("", ""))
        holder = self._engine.vhosts.get(vhost)
        return None if holder is None else holder.queues.get(name)

    def empty_since(self, number: int) -> int:
        """The life of the home since which a queue that waits for its view is empty; 0: unknown."""
        return self._born.get(number, 0)

    def nodes_are(self, table: Mapping[str, tuple[int, bool]], is_registered: bool = False) -> None:
        """The table of nodes is another one; the homes know it already.

        `is_registered`: it has this node in its present life.
        """
        for number in sorted(self._masterless):
            queue = self.queue(number)
            if queue is not None:
                # That some node is back does not mean that it has the messages.
                queue.absence = absence_text(queue)
        for number in self._born:
            queue = self.queue(number)
            if queue is not None and queue.absence is not None:
                look_again(queue)
        self._incarnations = {name: incarnation for name, (incarnation, _) in table.items()}
        if is_registered and self._engine.mirrors is not None:
            self._engine.mirrors.registered()
            self._drop_left_over()
        self.on_touched(None)

    def _drop_left_over(self) -> None:
        """Copies of queues that went on without this node while it was down."""
        for number in list(self._engine.mirrors.by_number):
            queue, view = self.queue(number), self._engine.views.get(number)
            if queue is not None and view is not None:
                self._engine.mirrors.drop_left_over(queue, view)

    def _know(self, queue: AmqpQueue) -> None:
        key = (queue.vhost.name, queue.name)
        self._names[queue.number] = key
        self._numbers[key] = queue.number

    def _on_event(self, event: str, details: dict[str, Any]) -> None:
        if event == "queue.created":
            queue = self._engine.vhosts[details["vhost"]].queues[details["name"]]
            self._know(queue)
            if queue.awaits_view:
                self._born[queue.number] = self._incarnations.get(queue.home, 0)
            self.on_touched(queue.number)
        elif event == "queue.deleted":
            number = self._numbers.pop((details["vhost"], details["name"]), 0)
            self._names.pop(number, None)
            self._born.pop(number, None)
            self.on_touched(number)
        elif event in {"queue.mirror_link.added", "queue.mirror_link.removed"}:
            self.on_touched(self._numbers.get((details["vhost"], details["name"]), 0))
        elif event in {"policy.set", "policy.cleared"}:
            self.on_touched(None)

    # -- what becomes of them ----------------------------------------------------------------------

    def changed(self, change: ViewsChanged) -> None:
        """Views are others by an entry of the agreement; in the order of the log."""
        for key, view in change.views.items():
            if not key.isdecimal():
                continue  # Nobody but a node names views, and it does so by number.
            number = int(key)
            self._masterless.discard(number)
            if view is None:
                self._engine.views.pop(number, None)
            else:
                self._engine.views[number] = view
                if view.master is None:
                    self._masterless.add(number)
                self._born.pop(number, None)
                self._deliver(number, view, change)
            self.on_touched(number)

    def _deliver(self, number: int, view: View, change: ViewsChanged) -> None:
        queue = self.queue(number)
        if queue is None:
            return  # Deleted, by an entry that the definitions have had already.
        if view.unclean == view.epoch:
            self._tell_unclean(queue, view)
        if queue.awaits_view:
            view_came(self._engine, queue, self._known_everywhere())
        mirrors = self._engine.mirrors
        if mirrors is not None:
            mirrors.view_changed(queue, view, change.registered)
            # It may be another object by now.
            queue = self.queue(number)
            assert queue is not None
            is_elsewhere = view.master != self._engine.settings.node_name
            if is_elsewhere and not queue.is_remote and number not in mirrors.by_number:
                mirrors.let_go(queue, view.master)
                queue = self.queue(number)
                assert queue is not None
        self._move_home(queue, view, change.planned)

    def _tell_unclean(self, queue: AmqpQueue, view: View) -> None:
        """Messages may be lost: nobody is to find that out by chance."""
        where = {"vhost": queue.vhost.name, "name": queue.name, "node": view.master}
        self._engine.totals.count(queue.vhost.name, "promoted_unclean")
        self._engine.emit("queue.promoted_unclean", **where, epoch=view.epoch, cause=UNCLEAN)
        self._engine.log.warning(
            "queue '%s' in vhost '%s': %s is its master now and may lack messages; what the "
            "others have beyond it is cut off when they are back",
            queue.name,
            queue.vhost.name,
            view.master,
        )

    def _move_home(self, queue: AmqpQueue, view: View, planned: bool) -> None:
        """The home is where the master is; without one, where whoever has everything was last.

        It is so from this entry on, on all nodes: what goes with a node is told by its home. Where
        this node is the master, the queue becomes local later, when its replica serves.
        """
        home = view.master
        if home is None:
            home = view.in_sync[0] if view.in_sync else queue.home
        if queue.is_remote and view.master is not None:
            self._rehome(self._engine, queue, home, planned)
            return
        if home != queue.home:
            self._engine.queues_at[queue.home] -= 1
            self._engine.queues_at[home] += 1
            queue.home = home
        if queue.is_remote:
            self._rehome(self._engine, queue, None, False)
        elif home != self._engine.settings.node_name or view.master is None:
            # It stands down when its copy here finds that it must.
            queue.absence = absence_text(queue) if view.master is None else None
        else:
            # It may have had no master for a while: this node was taken for dead, and is not.
            queue.absence = None
            # It may have become one that answers publishes later.
            moving.forget_routes(queue)


def _ignore(_number: int | None) -> None:
    """Nobody wants to know."""
