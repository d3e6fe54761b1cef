"""What is made on one node is there on all others before the one who made it hears so."""

from __future__ import annotations

import json
import urllib.request
from base64 import b64encode
from typing import Any

import pika
import pytest
from cluster_clients import NODES, Clients, Inbox, counts, eventually, is_gone, refused

from warren.testing import Cluster, CtlFailed

ROUNDS = 120


def call(cluster: Cluster, node: int, method: str, path: str, body: Any = None) -> Any:
    """The management API of a node."""
    request = urllib.request.Request(
        f"{cluster.management_url(node)}/api{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Authorization": "Basic " + b64encode(b"guest:guest").decode(),
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def test_declared_here_is_declared_there(clients: Clients, name: str) -> None:
    channels = [clients.channel(node) for node in NODES]
    for i in range(ROUNDS):
        here, *others = channels[i % 3 :] + channels[: i % 3]
        queue, exchange = f"{name}.q{i}", f"{name}.x{i}"
        here.queue_declare(queue)
        for other in others:
            assert counts(other, queue) == (0, 0)
        here.exchange_declare(exchange, "direct")
        for other in others:
            other.exchange_declare(exchange, passive=True)
        here.queue_bind(queue, exchange, "k")
        others[i % 2].basic_publish(exchange, "k", b"x", mandatory=True)
        others[(i + 1) % 2].queue_delete(queue)
        for channel in channels:
            assert channel.queue_delete(queue).method.message_count == 0
        here.exchange_delete(exchange)


def test_deleted_here_is_gone_there(clients: Clients, name: str) -> None:
    one, two = clients.channel(1), clients.channel(2)
    for i in range(20):
        queue = f"{name}.{i}"
        one.queue_declare(queue)
        two.queue_delete(queue)
        assert is_gone(clients.channel(3), queue)


def test_a_user_made_by_warrenctl(cluster: Cluster, clients: Clients, name: str) -> None:
    cluster.ctl(1, "add_user", name, name)
    cluster.ctl(2, "set_permissions", name, ".*", ".*", ".*")
    connections = [clients.connection(node, name) for node in NODES]
    for connection in connections:
        connection.channel().queue_declare(name)
    cluster.ctl(3, "delete_user", name)
    for connection in connections:
        eventually(lambda c=connection: is_closed(c))
    for node in NODES:
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            clients.connection(node, name)


def is_closed(connection: Any) -> bool:
    try:
        connection.process_data_events(0)
    except pika.exceptions.ConnectionClosedByBroker as error:
        return bool(error.reply_code == 320)
    return False


def test_a_vhost_made_by_http(cluster: Cluster, clients: Clients, name: str) -> None:
    call(cluster, 2, "PUT", f"/vhosts/{name}", {})
    call(cluster, 3, "PUT", f"/permissions/{name}/guest", all_rights())
    connections = [clients.connection(node, vhost=name) for node in NODES]
    connections[0].channel().queue_declare("in it")
    assert counts(connections[2].channel(), "in it") == (0, 0)
    call(cluster, 1, "DELETE", f"/vhosts/{name}")
    for connection in connections:
        eventually(lambda c=connection: is_closed(c))
    for node in NODES:
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            clients.connection(node, vhost=name)


def all_rights() -> dict[str, str]:
    return {"configure": ".*", "write": ".*", "read": ".*"}


def test_permissions_are_in_force_at_once(cluster: Cluster, clients: Clients, name: str) -> None:
    cluster.ctl(1, "add_user", name, name)
    cluster.ctl(1, "set_permissions", name, ".*", ".*", ".*")
    clients.channel(1).queue_declare(name)
    channels = [clients.connection(node, name).channel() for node in NODES]
    for channel in channels:
        channel.basic_get(name)
    cluster.ctl(2, "set_permissions", name, "", "", "")
    for channel in channels:
        refused(403, "refused for user", lambda c=channel: c.basic_get(name))
    cluster.ctl(3, "delete_user", name)


def test_policies_by_http(cluster: Cluster, clients: Clients, name: str) -> None:
    clients.channel(3).queue_declare(name)
    policy = {"pattern": f"^{name}$", "definition": {"max-length": 2}}
    call(cluster, 1, "PUT", f"/policies/%2F/{name}", policy)
    channel = clients.confirming(2)
    for _ in range(5):
        channel.basic_publish("", name, b"x")
    assert counts(channel, name) == (2, 0)
    for node in NODES:
        assert call(cluster, node, "GET", f"/queues/%2F/{name}")["policy"] == name
    call(cluster, 2, "DELETE", f"/policies/%2F/{name}")
    for node in NODES:
        assert call(cluster, node, "GET", f"/queues/%2F/{name}")["policy"] is None


def test_queues_by_http(cluster: Cluster, clients: Clients, name: str) -> None:
    call(cluster, 1, "PUT", f"/queues/%2F/{name}", {"durable": True})
    inbox = Inbox(clients.channel(2), name)
    call(cluster, 3, "PUT", f"/exchanges/%2F/{name}", {"type": "fanout"})
    call(cluster, 3, "POST", f"/bindings/%2F/e/{name}/q/{name}", {"routing_key": ""})
    clients.confirming(2).basic_publish(name, "", b"x", mandatory=True)
    assert inbox.wait(1) == [b"x"]
    call(cluster, 2, "DELETE", f"/queues/%2F/{name}")
    inbox.wait_cancelled()
    refused(404, "no queue", lambda: counts(clients.channel(1), name))


def test_what_ctl_refuses(cluster: Cluster, name: str) -> None:
    with pytest.raises(CtlFailed):
        cluster.ctl(2, "delete_user", name)
    cluster.ctl(2, "add_user", name, "one")
    with pytest.raises(CtlFailed):
        cluster.ctl(3, "add_user", name, "two")
    cluster.ctl(1, "delete_user", name)
