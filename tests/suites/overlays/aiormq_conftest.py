"""The fixtures the aiormq suite expects from a file its source archive leaves out."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest
from yarl import URL


@dataclass(frozen=True)
class SharedBroker:
    """The broker of this run under the names the suite uses."""

    host: str
    ports: dict[str, int]


@pytest.fixture(scope="session")
def rabbitmq_container() -> SharedBroker:
    """The broker of this run."""
    return SharedBroker(
        host="127.0.0.1",
        ports={
            "5672/tcp": int(os.environ["SUITES_PORT"]),
            "5671/tcp": int(os.environ["SUITES_TLS_PORT"]),
        },
    )


@pytest.fixture(scope="session")
def amqp_direct_url(rabbitmq_container: SharedBroker) -> URL:
    """The plain URL of the default virtual host."""
    return URL.build(
        scheme="amqp",
        user="guest",
        password="guest",
        host=rabbitmq_container.host,
        port=rabbitmq_container.ports["5672/tcp"],
        path="//",
    )
