"""When a node forks mirrored queues, and which: `cluster_partition_handling = autoheal`.

A node that has no part in a majority looks whom it can still reach. A queue whose master is not
among those is served by the oldest synchronised replica that is; nodes tell each other which forks
they have, and publish and consume there. It ends with the first word of the majority.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from warren.engine import moving

if TYPE_CHECKING:
    from warren.engine.engine import Engine
    from warren.engine.forks import Forks

#: The kind of the control frame: whether its node may fork queues, and the numbers of its forks.
FORKS = 29
#: So many looks without a majority before anything is done: it may be back in a moment.
PATIENCE_LOOKS = 8
#: Forks that are begun in one look: each is a copy.
AT_A_TIME = 50

_decoder = msgspec.msgpack.Decoder(tuple[bool, frozenset[int]])
#: Sends to one node, or to all.
Send = Callable[[str | None, bytes], None]


class Forking:
    """`is_wanted`: the mode is autoheal. `is_linked(node)`: it can be reached."""

    def __init__(
        self,
        engine: Engine,
        is_wanted: bool,
        is_linked: Callable[[str], bool],
        send: Send,
    ) -> None:
        self._engine = engine
        self._is_wanted = is_wanted
        self._is_linked = is_linked
        self._send = send
        self._looks = 0
        #: Node -> whether it may fork, and what it has forked, as it has told.
        self._of_peers: dict[str, tuple[bool, frozenset[int]]] = {}
        self._told: bytes = b""
        #: Numbers of queues that are used at forks of other nodes.
        self._elsewhere: set[int] = set()
        #: Queues for whose copies the disk has no room, told once.
        self._no_room: set[int] = set()

    @property
    def _forks(self) -> Forks | None:
        mirrors = self._engine.mirrors
        return None if mirrors is None else mirrors.forks

    # -- what nodes tell each other ----------------------------------------------------------------

    def told(self, peer: str, payload: bytes) -> None:
        """Another node has told of its forks. Raises ValueError."""
        try:
            self._of_peers[peer] = _decoder.decode(payload)
        except msgspec.DecodeError as error:
            raise ValueError(f"forks that cannot be read: {error}") from error

    def came(self, peer: str) -> None:
        """There is a new link to a node."""
        if self._is_wanted:
            self._send(peer, self._own())

    def gone(self, peer: str) -> None:
        """A node cannot be reached."""
        self._of_peers.pop(peer, None)

    def _own(self) -> bytes:
        forks = self._forks
        numbers = [] if forks is None else sorted(forks.open)
        return msgspec.msgpack.encode((self._looks > 0, numbers))

    def _tell(self) -> None:
        own = self._own()
        if own != self._told:
            self._told = own
            self._send(None, own)

    # -- whether there is a majority ---------------------------------------------------------------

    def look(self, is_ready: bool, is_open: bool) -> None:
        """To be called now and then: whether the node has a part in a majority, and clients."""
        forks = self._forks
        if forks is None:
            return
        forks.merging.look(is_ready)
        if not self._is_wanted:
            return
        if is_ready or not is_open:
            self._looks = 0
        else:
            self._looks += 1
        self._tell()
        if self._looks > PATIENCE_LOOKS:
            self._fork(forks)
            self._tell()

    def majority_spoke(self) -> None:
        """What the majority says of queues counts from now on; to be called before it does."""
        self._looks = 0
        forks = self._forks
        if forks is None:
            return
        forks.close_all()
        self._no_room.clear()
        elsewhere, self._elsewhere = self._elsewhere, set()
        for queue in self._queues() if elsewhere else ():
            if queue.number in elsewhere and queue.is_remote:
                view = self._engine.views.get(queue.number)
                master = None if view is None else view.master
                moving.rehome(self._engine, queue, master, torn=True)

    # -- which queues ------------------------------------------------------------------------------

    def _queues(self) -> Iterator[Any]:
        for vhost in list(self._engine.vhosts.values()):
            yield from list(vhost.queues.values())

    def _fork(self, forks: Forks) -> None:
        begun = 0
        for queue in self._queues():
            view = self._engine.views.get(queue.number)
            if view is None or queue.deleted or forks.is_forking(queue.number):
                continue
            server = self._server_of(queue, view)
            if server == self._engine.settings.node_name:
                if begun < AT_A_TIME and forks.may_fork(queue):
                    begun += 1
                    self._begin(forks, queue, view)
            elif server is not None and queue.is_remote and queue.home != server:
                self._elsewhere.add(queue.number)
                moving.rehome(self._engine, queue, server, torn=True)

    def _begin(self, forks: Forks, queue: Any, view: Any) -> None:
        lost = [name for name in view.in_sync if not self._is_here(name)]
        cause = f"no majority, and {', '.join(lost)} cannot be reached"
        if forks.begin(queue.number, cause):
            self._elsewhere.discard(queue.number)
        elif queue.number not in self._no_room:
            self._no_room.add(queue.number)
            self._engine.log.warning(
                "queue '%s' in vhost '%s' cannot be served without %s: the disk has no room for "
                "a copy of its messages",
                queue.name,
                queue.vhost.name,
                view.master,
            )

    def _server_of(self, queue: Any, view: Any) -> str | None:
        """Who is to serve a queue on this side; None: its master does, or nobody can."""
        here, number = self._engine.settings.node_name, queue.number
        if view.master == here:
            # Alone it can confirm nothing; with all of them there is nothing to be forked.
            return None if all(map(self._is_here, view.in_sync)) else here
        if view.master is None or self._is_linked(view.master):
            return None
        forked = [name for name, (_, numbers) in self._of_peers.items() if number in numbers]
        in_sync: tuple[str, ...] = view.in_sync
        for name in (*in_sync, *sorted(forked)):
            if name in forked and self._is_linked(name):
                return name
        for name in in_sync:
            if name == here or (self._is_linked(name) and self._may_fork(name)):
                return name if name == here else None
        return None

    def _is_here(self, name: str) -> bool:
        return name == self._engine.settings.node_name or self._is_linked(name)

    def _may_fork(self, name: str) -> bool:
        return self._of_peers.get(name, (False, frozenset()))[0]
