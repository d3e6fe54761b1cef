"""From the configuration to what the engine needs to be told."""

from __future__ import annotations

import re

from warren.config.settings import Settings
from warren.engine.settings import EngineSettings


def engine_settings(settings: Settings, node_name: str) -> EngineSettings:
    limits = settings.limits
    return EngineSettings(
        node_name=node_name,
        cluster_name=settings.cluster.name or node_name,
        product=settings.announce_product,
        version=settings.announce_version,
        mechanisms=settings.auth.mechanisms,
        certificate_login_from=settings.auth.certificate_login_from,
        channel_max=limits.channel_max,
        frame_max=limits.frame_max_bytes,
        initial_frame_max=limits.initial_frame_max_bytes,
        heartbeat_s=limits.heartbeat_s,
        max_message_bytes=limits.message_bytes_max,
        connection_max=limits.connection_max,
        channel_max_per_node=limits.channel_max_per_node,
        consumer_max_per_channel=limits.consumer_max_per_channel,
        vhost_max=limits.vhost_max,
        consumer_timeout_ms=limits.consumer_timeout_ms,
    )


def vhost_limits(settings: Settings, vhost: str) -> dict[str, int]:
    """The first group of `default_limits.vhosts` whose pattern fits a new virtual host's name."""
    for group in settings.limits.default_vhost_limits.values():
        if re.search(group.get("pattern", ".*"), vhost):
            return {
                key.replace("_", "-"): int(value)
                for key, value in group.items()
                if key in {"max_connections", "max_queues"}
            }
    return {}
