"""The warden walks past all links once a second: heartbeats, and clients that never get going."""

from __future__ import annotations

import asyncio

from warren.net.hub import Hub
from warren.net.link import Link
from warren.session.states import ConnectionState

ROUND_S = 1.0
#: A client that does not answer our connection.close within this time is cut off.
CLOSE_TIMEOUT_MS = 10_000


class Warden:
    """Started with the listeners, stopped with the node."""

    def __init__(self, hub: Hub, handshake_timeout_ms: int) -> None:
        self._hub = hub
        self._handshake_timeout_ms = handshake_timeout_ms
        self._closing_since: dict[Link, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = self._hub.loop.call_later(ROUND_S, self._round)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _round(self) -> None:
        now_ms = self._hub.engine.clock.now_ms()
        self._closing_since = {
            link: since for link, since in self._closing_since.items() if not link.closed
        }
        self._hub.begin_turn()
        try:
            for link in list(self._hub.links):
                self._look_at(link, now_ms)
        finally:
            self._hub.end_turn()
        self.start()

    def _look_at(self, link: Link, now_ms: int) -> None:
        state = link.connection.state
        if link.is_dead():
            link.lost()
        elif state < ConnectionState.RUNNING:
            if now_ms - link.opened_ms > self._handshake_timeout_ms:
                self._hub.engine.log.warning("%s: handshake timeout", link.connection.name)
                link.lost()
        elif state >= ConnectionState.CLOSING:
            since = self._closing_since.setdefault(link, now_ms)
            if now_ms - since > CLOSE_TIMEOUT_MS:
                link.lost()
        else:
            self._keep_alive(link, now_ms)

    def _keep_alive(self, link: Link, now_ms: int) -> None:
        heartbeat_ms = link.connection.heartbeat_s * 1000
        if not heartbeat_ms:
            return
        # While we do not read the client on purpose, its silence means nothing. One that does not
        # read us is alive as long as it takes something now and then.
        heard_ms = link.sent_ms if link.is_stalled else link.received_ms
        if not link.is_paused and now_ms - heard_ms > 2 * heartbeat_ms:
            self._hub.engine.log.warning(
                "%s: missed heartbeats from client, timeout: %d s",
                link.connection.name,
                link.connection.heartbeat_s,
            )
            link.lost()
        elif now_ms - link.sent_ms >= heartbeat_ms // 2:
            link.send_heartbeat()
