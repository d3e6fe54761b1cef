"""Addresses of brokers: `amqps://user:password@host:5671/vhost?heartbeat=10&verify=verify_none`."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

DEFAULT_PORTS = {"amqp": 5672, "amqps": 5671}
HEARTBEAT_S = 30
#: No other settings are known; a wrong word is told rather than passed over.
SETTINGS = (
    "heartbeat",
    "connection_timeout",
    "channel_max",
    "auth_mechanism",
    "cacertfile",
    "certfile",
    "keyfile",
    "verify",
    "fail_if_no_peer_cert",
    "server_name_indication",
    "depth",
    "password",
)


class BadAddress(ValueError):
    """The address cannot be used; the text says why, and holds no password."""


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where a broker is, and who connects."""

    scheme: str
    #: Empty: the node that is asked.
    host: str
    port: int
    user: str
    password: str = field(repr=False)
    vhost: str
    settings: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def tls(self) -> bool:
        return self.scheme == "amqps"

    @property
    def heartbeat_s(self) -> int:
        text = self.settings.get("heartbeat", "")
        return int(text) if text.isdigit() else HEARTBEAT_S

    @property
    def shown(self) -> str:
        """The address without what is secret."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = f":{self.port}" if self.host and self.port != DEFAULT_PORTS[self.scheme] else ""
        vhost = "" if self.vhost == "/" else "/" + self.vhost.replace("/", "%2F")
        return f"{self.scheme}://{host}{port}{vhost}"


def parse_address(text: str) -> BrokerAddress:
    """Raises BadAddress."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise BadAddress("not an address of a broker: amqp://user:password@host:port/vhost") from (
            None
        )
    if parts.scheme not in DEFAULT_PORTS:
        raise BadAddress("an address of a broker begins with amqp:// or amqps://")
    path = parts.path
    if path.count("/") > 1:
        raise BadAddress("the virtual host in an address has its slashes written as %2F")
    settings = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in settings:
        if name not in SETTINGS:
            raise BadAddress(f"an address has no setting '{name}': {', '.join(SETTINGS)}")
    return BrokerAddress(
        parts.scheme,
        parts.hostname or "",
        port or DEFAULT_PORTS[parts.scheme],
        unquote(parts.username) if parts.username is not None else "guest",
        unquote(parts.password) if parts.password is not None else "guest",
        # No path is the default virtual host; a path that is only a slash is the one without name,
        # which no broker has: nobody means it.
        unquote(path[1:]) if len(path) > 1 else "/",
        settings,
    )
