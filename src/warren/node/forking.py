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

#: The kind of the control frame: whether its node may fork queues, the numbers of those that it
#: has forked, and of those whose forks it is merging.
FORKS = 29
#: So many looks without a majority before anything is done: it may be back in a moment.
PATIENCE_LOOKS = 8
#: How long that is: a node that was silent for less before it died has forked nothing since.
PATIENCE_MS = PATIENCE_LOOKS * 250
#: Forks that are begun in one look: each is a copy.
AT_A_TIME = 50

Told = tuple[bool, frozenset[int], frozenset[int]]
_decoder = msgspec.msgpack.Decoder(Told)
_NOTHING: Told = (False, frozenset(), frozenset())
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
        #: Of nodes that can be reached, what they have told; and what all others told last.
        self._of_peers: dict[str, Told] = {}
        self._told_last: dict[str, Told] = {}
        #: Nodes that died so soon that what they told last is all there is.
        self._died: set[str] = set()
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
            self._of_peers[peer] = self._told_last[peer] = _decoder.decode(payload)
        except msgspec.DecodeError as error:
            raise ValueError(f"forks that cannot be read: {error}") from error
        self._died.discard(peer)

    def came(self, peer: str) -> None:
        """There is a new link to a node."""
        if self._is_wanted or self._own() != msgspec.msgpack.encode(_NOTHING):
            self._send(peer, self._own())

    def gone(self, peer: str) -> None:
        """A node cannot be reached."""
        self._of_peers.pop(peer, None)

    def refused(self, peer: str, silent_ms: int) -> None:
        """A node's port is closed, so it is dead; it was heard of last so long ago."""
        if silent_ms < PATIENCE_MS and self._told_last.get(peer) == _NOTHING:
            self._died.add(peer)

    def unmerged_on(self, peer: str) -> list[int] | None:
        """Of which queues a node has forks, open or to be merged; None: that cannot be known."""
        told = self._of_peers.get(peer)
        if told is None:
            last = self._told_last.get(peer, _NOTHING)
            is_known = peer in self._died or not self._is_wanted
            told = last if is_known or last[1] or last[2] else None
        return None if told is None else sorted(told[1] | told[2])

    def own_unmerged(self) -> list[int]:
        """Of which queues this node has forks that are not merged."""
        forks = self._forks
        return [] if forks is None else sorted({*forks.open, *forks.merging.queues()})

    def _own(self) -> bytes:
        forks = self._forks
        if forks is None:
            return msgspec.msgpack.encode((self._looks > 0, [], []))
        merging = sorted(set(forks.merging.queues()))
        return msgspec.msgpack.encode((self._looks > 0, sorted(forks.open), merging))

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
            if forks.merging.count or self._told:
                # Of partitions before the mode was another one.
                self._tell()
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
        forked = [name for name, told in self._of_peers.items() if number in told[1]]
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
        return self._of_peers.get(name, _NOTHING)[0]
