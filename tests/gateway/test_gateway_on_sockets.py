"""A publisher on a real socket and a home that does not answer: it is not read on and on."""

from __future__ import annotations

import socket
import threading
import time
from urllib.parse import urlsplit

from pair import handshake, method, publish
from two_nodes import FarQueue

from warren.gateway.gateway import Gateway
from warren.node.node import Node
from warren.testing.broker import Broker

MIB = 1024 * 1024


def install(node: Node) -> Gateway:
    gateway = Gateway(node.engine.turn, node.engine.effects, "home")
    vhost = node.engine.vhost("/")
    vhost.queues["far"] = FarQueue(gateway, 1, "far", vhost)  # type: ignore[assignment]
    return gateway


def remove(node: Node) -> None:
    del node.engine.vhost("/").queues["far"]


def test_a_publisher_waits_while_its_home_does_not_answer() -> None:
    with Broker() as broker:
        gateway = broker.call(install)
        url = urlsplit(broker.url)
        with socket.create_connection((url.hostname or "", url.port or 0), timeout=10) as client:
            for data, _ in handshake():
                client.sendall(data)
            client.sendall(method(1, "channel.open") + method(1, "confirm.select"))
            data = publish(1, "", "far", bytes(100_000)) * 400
            sender = threading.Thread(target=client.sendall, args=(data,), daemon=True)
            sender.start()
            sizes = []
            for _ in range(5):
                time.sleep(0.1)
                sizes.append(broker.call(lambda _: gateway.unanswered_bytes))
            # 40 MB are on their way, and what is read is bounded by what may be unanswered.
            assert 16 * MIB < sizes[4] < 18 * MIB
            assert sizes[2] == sizes[4]
            broker.call(lambda _: gateway.home_gone())
            sender.join(10)
            assert not sender.is_alive()
            answers = b""
            last = method(1, "basic.nack", 400)
            while last not in answers:
                answers += client.recv(65536)
            assert answers.count(b"\0\x3c\0\x78") == 400
        broker.call(remove)
