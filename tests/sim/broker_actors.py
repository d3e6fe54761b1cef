"""Publishers and consumers of simulated brokers: they go on with another node if theirs is gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sim.broker_client import SimClient, method, publish
from sim.broker_ledger import Publish

if TYPE_CHECKING:
    from sim.broker_cluster import BrokerCluster

RECONNECT_US = 50_000


class Actor:
    """Has a connection, or gets one."""

    def __init__(self, cluster: BrokerCluster, name: str, queue: str) -> None:
        self.cluster, self.world, self.name, self.queue = cluster, cluster.world, name, queue
        self.ledger = cluster.ledger
        self.client: SimClient | None = None
        self.life = 0
        self.is_stopped = False

    def start(self) -> None:
        self._connect()

    def stop(self) -> None:
        self.is_stopped = True

    def _connect(self) -> None:
        if self.is_stopped:
            return
        nodes = [n for n in self.cluster.nodes.values() if n.lets_clients_in]
        if not nodes:
            self.world.after(RECONNECT_US, self._connect)
            return
        self.life += 1
        node = self.world.random.choice(nodes)
        life = self.life
        self.world.note(f"{self.name}.{life} connects to {node.name}")

        def current(action: Callable[..., None]) -> Callable[..., None]:
            return lambda *them: action(*them) if self.life == life else None

        self.client = SimClient(
            node, current(self.on_open), current(self.on_method), current(self._gone)
        )

    def _gone(self) -> None:
        self.world.note(f"{self.name}.{self.life} is disconnected")
        self.client = None
        self.on_gone()
        self.world.after(RECONNECT_US, self._connect)

    def send(self, data: bytes) -> None:
        if self.client is not None and not self.client.is_over:
            self.client.send(data)

    def close(self) -> None:
        if self.client is not None:
            self.client.close()

    def on_open(self) -> None: ...
    def on_gone(self) -> None: ...
    def on_method(self, name: str, fields: dict[str, Any], body: bytes) -> None: ...


class Publisher(Actor):
    """Publishes with confirms, so many at a time."""

    def __init__(self, *arguments: Any, every_us: int, window: int) -> None:
        super().__init__(*arguments)
        self.every_us, self.window = every_us, window
        self.tag = 0
        self.count = 0
        self.waiting: dict[int, Publish] = {}
        self._is_open = False

    def on_open(self) -> None:
        self.tag = 0
        self.waiting = {}
        self.send(method(1, "confirm.select"))

    def on_gone(self) -> None:
        self._is_open = False
        for it in self.waiting.values():
            if it.state == "sent":
                self.ledger.answered(it, "unknown")
        self.waiting = {}

    def on_method(self, name: str, fields: dict[str, Any], body: bytes) -> None:
        if name == "confirm.select-ok":
            self._is_open = True
            self._step(self.life)
        elif name in {"basic.ack", "basic.nack"}:
            self._answered(fields, "confirmed" if name == "basic.ack" else "nacked")
        elif name == "basic.return":
            for it in self.waiting.values():
                if it.body == body:
                    self.ledger.answered(it, "returned")
        elif name == "channel.close":
            self.close()

    def _answered(self, fields: dict[str, Any], state: str) -> None:
        tag = fields["delivery_tag"]
        if tag not in self.waiting and not fields["multiple"]:
            self.ledger.fail(f"{self.name} is told of {tag}, which does not wait")
        tags = [t for t in self.waiting if t <= tag] if fields["multiple"] else [tag]
        for each in tags:
            self.ledger.answered(self.waiting.pop(each), state)

    def _step(self, life: int) -> None:
        if self.is_stopped or life != self.life or not self._is_open:
            return
        dice = self.world.random
        self.world.after(
            dice.randint(self.every_us // 2, self.every_us * 3 // 2), lambda: self._step(life)
        )
        data = b""
        for _ in range(dice.choice((1, 1, 3))):
            if len(self.waiting) < self.window:
                data += self._next()
        if data:
            self.send(data)

    def _next(self) -> bytes:
        dice = self.world.random
        self.tag += 1
        self.count += 1
        ballast = dice.choice((0, 0, 20, 200, 1500))
        name = f"{self.name}/{self.life}/{self.count}".encode()
        body = name + (b" " + bytes(ballast) if ballast else b"")
        persistent = dice.random() < 0.9
        self.waiting[self.tag] = self.ledger.sent(body, self.queue, persistent)
        return publish(1, self.queue, body, persistent)


class Consumer(Actor):
    """Takes messages and settles them, one way or another."""

    def __init__(self, *arguments: Any, prefetch: int, gets: bool, is_alone: bool) -> None:
        super().__init__(*arguments)
        self.prefetch, self.gets, self.is_alone = prefetch, gets, is_alone
        self._is_open = False
        self.asked = ""

    def on_open(self) -> None:
        if self.gets:
            self._get(self.life)
        else:
            self._consume()

    def _consume(self) -> None:
        self.asked = "consume"
        self.send(
            method(1, "basic.qos", prefetch_count=self.prefetch)
            + method(1, "basic.consume", queue=self.queue, consumer_tag=f"{self.name}.{self.life}")
        )

    def _get(self, life: int) -> None:
        if not self.is_stopped and life == self.life and self.client is not None:
            self.asked = "get"
            self.send(method(1, "basic.get", queue=self.queue))

    def on_gone(self) -> None:
        self.asked = ""

    def on_method(self, name: str, fields: dict[str, Any], body: bytes) -> None:
        if name in {"basic.deliver", "basic.get-ok"}:
            who = f"{self.name}.{self.life}"
            is_first = self.is_alone and self.life == 1
            again = fields["redelivered"]
            it = self.ledger.delivered(who, self.queue, body, again, in_order=is_first)
            delay = self.world.random.choice((0, 500, 3_000, 3_000, 40_000))
            tag, life = fields["delivery_tag"], self.life
            self.world.after(delay, lambda: self._settle(life, tag, it))
        if name in {"basic.get-ok", "basic.get-empty"}:
            self.asked = ""
            life = self.life
            self.world.after(self.world.random.randint(1_000, 60_000), lambda: self._get(life))
        elif name == "basic.consume-ok":
            self.asked = ""
        elif name in {"channel.close", "basic.cancel"}:
            self.close()

    def _settle(self, life: int, tag: int, it: Publish) -> None:
        if life != self.life or self.client is None:
            return
        what = self.world.random.random()
        self.world.note(f"{self.name}.{self.life} settles {it.name!r} {what:.2f}")
        if what < 0.8:
            it.settle(self.world.now_us)
            self.send(method(1, "basic.ack", delivery_tag=tag))
        elif what < 0.92:
            self.send(method(1, "basic.nack", delivery_tag=tag, requeue=True))
        elif what < 0.96:
            it.settle(self.world.now_us)
            self.send(method(1, "basic.reject", delivery_tag=tag))
        elif what < 0.98:
            self.close()


class Drain(Actor):
    """Takes all that is left in a queue, at the end."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.left: list[bytes] = []
        self.is_done = False

    def on_open(self) -> None:
        self._get()

    def _get(self) -> None:
        self.send(method(1, "basic.get", queue=self.queue, no_ack=True))

    def on_method(self, name: str, fields: dict[str, Any], body: bytes) -> None:
        if name == "basic.get-ok":
            it = self.ledger.delivered(self.name, self.queue, body, fields["redelivered"])
            self.left.append(it.body)
            # Whatever was given back is back in its place.
            self.ledger.check_order(self.name, it.name)
            self._get()
        elif name == "basic.get-empty":
            self.is_done = True
        elif name == "channel.close":
            self.ledger.fail(f"{self.queue} cannot be read: {fields['reply_text']}")


class Declarer(Actor):
    """Declares queues, one after the other; again on another node when a connection is lost."""

    def __init__(
        self,
        cluster: BrokerCluster,
        queues: list[str],
        arguments: dict[str, dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(cluster, "declarer", "")
        self.queues = list(queues)
        self.arguments = arguments or {}

    def on_open(self) -> None:
        if self.queues:
            name = self.queues[0]
            table = self.arguments.get(name, {})
            self.send(method(1, "queue.declare", queue=name, durable=True, arguments=table))

    def on_method(self, name: str, fields: dict[str, Any], body: bytes) -> None:
        if name == "queue.declare-ok":
            self.queues.pop(0)
            self.on_open()
        elif name == "channel.close":
            self.close()
