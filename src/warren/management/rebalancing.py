"""Which masters of mirrored queues are to move, so that the nodes share the work: only a plan.

Masters move only to mirrors that have everything, each at most once. What a strategy weighs:

- `min-masters`: the number of masters, as in RabbitMQ. No node keeps more than its share, and the
  shortest queues go first, since others have more to lose by a move.
- `min-messages`: the messages of a node's masters, together.
- `min-connections`: the clients of a node; each master counts as one of them, since it draws some.
- `round-robin`: by name, one queue to each node in turn.
- `random`: any node.
- `even`: the number of masters, until no two nodes differ by more than one; `spread` uses it. Where
  no master can go from the fullest node to the emptiest at once, others make room in between.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MirroredQueue:
    """A queue that has a master."""

    vhost: str
    name: str
    master: str
    #: Who may become master: the others that are in sync.
    heirs: tuple[str, ...]
    messages: int = 0


@dataclass(frozen=True, slots=True)
class Move:
    """The master of a queue is to be on another node."""

    vhost: str
    name: str
    source: str
    target: str


def plan(
    strategy: str,
    queues: Sequence[MirroredQueue],
    connections: Mapping[str, int],
    dice: random.Random,
) -> list[Move]:
    """The moves, in the order they are to be made; `connections` names the nodes that take part.

    Raises KeyError for a strategy that is none.
    """
    planner = _PLANNERS[strategy]
    ordered = sorted(queues, key=lambda queue: (queue.vhost, queue.name))
    return planner(ordered, connections, dice) if connections else []


def _move(queue: MirroredQueue, target: str) -> Move:
    return Move(queue.vhost, queue.name, queue.master, target)


class _Scales:
    """What each node has to bear, and how masters are shared out until no move makes it better."""

    def __init__(
        self,
        queues: Sequence[MirroredQueue],
        loads: Mapping[str, int],
        weigh: Callable[[MirroredQueue], int],
    ) -> None:
        """`loads` has what the nodes that take part bear besides; the order of queues is kept."""
        self._weigh = weigh
        self.loads = Counter(loads)
        self._nodes = frozenset(loads)
        self._staying: dict[str, list[MirroredQueue]] = {}
        for queue in queues:
            self.loads[queue.master] += weigh(queue)
            self._staying.setdefault(queue.master, []).append(queue)

    def share(self, enough: int = 0) -> list[Move]:
        """Moves from whoever bears the most, down to `enough`, as long as that lessens the most."""
        moves: list[Move] = []
        while (found := self._next(enough)) is not None:
            moves.append(found)
        return moves

    def _next(self, enough: int) -> Move | None:
        over = [name for name in self._staying if self._has_too_much(name, enough)]
        for source in sorted(over, key=lambda name: (-self.loads[name], name)):
            queues = self._staying[source]
            for at, queue in enumerate(queues):
                target = self._target(queue)
                if target is not None:
                    del queues[at]
                    self.loads[source] -= self._weigh(queue)
                    self.loads[target] += self._weigh(queue)
                    return _move(queue, target)
        return None

    def _has_too_much(self, name: str, enough: int) -> bool:
        # One that takes no part is to have nothing.
        return self.loads[name] > enough or name not in self._nodes

    def _target(self, queue: MirroredQueue) -> str | None:
        """The heir with the least to bear, if the queue is no heavier there than here."""
        heirs = [name for name in queue.heirs if name in self._nodes]
        if not heirs:
            return None
        target = min(heirs, key=lambda name: (self.loads[name], name))
        is_better = self.loads[target] + self._weigh(queue) < self.loads[queue.master]
        return target if is_better or queue.master not in self._nodes else None


def _by_masters(
    queues: Sequence[MirroredQueue], nodes: Mapping[str, int], _dice: random.Random
) -> list[Move]:
    shortest_first = sorted(queues, key=lambda queue: queue.messages)
    enough = -(-len(queues) // len(nodes))
    return _Scales(shortest_first, dict.fromkeys(nodes, 0), lambda _queue: 1).share(enough)


def _by_messages(
    queues: Sequence[MirroredQueue], nodes: Mapping[str, int], _dice: random.Random
) -> list[Move]:
    longest_first = sorted(queues, key=lambda queue: -queue.messages)
    full = [queue for queue in longest_first if queue.messages or queue.master not in nodes]
    return _Scales(full, dict.fromkeys(nodes, 0), lambda queue: queue.messages).share()


def _by_connections(
    queues: Sequence[MirroredQueue], nodes: Mapping[str, int], _dice: random.Random
) -> list[Move]:
    shortest_first = sorted(queues, key=lambda queue: queue.messages)
    return _Scales(shortest_first, nodes, lambda _queue: 1).share()


def _in_turn(
    queues: Sequence[MirroredQueue], nodes: Mapping[str, int], _dice: random.Random
) -> list[Move]:
    order = sorted(nodes)
    moves = []
    turn = 0
    for queue in queues:
        able = {queue.master, *queue.heirs}
        for step in range(len(order)):
            node = order[(turn + step) % len(order)]
            if node in able:
                turn += step + 1
                if node != queue.master:
                    moves.append(_move(queue, node))
                break
    return moves


def _anywhere(
    queues: Sequence[MirroredQueue], nodes: Mapping[str, int], dice: random.Random
) -> list[Move]:
    moves = []
    for queue in queues:
        able = sorted({queue.master, *queue.heirs} & set(nodes))
        if able and (node := dice.choice(able)) != queue.master:
            moves.append(_move(queue, node))
    return moves


def _evenly(
    queues: Sequence[MirroredQueue], nodes: Mapping[str, int], _dice: random.Random
) -> list[Move]:
    places = {queue: queue.master for queue in queues}
    while (path := _way_down(places, frozenset(nodes))) is not None:
        places.update(path)
    return [_move(queue, place) for queue, place in places.items() if place != queue.master]


def _way_down(places: Mapping[MirroredQueue, str], nodes: frozenset[str]) -> _Way | None:
    """Queues that go each to the next node: the first node has one less then, the last one more.

    A master may be on a node that takes no part, which is to have nothing.
    """
    counts = Counter(dict.fromkeys(nodes, 0))
    counts.update(places.values())
    at: dict[str, list[MirroredQueue]] = {}
    for queue, place in places.items():
        at.setdefault(place, []).append(queue)
    for source in sorted(at, key=lambda name: (name in nodes, -counts[name], name)):
        most = counts[source] - 2 if source in nodes else len(places)
        ways: dict[str, _Way] = {source: {}}
        waiting = [source]
        for place in waiting:
            for queue in at.get(place, ()):
                for target in (queue.master, *queue.heirs):
                    if target in ways or target not in nodes:
                        continue
                    ways[target] = {**ways[place], queue: target}
                    if counts[target] <= most:
                        return ways[target]
                    waiting.append(target)
    return None


_Way = dict[MirroredQueue, str]
_PLANNERS = {
    "min-masters": _by_masters,
    "min-messages": _by_messages,
    "min-connections": _by_connections,
    "round-robin": _in_turn,
    "random": _anywhere,
    "even": _evenly,
}
STRATEGIES = tuple(_PLANNERS)
