"""The node that clients are connected to: it sends publishes again and attaches consumers anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.ring_node import RingNode

RESEND_US = 300_000
BATCH = 5


class _Channel:
    """Publishes of one client to one queue, in order."""

    def __init__(self, name: str, key: str) -> None:
        self.name, self.key = name, key
        self.last = 0
        self.confirmed = 0
        self.sent = 0


class _Attached:
    """One consumer of one queue."""

    def __init__(self, name: str, consumer: str, prefetch: int) -> None:
        self.name, self.consumer, self.prefetch = name, consumer, prefetch
        self.number = 1
        self.master: str | None = None
        self.heard_us = 0


class Gateway:
    """Lives and dies with its node."""

    def __init__(self, node: RingNode) -> None:
        self.node, self.world, self.oracles = node, node.world, node.cluster.ring_oracles
        self.identity = f"{node.name}.{node.boot}"
        self.channels: dict[str, _Channel] = {}
        self.consumers: dict[str, _Attached] = {}
        self._resend_soon()

    def _master(self, name: str) -> str | None:
        view = self.node.view_of(name)
        return view.master if view is not None else None

    # -- publishing

    def open_channel(self, name: str, client: str) -> _Channel:
        key = f"{self.identity}.{client}"
        return self.channels.setdefault(key, _Channel(name, key))

    def publish(self, channel: _Channel, count: int) -> None:
        for _ in range(count):
            channel.last += 1
            self.oracles.attempted(channel.name, channel.key, channel.last)
        self._send(channel)

    def _send(self, channel: _Channel) -> None:
        master = self._master(channel.name)
        while master is not None and channel.sent < channel.last:
            first = channel.sent + 1
            channel.sent = min(first + BATCH - 1, channel.last)
            sequences = list(range(first, channel.sent + 1))
            self.node.send(master, ("publish", channel.name, channel.key, sequences))

    def confirm(self, source: str, name: str, key: str, sequence: int) -> None:
        channel = self.channels.get(key)
        if channel is not None:
            channel.confirmed = max(channel.confirmed, sequence)
            channel.sent = max(channel.sent, sequence)

    def _resend_soon(self) -> None:
        self.node.later(RESEND_US, self._resend)

    def _resend(self) -> None:
        """What was not confirmed goes out again; a client that hears nothing attaches anew."""
        self._resend_soon()
        for channel in self.channels.values():
            channel.sent = channel.confirmed
            self._send(channel)
        patience_us = 700_000 if self.node.cluster.is_draining else 1_500_000
        for attached in self.consumers.values():
            if self.world.now_us - attached.heard_us > patience_us:
                attached.number += 1
                self._attach(attached)

    def moved(self, name: str) -> None:
        """The queue has another master."""
        for channel in self.channels.values():
            if channel.name == name:
                channel.sent = channel.confirmed
                self._send(channel)
        for attached in self.consumers.values():
            if attached.name == name:
                self._attach(attached)

    def link_lost(self, other: str) -> None:
        for attached in self.consumers.values():
            if attached.master == other:
                attached.number += 1
                attached.heard_us = self.world.now_us - 1_400_000

    # -- consuming

    def consume(self, name: str, client: str, prefetch: int) -> None:
        attached = _Attached(name, f"{self.identity}.{client}", prefetch)
        self.consumers[attached.consumer] = attached
        self._attach(attached)

    def _attach(self, attached: _Attached) -> None:
        attached.master = self._master(attached.name)
        attached.heard_us = self.world.now_us
        if attached.master is not None:
            self.node.send(
                attached.master,
                ("attach", attached.name, attached.consumer, attached.number, attached.prefetch),
            )

    def deliver(
        self,
        source: str,
        name: str,
        consumer: str,
        number: int,
        index: int,
        key: str,
        sequence: int,
        redelivered: bool,
    ) -> None:
        attached = self.consumers.get(consumer)
        if attached is None or attached.number != number or attached.master != source:
            return
        attached.heard_us = self.world.now_us
        self.oracles.consumed(name, consumer, key, sequence, redelivered)
        dice = self.world.random
        throw = dice.random()
        if self.node.cluster.is_draining or throw < 0.85:
            kind = "a"
        elif throw < 0.95:
            kind = "r"
        else:
            return
        delay = dice.randint(0, 2_000 if self.node.cluster.is_draining else 30_000)
        self.node.later(delay, lambda: self._settle(attached, number, index, kind))

    def _settle(self, attached: _Attached, number: int, index: int, kind: str) -> None:
        if attached.master is not None and attached.number == number:
            self.node.send(
                attached.master, ("settle", attached.name, attached.consumer, number, index, kind)
            )
