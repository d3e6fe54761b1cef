"""A broker with its management API, shared by the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pytest

from management.api import Api, q
from warren.testing.broker import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http=True, config={"collect_statistics_interval": 200}) as running:
        yield running


@pytest.fixture(scope="module")
def api(broker: Broker) -> Api:
    return Api(broker.http_url)


@pytest.fixture
def vhost(broker: Broker) -> Iterator[str]:
    """A virtual host of the test's own, with a slash in its name; quoted for paths."""
    import secrets

    name = f"/t-{secrets.token_hex(6)}"
    broker.add_vhost(name)
    yield q(name)
    if name in broker.call(lambda node: list(node.engine.vhosts)):
        broker.delete_vhost(name)


@pytest.fixture
def channel(broker: Broker) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    yield connection.channel()
    if connection.is_open:
        connection.close()
