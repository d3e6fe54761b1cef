"""What the engine needs to be told; the node fills it from the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Limits and names; the defaults are RabbitMQ's but for the consumer timeout, which is off."""

    node_name: str = "warren@localhost"
    cluster_name: str = "warren@localhost"
    queue_master_locator: str = "client-local"
    #: Of copies to new mirrors, in all; 0: as fast as live traffic allows.
    sync_bytes_per_s_max: int = 0
    product: str = "RabbitMQ"
    version: str = "3.13.7"
    mechanisms: tuple[str, ...] = ("PLAIN", "AMQPLAIN")
    certificate_login_from: str = "distinguished_name"
    channel_max: int = 2047
    frame_max: int = 131072
    initial_frame_max: int = 8192
    heartbeat_s: int = 60
    max_message_bytes: int = 128 * MIB
    connection_max: int | None = None
    channel_max_per_node: int | None = None
    consumer_max_per_channel: int | None = None
    vhost_max: int | None = None
    consumer_timeout_ms: int | None = None
    default_vhost_limits: Mapping[str, int] = field(default_factory=dict)
