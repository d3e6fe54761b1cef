"""Fixtures for tests that need a broker; registered with pytest when Warren is installed.

Nothing of the broker is imported before a test asks for it: in other people's test runs this
plugin costs nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from warren.testing.broker import Broker
    from warren.testing.cluster import Cluster

MARKER = "amqp_cluster(n=3, config={}, node_config={}): the cluster that a test is to have"


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


@pytest.fixture
def amqp_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three nodes for one test, or what its marker says; see `warren.testing.Cluster`."""
    from warren.testing.cluster import Cluster

    marker = request.node.get_closest_marker("amqp_cluster")
    with Cluster(*marker.args, **marker.kwargs) if marker is not None else Cluster() as cluster:
        yield cluster


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", MARKER)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the nodes' logs to the report of a test that failed."""
    report = yield
    cluster: Cluster | None = getattr(item, "funcargs", {}).get("amqp_cluster")
    if cluster is not None and report.when == "call" and report.failed:
        for number, name in enumerate(cluster.nodes, start=1):
            report.sections.append((f"log of {name}", cluster.log(number)))
    return report
