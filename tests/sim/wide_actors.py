"""Clients with times to live, priorities and transactions."""

from __future__ import annotations

from typing import Any

from sim.broker_actors import Actor, Consumer, Drain, Publisher
from sim.broker_client import method, publish
from sim.broker_ledger import Publish
from sim.wide_ledger import WideLedger


class WidePublisher(Publisher):
    """Its messages have priorities, and a time to live at times."""

    def _next(self) -> bytes:
        self.tag += 1
        it, data = self.make()
        self.waiting[self.tag] = it
        return data

    def make(self) -> tuple[Publish, bytes]:
        dice = self.world.random
        self.count += 1
        ballast = dice.choice((1, 1, 20, 200, 1500))
        body = f"{self.name}/{self.life}/{self.count} ".encode() + bytes(ballast)
        persistent = dice.random() < 0.9
        it = self.ledger.sent(body, self.queue, persistent)
        properties: dict[str, Any] = {}
        if dice.random() < 0.7:
            it.priority = properties["priority"] = dice.randint(0, 4)
        if dice.random() < 0.15:
            it.ttl_ms = dice.choice((1, 200, 3_000, 60_000))
            properties["expiration"] = str(it.ttl_ms)
        return it, publish(1, self.queue, body, persistent, **properties)


class TxPublisher(WidePublisher):
    """The same in transactions, some of which are rolled back."""

    def on_open(self) -> None:
        self.waiting = {}
        self.returned: set[bytes] = set()
        self.is_rolling_back = False
        self.send(method(1, "tx.select"))

    def on_method(self, name: str, fields: dict[str, Any], body: bytes) -> None:
        if name == "tx.select-ok":
            self._is_open = True
            self._step(self.life)
        elif name == "basic.return":
            self.returned.add(body)
        elif name in {"tx.commit-ok", "tx.rollback-ok"}:
            waiting, self.waiting = self.waiting, {}
            for it in waiting.values():
                state = "confirmed" if name == "tx.commit-ok" else "rolled back"
                self.ledger.answered(it, "returned" if it.body in self.returned else state)
        elif name == "channel.close":
            # What a transaction has come to that was refused in part, nobody is told.
            self.close()

    def on_gone(self) -> None:
        if self.is_rolling_back:
            for it in self.waiting.values():
                self.ledger.answered(it, "rolled back")
        super().on_gone()

    def _step(self, life: int) -> None:
        if self.is_stopped or life != self.life or not self._is_open:
            return
        dice = self.world.random
        self.world.after(
            dice.randint(self.every_us // 2, self.every_us * 3 // 2), lambda: self._step(life)
        )
        if self.waiting:
            return
        data = b""
        for number in range(dice.choice((1, 3, 8))):
            self.waiting[number], made = self.make()
            data += made
        self.is_rolling_back = dice.random() < 0.2
        self.send(data + method(1, "tx.rollback" if self.is_rolling_back else "tx.commit"))


class TxConsumer(Consumer):
    """Each settlement is a transaction."""

    def on_open(self) -> None:
        self.send(method(1, "tx.select"))

    def on_method(self, name: str, fields: dict[str, Any], body: bytes) -> None:
        if name == "tx.select-ok":
            super().on_open()
        super().on_method(name, fields, body)

    def _settle(self, life: int, tag: int, it: Publish) -> None:
        super()._settle(life, tag, it)
        if life == self.life:
            self.send(method(1, "tx.commit"))


class WideDrain(Drain):
    """What has expired does not come."""

    def on_method(self, name: str, fields: dict[str, Any], body: bytes) -> None:
        super().on_method(name, fields, body)
        if name == "basic.get-ok":
            assert isinstance(self.ledger, WideLedger)
            self.ledger.check_overdue(self.ledger.published[self.left[-1].partition(b" ")[0]])


class Visitor(Actor):
    """Uses a queue now and then, so that it does not expire, and stays away after a while."""

    def __init__(self, *arguments: Any, every_us: int, until_us: int) -> None:
        super().__init__(*arguments)
        self.every_us, self.until_us = every_us, until_us
        #: When a get was sent that the master has answered.
        self.used_us = 0
        self._asked_us = 0

    def on_open(self) -> None:
        self._get(self.life)

    def _get(self, life: int) -> None:
        if life != self.life or self.is_stopped or self.world.now_us > self.until_us:
            return
        self._asked_us = self.world.now_us
        self.send(method(1, "basic.get", queue=self.queue, no_ack=True))

    def on_method(self, name: str, fields: dict[str, Any], body: bytes) -> None:
        if name in {"basic.get-ok", "basic.get-empty"}:
            if self._has_asked_master():
                self.used_us = self._asked_us
            life = self.life
            self.world.after(self.every_us, lambda: self._get(life))
        elif name == "channel.close":
            self.close()

    def _has_asked_master(self) -> bool:
        """Not one that others have replaced, who cannot know that it is used there.

        A node that is cut off serves for a second longer than they wait for it, and until it has
        heard of that (`aimed:13000293`).
        """
        assert self.client is not None
        known = self.client.node.engine.vhosts["/"].queues.get(self.queue)
        if known is None:
            return True
        view = self.cluster.watch.newest_view(known.number)
        return view is None or view.master == known.home
