"""The address of a broker under test, in the spellings the suites ask for."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One broker: loopback address, ports and the account to use."""

    host: str
    port: int
    #: `None` when the broker has no such listener; suites that need it then fail loudly.
    tls_port: int | None = None
    http_port: int | None = None
    user: str = "guest"
    password: str = "guest"

    def __post_init__(self) -> None:
        require_loopback(self.host)

    @property
    def credentials(self) -> str:
        """`user:password`, as it stands before the `@` of a URL."""
        return f"{self.user}:{self.password}"

    @property
    def url(self) -> str:
        """The AMQP URL of the default virtual host."""
        return f"amqp://{self.credentials}@{self.host}:{self.port}/%2F"

    @property
    def tls_url(self) -> str:
        """The AMQPS URL; port 1, where nobody listens, stands for "no TLS listener"."""
        return f"amqps://{self.credentials}@{self.host}:{self.tls_port or 1}/%2F"

    @property
    def http_url(self) -> str:
        """The management URL; port 1, where nobody listens, stands for "no management API"."""
        return f"http://{self.host}:{self.http_port or 1}"


def parse_url(url: str, tls_port: int | None, http_port: int | None) -> Endpoint:
    """Read `amqp://user:password@127.0.0.1:port`.

    Raises: ValueError when the URL is no AMQP URL or leaves the machine.
    """
    parts = urlsplit(url)
    if parts.scheme != "amqp" or not parts.hostname:
        raise ValueError(f"not an AMQP URL: {url}")
    return Endpoint(
        host=parts.hostname,
        port=parts.port or 5672,
        tls_port=tls_port,
        http_port=http_port,
        user=unquote(parts.username or "guest"),
        password=unquote(parts.password or "guest"),
    )


def require_loopback(host: str) -> None:
    """Refuse any host that is not a loopback address written as a number.

    Some suites come with a public broker as their default, so a name that merely resolves to
    loopback today is not good enough.

    Raises: ValueError when the host may lead off this machine.
    """
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise ValueError(f"suites run against this machine only: {host!r} is no loopback address")


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on now; all are held until the last is chosen, so they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for candidate in sockets:
            candidate.bind(("127.0.0.1", 0))
        return [candidate.getsockname()[1] for candidate in sockets]
    finally:
        for candidate in sockets:
            candidate.close()
