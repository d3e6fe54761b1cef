"""Which nodes are to have replicas of a queue, by its policy; and what has to be agreed on for it.

Pure functions: whoever leads the agreement asks them for every queue that something has happened
to, and proposes the command that comes of it. Replicas stay where they are as long as the policy
allows it, so asking twice comes to the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from warren.cluster.metadata import Node, View
from warren.cluster.metadata_commands import (
    CreateView,
    DropView,
    Place,
    UncleanPromote,
)

#: A view has no more replicas than this, whatever the policy wants.
REPLICAS_MAX = 64

Decision = CreateView | DropView | Place | UncleanPromote
NodeTable = Mapping[str, Node]


@dataclass(frozen=True, slots=True)
class Wish:
    """What a policy wants: `mode` is `all`, `exactly`, `nodes`, or None for no mirrors."""

    mode: str | None = None
    count: int = 1
    names: tuple[str, ...] = ()
    #: Nodes that an operator wants replicas on besides.
    links: tuple[str, ...] = ()


class Loads:
    """How many replicas nodes have; counted when somebody asks."""

    def __init__(self, views: Iterable[View]) -> None:
        self._views = views
        self._counted: Counter[str] | None = None

    def of(self, node: str) -> int:
        return self._counts()[node]

    def moved(self, before: View | None, replicas: Iterable[str]) -> None:
        """Replicas of a queue are about to be elsewhere."""
        counts = self._counts()
        counts.subtract(() if before is None else before.wanted)
        counts.update(replicas)

    def _counts(self) -> Counter[str]:
        if self._counted is None:
            self._counted = Counter(name for view in self._views for name in view.wanted)
        return self._counted


def wanted_replicas(
    wish: Wish, view: View | None, home: str, nodes: NodeTable, loads: Loads
) -> tuple[str, ...]:
    """The nodes that are to have replicas.

    A node that is drained keeps what it has, and gets no other replica.
    """
    present = _present(view, home, nodes)
    able = {name for name in nodes if not nodes[name].drained or name in present}
    links = [name for name in wish.links if name in able]
    wanted = _by_policy(wish, view, home, nodes, able, loads)
    return _cut((*wanted, *links)) or (home,)


def _by_policy(
    wish: Wish, view: View | None, home: str, nodes: NodeTable, able: set[str], loads: Loads
) -> tuple[str, ...]:
    """Without those that an operator wants: they are not counted, wherever the master is."""
    if wish.mode == "all":
        return _cut((*_present(view, home, nodes), *sorted(able)))
    if wish.mode == "nodes":
        listed = [name for name in wish.names if name in able]
        if listed:
            # A master outside of the list stays until one of the listed has everything.
            return _cut(listed if view is not None else (home, *listed))
    if view is not None and view.master is None:
        # Nobody can give a new replica anything, and who comes back may be one of these.
        return view.wanted
    present = [name for name in _present(view, home, nodes) if name not in wish.links]
    if wish.mode == "exactly":
        others = {name: nodes[name] for name in nodes if name not in wish.links}
        return _exactly(wish.count, present, others, loads)
    return tuple(present[:1])


def _exactly(count: int, present: list[str], nodes: NodeTable, loads: Loads) -> tuple[str, ...]:
    """The oldest stay; the dead do too while there is nobody to take their place."""
    alive = [name for name in present if nodes[name].is_alive]
    filled = _filled(alive[:count], count, nodes, loads)
    dead = [name for name in present if not nodes[name].is_alive]
    return _cut((*filled, *dead[: max(0, count - len(filled))]))


def _present(view: View | None, home: str, nodes: NodeTable) -> list[str]:
    """The replicas as they are: the master, who is in sync by age, then the others."""
    if view is None:
        return [home]
    first = [] if view.master is None else [view.master]
    names = (*first, *view.in_sync, *view.learners, *view.wanted)
    return [name for name in dict.fromkeys(names) if name in nodes]


def _filled(present: list[str], count: int, nodes: NodeTable, loads: Loads) -> tuple[str, ...]:
    """With the living that have the fewest replicas, until there are as many as wanted."""
    others = [
        name
        for name, node in nodes.items()
        if node.is_alive and not node.drained and name not in present
    ]
    others.sort(key=lambda name: (loads.of(name), name))
    return _cut((*present, *others[: max(0, count - len(present))]))


def _cut(names: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))[:REPLICAS_MAX]


@dataclass(frozen=True, slots=True)
class Subject:
    """A queue, as far as its place is concerned."""

    key: str
    home: str
    wish: Wish
    #: It has to have a view, whatever the policies are by now.
    born_mirrored: bool = False
    #: The life of its home since which it has surely held nothing; 0: it may hold something.
    empty_since: int = 0


def may_lack(view: View, nodes: NodeTable, on_failure: bool, on_shutdown: bool) -> tuple[str, ...]:
    """The replicas that may become master although messages may be lost; mostly none.

    They are asked for when nobody who has everything lives. `on_failure` and `on_shutdown` say
    whether the policy wants it after a failure, and after somebody was told to stop.
    """
    if view.master is not None:
        return ()
    was_stopped = any(name in nodes and nodes[name].stopped for name in view.in_sync)
    return view.learners if (on_shutdown if was_stopped else on_failure) else ()


def decide(
    subject: Subject, view: View | None, nodes: NodeTable, loads: Loads
) -> CreateView | Place | None:
    """What has to be agreed on for a queue; None: all is as it is to be."""
    wish, home = subject.wish, subject.home
    if view is not None:
        wanted = wanted_replicas(wish, view, home, nodes, loads)
        is_as_wanted = set(wanted) == set(view.wanted)
        return None if is_as_wanted else Place(subject.key, view.epoch, wanted)
    if wish.mode is None and not wish.links and not subject.born_mirrored:
        return None
    node = nodes.get(home)
    if node is None or not node.is_alive:
        return None  # Its home has its messages: nothing can be done before it is back.
    replicas = wanted_replicas(wish, None, home, nodes, loads)
    empty, incarnation = bool(subject.empty_since), subject.empty_since or None
    return CreateView(subject.key, replicas, empty, incarnation)
