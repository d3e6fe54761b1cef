"""What a network of nodes is given: who this node is, its limits, its certificates."""

from __future__ import annotations

import ssl
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this node is; `cluster_id` is empty until it has founded or joined one."""

    name: str
    incarnation: int
    cluster_id: str = ""


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """Times and limits of the links; all nodes of a cluster should have the same."""

    #: A link on which we said nothing for so long gets a ping.
    ping_ms: int = 500
    #: A link on which nothing was heard, or nothing could be sent, for so long is closed.
    silence_ms: int = 1500
    #: Connecting and the greeting may each take this long.
    greeting_timeout_ms: int = 5000
    redial_first_ms: int = 50
    redial_max_ms: int = 1000
    #: Bytes of data frames that a node takes ahead of its sink, for each accepted link.
    window_bytes: int = 8 << 20
    #: Accepted connections that have not proved anything yet; more of them push out the oldest.
    strangers_max: int = 64
    #: Control frames for a node that does not take them are dropped beyond so many bytes.
    control_backlog_bytes: int = 16 << 20

    def __post_init__(self) -> None:
        times = (self.ping_ms, self.greeting_timeout_ms, self.redial_first_ms)
        if min(times) <= 0 or self.redial_max_ms < self.redial_first_ms:
            raise ValueError("times of links between nodes must be positive")
        if self.silence_ms < 2 * self.ping_ms:
            raise ValueError("silence_ms must be at least twice ping_ms")
        if self.window_bytes < 1 << 16 or self.strangers_max < 1:
            raise ValueError("window_bytes must be at least 64 KiB, strangers_max at least 1")


@dataclass(frozen=True, slots=True)
class PeerTls:
    """The contexts of both directions. Both must ask for a certificate: TLS here is mutual."""

    server: ssl.SSLContext
    client: ssl.SSLContext

    def __post_init__(self) -> None:
        for context in (self.server, self.client):
            if context.verify_mode is not ssl.CERT_REQUIRED:
                raise ValueError("TLS between nodes needs verified certificates on both sides")
