"""Something to look at: a cluster with a shop's queues, clients at work, and some trouble."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.request
from base64 import b64encode
from typing import Any
from urllib.parse import quote

import pika

from warren.engine.salvaging import lines_of
from warren.model.message import Address
from warren.store.salvage import SalvageDirectory
from warren.testing.cluster import Cluster
from warren.wire.content import make_message
from warren.wire.properties import encode_properties

EXCHANGES = (("shop.orders", "topic"), ("shop.events", "fanout"), ("shop.dlx", "direct"))
QUEUES: dict[str, dict[str, Any]] = {
    "orders.new": {"x-dead-letter-exchange": "shop.dlx"},
    "orders.paid": {"x-dead-letter-exchange": "shop.dlx", "x-max-length": 10},
    "orders.shipped": {},
    "mail.outgoing": {"x-message-ttl": 3_600_000},
    "search.index": {},
    "audit.all": {"x-max-priority": 5},
    "dead.letters": {},
}
BINDINGS = (
    ("shop.orders", "orders.new", "order.new"),
    ("shop.orders", "orders.paid", "order.paid"),
    ("shop.orders", "orders.shipped", "order.shipped.#"),
    ("shop.orders", "audit.all", "#"),
    ("shop.events", "search.index", ""),
    ("shop.events", "mail.outgoing", ""),
    ("shop.dlx", "dead.letters", "order.new"),
    ("shop.dlx", "dead.letters", "order.paid"),
)
#: What the first node has put aside.
SALVAGED = "queue-7-41.messages"
DAMAGED = "00000003-8192.bin"
SALVAGED_MESSAGES = 12


class Api:
    """The management API as guest, for what a test does behind the page's back."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Raises HTTPError."""
        request = urllib.request.Request(
            f"{self.url}/api/{path}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": "Basic " + b64encode(b"guest:guest").decode()},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if text else None


class Scene:
    """Builds it all; `clients` stay connected until `close`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.clients: list[pika.BlockingConnection] = []

    def build(self) -> None:
        self._declare()
        self._publish()
        self._consume()
        self._administrate()
        self._pause()
        self._salvage()

    def close(self) -> None:
        """Clients of nodes that were killed are gone already."""
        for client in self.clients:
            with contextlib.suppress(pika.exceptions.AMQPError):
                client.close()

    def _client(self, node: int, name: str) -> Any:
        parameters = pika.URLParameters(self.cluster.url(node))
        parameters.client_properties = {"connection_name": name}
        # Nobody answers heartbeats while a test looks at pages.
        parameters.heartbeat = 0
        client = pika.BlockingConnection(parameters)
        self.clients.append(client)
        return client.channel()

    def _declare(self) -> None:
        channel = self._client(1, "shop web front")
        for name, kind in EXCHANGES:
            channel.exchange_declare(name, kind, durable=True)
        channel.exchange_bind("shop.events", "shop.orders", "order.#")
        for number, (name, arguments) in enumerate(QUEUES.items()):
            # Queues live where they are declared: some on each node.
            own = self._client(number % 3 + 1, f"set-up {number}") if number < 3 else channel
            own.queue_declare(name, durable=True, arguments=arguments)
        for exchange, queue, key in BINDINGS:
            channel.queue_bind(queue, exchange, key)

    def _publish(self) -> None:
        channel = self._client(1, "order service")
        channel.confirm_delivery()
        for number in range(40):
            for key in ("order.new", "order.paid", "order.shipped.dhl"):
                body = json.dumps({"order": 1000 + number, "total": 19.9 + number, "eur": True})
                channel.basic_publish(
                    "shop.orders",
                    key,
                    body.encode(),
                    pika.BasicProperties(
                        delivery_mode=2,
                        content_type="application/json",
                        message_id=f"m-{number}",
                        timestamp=int(time.time()),
                        headers={"tenant": "berlin"},
                    ),
                )

    def _consume(self) -> None:
        worker = self._client(2, "payment worker")
        worker.basic_qos(prefetch_count=8)
        for number in range(8):
            method, _, _ = worker.basic_get("orders.new")
            assert method is not None
            if number < 4:
                worker.basic_reject(method.delivery_tag, requeue=False)
        worker.basic_consume("orders.shipped", lambda *_: None, consumer_tag="ship-1")
        mailer = self._client(3, "mailer")
        mailer.basic_qos(prefetch_count=5)
        mailer.basic_consume("mail.outgoing", lambda *_: None, consumer_tag="mailer-1")

    def _administrate(self) -> None:
        api = Api(self.cluster.management_url(1))
        api.call("PUT", "users/olga", {"password": "a long one", "tags": "monitoring"})
        api.call("PUT", "users/paul", {"password": "a long one", "tags": "management"})
        api.call("PUT", "users/petra", {"password": "a long one", "tags": "policymaker"})
        for user in ("olga", "paul", "petra"):
            rights = {"configure": "^shop\\.", "write": ".*", "read": ".*"}
            api.call("PUT", f"permissions/%2F/{user}", rights)
        topics = {"exchange": "shop.orders", "write": "^order\\.", "read": ".*"}
        api.call("PUT", "topic-permissions/%2F/olga", topics)
        api.call(
            "PUT", f"vhosts/{quote('staging', safe='')}", {"description": "the shop of tomorrow"}
        )
        api.call("PUT", "vhost-limits/staging/max-queues", {"value": 100})
        api.call("PUT", "user-limits/paul/max-connections", {"value": 20})
        expires = {"pattern": "^tmp\\.", "definition": {"expires": 600000}, "apply-to": "queues"}
        api.call("PUT", "policies/%2F/temporary", expires)
        mirrored = {"ha-mode": "all", "ha-sync-mode": "automatic"}
        everywhere = {"pattern": "^(mail|audit)", "definition": mirrored, "apply-to": "queues"}
        api.call("PUT", "policies/%2F/mirrored", everywhere)
        limit = {"pattern": ".*", "definition": {"max-length": 1000000}, "apply-to": "queues"}
        api.call("PUT", "operator-policies/%2F/nobody-beyond", limit)

    def _pause(self) -> None:
        """A queue whose consumers rest; shovels that work, rest and cannot."""
        api = Api(self.cluster.management_url(1))
        for name in ("invoices.hold", "reports.in"):
            api.call("PUT", f"queues/%2F/{name}", {"durable": True})
            message = {"routing_key": name, "payload": "x", "payload_encoding": "string"}
            for _ in range(25):
                api.call("POST", "exchanges/%2F/amq.default/publish", {**message, "properties": {}})
        worker = self._client(3, "invoice printer")
        api.call("PUT", "queues/%2F/invoices.hold/pause", {})
        worker.basic_consume("invoices.hold", lambda *_: None, consumer_tag="printer-1")
        here = {"src-uri": "amqp://", "dest-uri": "amqp://"}
        away = {"src-uri": "amqp://", "dest-uri": "amqp://127.0.0.1:1", "reconnect-delay": 60}
        shovels = {
            "reports-mover": {**here, "src-queue": "reports.in", "dest-queue": "reports.out"},
            "audit-copy": {**here, "src-exchange": "shop.events", "dest-queue": "audit.copy"},
            "old-site": {**away, "src-queue": "old.orders", "dest-queue": "orders"},
        }
        for name, value in shovels.items():
            api.call("PUT", f"parameters/shovel/%2F/{name}", {"value": value})
        api.call("PUT", "shovels/vhost/%2F/audit-copy/pause", {})

    def _salvage(self) -> None:
        """As a node writes it that was master, was away, and is not any more."""
        folder = SalvageDirectory(str(self.cluster.data_dir(1) / "salvage"))
        put_aside(folder, SALVAGED.removesuffix(".messages"), SALVAGED_MESSAGES, "orders.new")
        folder.keep(
            DAMAGED.removesuffix("-8192.bin"), 8192, b"\x00" * 300, "a checksum does not fit"
        )


def put_aside(folder: SalvageDirectory, name: str, count: int, queue: str) -> None:
    """Messages that the cluster has gone on without."""
    rows = []
    for number in range(count):
        body = json.dumps({"order": 2000 + number}).encode()
        header = encode_properties({"content_type": "application/json"}, len(body))
        rows.append((number, make_message(Address(b"shop.orders", b"order.new"), header, body)))
    reason = "the cluster has gone on without them"
    note = {"vhost": "/", "queue": queue, "messages": count, "reason": reason}
    folder.keep_messages(name, lines_of(rows), note)
