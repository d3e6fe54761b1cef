"""From the configuration to what the engine and the directory need to be told."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path

from warren.config.schema import MESSAGE_BYTES_MAX
from warren.config.settings import AuthSettings, Settings
from warren.engine.settings import EngineSettings


def node_name(settings: Settings) -> str:
    """The configured name, or `warren@` and the machine's."""
    return settings.node.name or f"warren@{socket.gethostname().split('.')[0]}"


def wants_cluster(settings: Settings, data_dir: Path | None) -> bool:
    """Whether a node is one of a cluster, be it of one that others may join.

    It is by its configuration, and it stays one: what it has agreed on is in its data directory.
    """
    cluster = settings.cluster
    has_agreed = data_dir is not None and (data_dir / "agreement").is_dir()
    return bool(cluster.peers) or cluster.listen is not None or has_agreed


def engine_settings(settings: Settings, node_name: str) -> EngineSettings:
    limits = settings.limits
    return EngineSettings(
        node_name=node_name,
        cluster_name=settings.cluster.name or node_name,
        queue_master_locator=settings.cluster.queue_master_locator,
        sync_bytes_per_s_max=settings.cluster.mirroring_sync_bytes_per_s_max,
        product=settings.announce_product,
        version=settings.announce_version,
        mechanisms=settings.auth.mechanisms,
        certificate_login_from=settings.auth.certificate_login_from,
        channel_max=limits.channel_max,
        frame_max=limits.frame_max_bytes,
        initial_frame_max=limits.initial_frame_max_bytes,
        heartbeat_s=limits.heartbeat_s,
        max_message_bytes=min(limits.message_bytes_max, MESSAGE_BYTES_MAX),
        connection_max=limits.connection_max,
        channel_max_per_node=limits.channel_max_per_node,
        consumer_max_per_channel=limits.consumer_max_per_channel,
        vhost_max=limits.vhost_max,
        consumer_timeout_ms=limits.consumer_timeout_ms,
    )


def credential_validator(auth: AuthSettings) -> Callable[[str, str], None] | None:
    """What refuses weak passwords, as `credential_validator.*` asks; None when nothing does."""
    kind = auth.credential_validator.removeprefix("rabbit_credential_validator_")
    if kind == "min_password_length":
        return lambda _user, password: _check_length(password, auth.credential_min_length)
    if kind == "password_regexp" and auth.credential_pattern is not None:
        pattern = re.compile(auth.credential_pattern)
        return lambda _user, password: _check_pattern(password, pattern)
    return None


def _check_length(password: str, length_min: int) -> None:
    if len(password) < length_min:
        raise ValueError(f"minimum required password length: {length_min}")


def _check_pattern(password: str, pattern: re.Pattern[str]) -> None:
    if pattern.search(password) is None:
        raise ValueError("provided password does not match the validation regular expression")
