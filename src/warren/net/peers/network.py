"""The links of one node to all others: it dials every peer, and every peer dials it.

Frames of the agreement, of gateways and of rings go out on the links that were dialled; what a home
answers comes back on the same one. A session of two nodes is one connection and ends with it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Iterator, Mapping

from warren.net.hub import Hub
from warren.net.peers.dialler import Dialler
from warren.net.peers.handshake import (
    CHALLENGE_BYTES,
    Greeting,
    Hello,
    Refusal,
    Role,
)
from warren.net.peers.owner import PeerOwner
from warren.net.peers.partition import Partition
from warren.net.peers.peer_link import (
    CONTROL_FRAME_BYTES_MAX,
    PeerLink,
    SocketPeerLink,
)
from warren.net.peers.settings import Identity, PeerOptions, PeerTls
from warren.net.peers.status import PeerStatus, RareLog
from warren.net.peers.stream_peer_link import StreamPeerLink
from warren.net.peers.transport import PeerListener, encrypt

#: The clock of pings and silences ticks this many times in a ping's interval.
TICKS_PER_PING = 5
#: A tick that is late by more than this many is our own delay, not the peers' silence.
LATE_TICKS = 3


class PeerNetwork:
    """See the module's text. `identity` may be replaced when the node has joined a cluster."""

    def __init__(
        self,
        hub: Hub,
        identity: Identity,
        secret: bytes,
        log: logging.Logger,
        owner: PeerOwner,
        *,
        options: PeerOptions | None = None,
        tls: PeerTls | None = None,
    ) -> None:
        if not secret:
            raise ValueError("a cluster needs a secret")
        self.hub = hub
        self.identity = identity
        self.log = log
        self.options = options or PeerOptions()
        self._secret = secret
        self._owner = owner
        self._tls = tls
        self._listeners: list[PeerListener] = []
        self._diallers: dict[str, Dialler] = {}
        self._accepted: dict[str, PeerLink] = {}
        #: All links that are open; those that have not proved anything yet have a greeting.
        self._links: dict[PeerLink, Greeting | None] = {}
        self._came_from: dict[PeerLink, str] = {}
        self._since: dict[str, int] = {}
        #: Why the last link to a node ended.
        self._why_over: dict[str, str] = {}
        self._newest: dict[str, int] = {}
        self._heard_ms: dict[str, int] = {}
        self._refusals: dict[str, str] = {}
        self._rare = RareLog()
        self._partition = Partition()
        self._credit_held = False
        self._handshakes: set[asyncio.Task[None]] = set()
        self._tick_ms = max(1, self.options.ping_ms // TICKS_PER_PING)
        self._ticked_ms = self.now_ms()
        self._timer = hub.loop.call_later(self._tick_ms / 1000, self._tick)
        self._closed = False

    # -- what the owner calls

    def listen(self, host: str, port: int) -> int:
        """Take calls at this address; the port that it came to. Raises OSError."""
        listener = PeerListener(self.hub, host, port, self._on_accepted)
        self._listeners.append(listener)
        return int(listener.port)

    def set_peers(self, peers: Mapping[str, tuple[str, int]]) -> None:
        """These are called from now on, no others; a changed address is called anew."""
        for name in list(self._diallers):
            dialler = self._diallers[name]
            if peers.get(name) != (dialler.host, dialler.port):
                del self._diallers[name]
                dialler.close()
        for name, address in peers.items():
            if name not in self._diallers and name != self.identity.name:
                self._diallers[name] = Dialler(self, name, address, self._on_connected)

    def send(self, peer: str, kind: int, payload: bytes) -> bool:
        """A control frame over the link that we dialled; False when it was dropped."""
        link = self.link_to(peer)
        if link is None or len(payload) > CONTROL_FRAME_BYTES_MAX:
            return False
        if link.control_pending_bytes > self.options.control_backlog_bytes:
            return False
        link.send(kind, payload)
        return True

    def link_to(self, peer: str) -> PeerLink | None:
        """The link that we dialled to the peer, when it is ready."""
        dialler = self._diallers.get(peer)
        link = None if dialler is None else dialler.link
        return link if link is not None and link.is_ready else None

    def why_over(self, peer: str) -> str:
        """What ended the last link that we dialled to the peer."""
        return self._why_over.get(peer, "")

    def link_from(self, peer: str) -> PeerLink | None:
        """The link that the peer dialled, when it is ready."""
        return self._accepted.get(peer)

    def last_heard_ms(self, peer: str) -> int | None:
        """When any byte of the peer last came, on the engine's clock; None: never."""
        times = [link.received_ms for link in (self.link_to(peer), self.link_from(peer)) if link]
        if peer in self._heard_ms:
            times.append(self._heard_ms[peer])
        return max(times, default=None)

    @property
    def addresses(self) -> dict[str, str]:
        """Where the links that peers dialled come from, `host:port`."""
        return {name: self._came_from[link] for name, link in self._accepted.items()}

    def hold_credit(self, held: bool) -> None:
        """Grant peers no more data, such as while an alarm is in force; or do so again."""
        self._credit_held = held
        self.hub.begin_turn()
        try:
            for link in list(self._accepted.values()):
                link.hold_credit(held)
        finally:
            self.hub.end_turn()

    def keep_alive(self) -> None:
        """Say that this node is there, in the middle of something that holds the loop up.

        Data that waits for the end of the turn is not sent before it: such links stay silent.
        """
        now_ms = self.now_ms()
        for link in list(self._links):
            is_free = link.is_ready and not link.closed and not link.pending_bytes
            if is_free and now_ms - link.sent_ms >= self.options.ping_ms:
                link.ping()
                link.flush()

    def drop(self, peer: str) -> None:
        """End both links; the peer is called again if it still is one."""
        for link in list(self._links_with(peer)):
            link.lost("dropped by this node")

    def forget(self, peer: str) -> None:
        """Remember nothing of a node that has left: it may come back with any incarnation."""
        for memory in (self._newest, self._heard_ms, self._refusals, self._since, self._why_over):
            memory.pop(peer, None)

    def is_blocked(self, peer: str) -> bool:
        return self._partition.is_blocked(peer)

    def block(self, peer: str) -> None:
        """Cut the peer off without a word: nothing is sent, read or closed until `unblock`."""
        self._partition.block(peer)
        for link in self._links_with(peer):
            link.mute(True)

    def unblock(self, peer: str) -> None:
        """Mend the cable: links that both sides still have go on."""
        self._partition.unblock(peer)
        for link in list(self._links_with(peer)):
            if self._links[link] is not None and not link.dialled:
                link.lost("cut off in the middle of the greeting")
            else:
                link.mute(False)
        if peer in self._diallers:
            self._diallers[peer].hurry()

    def status(self) -> list[PeerStatus]:
        """All peers that are called or have called, by name."""
        names = self._diallers.keys() | self._accepted.keys()
        return [self._status_of(name) for name in sorted(names)]

    def close(self) -> None:
        """End everything."""
        self._closed = True
        self._timer.cancel()
        for listener in self._listeners:
            listener.close()
        self.set_peers({})
        for task in self._handshakes:
            task.cancel()
        for link in list(self._links):
            link.lost("this node stops")
        self._partition.close()

    # -- connections come up

    def now_ms(self) -> int:
        return int(self.hub.engine.clock.now_ms())

    def _on_accepted(self, connection: socket.socket, address: str) -> None:
        strangers = [link for link in self._strangers() if not link.dialled]
        if len(strangers) >= self.options.strangers_max:
            strangers[0].lost("too many others that do not say who they are")
        hello = self._hello(Role.ACCEPTOR)
        link = self._new_link(connection, f"node at {address}", False)
        self._came_from[link] = address
        self._links[link] = Greeting(hello, self._secret, self._judge)
        if isinstance(link, StreamPeerLink):
            task = self.hub.loop.create_task(self._accept_tls(link, connection))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)
        else:
            link.set_reading(True)

    async def _accept_tls(self, link: StreamPeerLink, connection: socket.socket) -> None:
        assert self._tls is not None
        timeout_ms = self.options.greeting_timeout_ms
        try:
            await encrypt(self.hub.loop, link, connection, self._tls.server, None, timeout_ms)
        except OSError as error:
            link.lost(f"the TLS handshake failed: {error}")

    async def _on_connected(self, dialler: Dialler, connection: socket.socket) -> None:
        """A call was answered: say hello. Raises OSError when TLS fails."""
        name = f"node {dialler.peer} at {dialler.address}"
        link = self._new_link(connection, name, True)
        dialler.link = link

        def judge(hello: Hello) -> Refusal | None:
            return self._judge(hello) if hello.name == dialler.peer else Refusal.OTHER_NAME

        greeting = Greeting(self._hello(Role.DIALLER), self._secret, judge)
        self._links[link] = greeting
        if self.is_blocked(dialler.peer):
            link.mute(True)
        for kind, payload in greeting.start():
            link.send(kind, payload)
        if isinstance(link, StreamPeerLink):
            assert self._tls is not None
            timeout_ms = self.options.greeting_timeout_ms
            try:
                await encrypt(
                    self.hub.loop, link, connection, self._tls.client, dialler.host, timeout_ms
                )
            except OSError:
                link.lost("the TLS handshake failed")
                raise
        else:
            link.set_reading(not link.muted)

    def _new_link(self, connection: socket.socket, name: str, dialled: bool) -> PeerLink:
        arguments = (self.hub, self, self.log, name, dialled, self.options.window_bytes)
        if self._tls is None:
            return SocketPeerLink(*arguments, connection)
        return StreamPeerLink(*arguments)

    def _hello(self, role: Role) -> Hello:
        identity = self.identity
        return Hello(
            role=role,
            cluster_id=identity.cluster_id,
            name=identity.name,
            incarnation=identity.incarnation,
            challenge=secrets.token_bytes(CHALLENGE_BYTES),
        )

    def _judge(self, hello: Hello) -> Refusal | None:
        if hello.incarnation < self._newest.get(hello.name, 0):
            return Refusal.OLDER_INCARNATION
        return self._owner.accept(hello)

    def dial_failed(self, dialler: Dialler, reason: str, *, refused: bool) -> None:
        """Nobody answered the call."""
        if self._is_due(dialler.peer, "call"):
            self.log.info("node %s at %s: %s", dialler.peer, dialler.address, reason)
        if refused and not self.is_blocked(dialler.peer):
            self._in_turn_refused(dialler.peer)

    def _in_turn_refused(self, peer: str) -> None:
        self.hub.begin_turn()
        try:
            self._owner.on_refused(peer)
        finally:
            self.hub.end_turn()

    # -- what links tell

    def greeting_frame(self, link: PeerLink, kind: int, payload: bytes) -> None:
        """A frame of the greeting."""
        greeting = self._links[link]
        assert greeting is not None
        answers = greeting.take(kind, payload)
        name = self._name_of(link)
        if self.is_blocked(name):
            link.mute(True)
            return
        for answer in answers:
            link.send(*answer)
        if greeting.refused_by_peer is not None:
            why = greeting.refused_by_peer.text
            if greeting.refused_by_peer is Refusal.NOT_A_MEMBER:
                # The words are about this node: it was forgotten there, or never let in.
                why += "; to have it join anew: warrenctl stop_app, force_reset, join_cluster"
            self._note_refusal(name, f"refuses us: {why}", link)
            link.lost("it refuses us")
        elif greeting.refusal is not None:
            self._note_refusal(name, f"refused by us: {greeting.refusal.text}", link)
            link.part()
        elif greeting.is_done:
            assert greeting.peer is not None
            self._greeted(link, greeting.peer)

    def control_frame(self, link: PeerLink, kind: int, payload: bytes) -> None:
        """For the owner."""
        self._owner.on_control(link.peer, kind, payload)

    def link_lost(self, link: PeerLink, reason: str) -> None:
        """A link is over; its sink has been told."""
        name = self._name_of(link)
        greeting = self._links.pop(link, None)
        was_ready = bool(link.peer)
        self._came_from.pop(link, None)
        if link.muted:
            self._partition.put_aside(name, link)
        if was_ready:
            self._heard_ms[name] = max(self._heard_ms.get(name, 0), link.received_ms)
            self.log.info("%s: the link is over: %s", link.name, reason)
        elif greeting is not None and not greeting.is_over and self._is_due(name, reason):
            self.log.info("%s: no greeting: %s", link.name, reason)
        if self._accepted.get(name) is link:
            del self._accepted[name]
        if link.dialled:
            dialler = self._diallers.get(name)
            if dialler is not None:
                dialler.lost(link)
            if was_ready:
                self._since.pop(name, None)
                self._why_over[name] = reason
                self._owner.on_down(name)

    def _greeted(self, link: PeerLink, hello: Hello) -> None:
        name = hello.name
        if hello.incarnation < self._newest.get(name, 0):
            # A newer one was quicker while this one was on its way.
            link.lost("there is a newer one")
            return
        self._links[link] = None
        self._newest[name] = hello.incarnation
        self._refusals.pop(name, None)
        # Links of an earlier incarnation lead nowhere, and nobody dials one node twice.
        for older in list(self._links_with(name)):
            if older.is_ready and (
                older.incarnation < hello.incarnation or older.dialled == link.dialled
            ):
                older.lost("there is a newer one")
        if link.closed:
            return
        link.become_ready(name, hello.incarnation)
        if link.dialled:
            self._rare.forget(name, "call")
            self._diallers[name].ready()
            self._since[name] = int(self.hub.engine.clock.wall_s())
            self.log.info("%s: the link is up, incarnation %d", link.name, hello.incarnation)
            link.sink = self._owner.make_gateway_sink(link)
            self._owner.on_up(name, hello.incarnation)
            return
        link.name = f"node {name} from {self._came_from[link]}"
        self.log.info("%s: has called, incarnation %d", link.name, hello.incarnation)
        self._accepted[name] = link
        link.sink = self._owner.make_home_sink(link)
        link.ring = self._owner.make_ring_sink(link)
        link.hold_credit(self._credit_held)
        if name in self._diallers and self._diallers[name].link is None:
            self._diallers[name].hurry()

    def _note_refusal(self, name: str, text: str, link: PeerLink) -> None:
        if name in self._diallers:
            self._refusals[name] = text
        if self._is_due(name, text):
            # Of one who called, all that is known is what it says of itself.
            said = f" (calls itself {name!r})" if name and not link.dialled else ""
            self.log.warning("%s%s: %s", link.name, said, text)

    # -- time passes

    def _tick(self) -> None:
        now_ms = self.now_ms()
        late = now_ms - self._ticked_ms > LATE_TICKS * self._tick_ms
        self._ticked_ms = now_ms
        self.hub.begin_turn()
        try:
            for link in list(self._links):
                if not link.closed:
                    self._look_at(link, now_ms, late)
        finally:
            if not self._closed:
                self._timer = self.hub.loop.call_later(self._tick_ms / 1000, self._tick)
            self.hub.end_turn()

    def _look_at(self, link: PeerLink, now_ms: int, late: bool) -> None:
        options = self.options
        if not link.is_ready:
            if now_ms - link.opened_ms >= options.greeting_timeout_ms and not late:
                link.lost(f"not finished within {options.greeting_timeout_ms} ms")
        elif now_ms - link.received_ms >= options.silence_ms and not late:
            link.lost(f"nothing heard for {now_ms - link.received_ms} ms")
        elif link.is_stuck(options.silence_ms) and not late:
            link.lost(f"it has taken nothing for {now_ms - link.sent_ms} ms")
        elif now_ms - link.sent_ms >= options.ping_ms:
            link.ping()

    def _is_due(self, *what: object) -> bool:
        return self._rare.is_due(self.now_ms(), *what)

    # -- who is who

    def _strangers(self) -> Iterator[PeerLink]:
        return (link for link, greeting in self._links.items() if greeting is not None)

    def _links_with(self, peer: str) -> Iterator[PeerLink]:
        return (link for link in self._links if self._name_of(link) == peer)

    def _name_of(self, link: PeerLink) -> str:
        """Whose link it is, as far as is known: whom we called, or who it says it is."""
        if link.peer:
            return link.peer
        for dialler in self._diallers.values():
            if dialler.link is link:
                return dialler.peer
        greeting = self._links.get(link)
        return greeting.peer.name if greeting is not None and greeting.peer is not None else ""

    def _status_of(self, name: str) -> PeerStatus:
        dialler = self._diallers.get(name)
        to, came = self.link_to(name), self.link_from(name)
        both = [link for link in (to, came) if link is not None]
        heard_ms = self.last_heard_ms(name)
        return PeerStatus(
            name=name,
            address=None if dialler is None else dialler.address,
            connected=to is not None,
            accepted_from=None if came is None else self._came_from[came],
            incarnation=both[0].incarnation if both else self._newest.get(name),
            since=self._since.get(name),
            bytes_in=sum(link.bytes_in for link in both),
            bytes_out=sum(link.bytes_out for link in both),
            pending=sum(link.pending_bytes for link in both),
            silent_ms=None if heard_ms is None else self.now_ms() - heard_ms,
            last_refusal=self._refusals.get(name),
            blocked=self.is_blocked(name),
        )
