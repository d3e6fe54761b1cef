"""Fixtures for tests that need a broker; registered with pytest when Warren is installed.

Nothing of the broker is imported before a test asks for it: in other people's test runs this
plugin costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from warren.testing.broker import Broker


@dataclass(frozen=True)
class VHost:
    """A virtual host that belongs to one test."""

    name: str
    url: str
    broker: Broker


@pytest.fixture(scope="session")
def amqp_broker() -> Iterator[Broker]:
    """A broker in this process that all tests share; see `warren.testing.Broker`."""
    from warren.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def amqp_url(amqp_broker: Broker) -> str:
    """The URL of the shared broker's virtual host `/`."""
    return amqp_broker.url


@pytest.fixture
def amqp_vhost(amqp_broker: Broker) -> Iterator[VHost]:
    """A fresh virtual host on the shared broker, deleted after the test."""
    import secrets

    name = f"test-{secrets.token_hex(8)}"
    url = amqp_broker.add_vhost(name)
    yield VHost(name, url, amqp_broker)
    amqp_broker.delete_vhost(name)
