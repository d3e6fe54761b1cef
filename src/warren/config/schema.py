"""Every key of the configuration file: its kind of value and the setting it fills.

A `*` in a key stands for one segment the user chooses: a number in a list, a name in a map. Keys
that are accepted although nothing acts on them yet are named in `KEYS_WITHOUT_EFFECT`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from warren.config.values import (
    BOOLEAN,
    BYTES,
    CONSUMER_TIMEOUT,
    DIRECTORY,
    DURATION,
    ENDPOINT,
    FILE_NAME,
    HOST_ENDPOINT,
    LOG_LEVEL,
    MILLISECONDS,
    NODE_NAME,
    NONE,
    PATH,
    PATTERN,
    PORT,
    RATIO,
    SECONDS,
    SECRET,
    TEXT,
    Kind,
    enum,
    integer,
    integer_or,
    renamed,
    size,
)

#: one: a single value. list: values in the order of their numbers. map: by chosen name.
#: records: by chosen name, then by the attribute after it. flags: the names that are true.
#: flags_added: the same, on top of the default.
Shape = Literal["one", "list", "map", "records", "flags", "flags_added"]

#: The largest message there can be, as in RabbitMQ: 512 MiB.
MESSAGE_BYTES_MAX = 536_870_912
#: `balanced` is what newer versions of RabbitMQ call it.
LOCATOR = renamed({"balanced": "min-masters"}, "client-local", "min-masters", "random")
#: `stop_processing` says what happens on the side that pauses.
PARTITION_HANDLING = renamed(
    {"stop_processing": "pause_minority"},
    "pause_minority",
    "pause_if_all_down",
    "ignore",
    "autoheal",
)
#: How masters of mirrored queues are spread, as `warrenctl rebalance --strategy`.
REBALANCE_STRATEGY = enum("min-masters", "min-messages", "min-connections", "round-robin", "random")
REBALANCE_INTERVAL = integer(1, None, "seconds")
#: RabbitMQ takes its own modules' names too.
PEER_DISCOVERY = renamed(
    {"rabbit_peer_discovery_classic_config": "classic_config"}, "classic_config"
)
LOG_CATEGORIES = (
    "connection",
    "channel",
    "queue",
    "mirroring",
    "federation",
    "upgrade",
    "ldap",
    "prelaunch",
    "default",
)
#: What a default operator policy may hold: two patterns, then the policy's keys.
OPERATOR_POLICY_ATTRIBUTES: Mapping[str, Kind] = {
    "vhost_pattern": PATTERN,
    "queue_pattern": PATTERN,
    "expires": DURATION,
    "message_ttl": DURATION,
    "max_length": integer(0),
    "max_length_bytes": BYTES,
    "max_in_memory_bytes": BYTES,
    "max_in_memory_length": integer(0),
    "delivery_limit": integer(0),
    "overflow": enum("drop-head", "reject-publish", "reject-publish-dlx"),
    "classic_queues.ha_mode": enum("exactly", "all"),
    "classic_queues.ha_params": integer(1),
    "classic_queues.ha_sync_mode": enum("manual", "automatic"),
    "classic_queues.queue_version": integer(1, 2),
}
#: What limits for new virtual hosts may hold; -1 means no limit.
VHOST_LIMIT_ATTRIBUTES: Mapping[str, Kind] = {
    "pattern": PATTERN,
    "max_connections": integer(-1),
    "max_queues": integer(-1),
}


@dataclass(frozen=True, slots=True)
class Key:
    """One row of the schema."""

    name: str
    #: Where in `Settings` the value goes.
    path: str
    kind: Kind
    shape: Shape = "one"


def _tls_keys(prefix: str, path: str) -> list[Key]:
    return [
        Key(f"{prefix}.cacertfile", f"{path}.cacertfile", TEXT),
        Key(f"{prefix}.certfile", f"{path}.certfile", TEXT),
        Key(f"{prefix}.keyfile", f"{path}.keyfile", TEXT),
        Key(f"{prefix}.password", f"{path}.password", SECRET),
        Key(f"{prefix}.verify", f"{path}.verify", enum("verify_none", "verify_peer")),
        Key(f"{prefix}.fail_if_no_peer_cert", f"{path}.fail_if_no_peer_cert", BOOLEAN),
        Key(f"{prefix}.depth", f"{path}.depth", integer(0, 255)),
        Key(
            f"{prefix}.versions.*",
            f"{path}.versions",
            enum("tlsv1", "tlsv1.1", "tlsv1.2", "tlsv1.3"),
            "list",
        ),
        Key(f"{prefix}.ciphers.*", f"{path}.ciphers", TEXT, "list"),
        Key(f"{prefix}.honor_cipher_order", f"{path}.honor_cipher_order", BOOLEAN),
        Key(f"{prefix}.honor_ecc_order", f"{path}.honor_ecc_order", BOOLEAN),
    ]


_LISTENERS = [
    Key("listeners.tcp", "listeners.tcp", NONE),
    Key("listeners.tcp.*", "listeners.tcp", ENDPOINT, "list"),
    Key("listeners.ssl", "listeners.ssl", NONE),
    Key("listeners.ssl.*", "listeners.ssl", ENDPOINT, "list"),
    Key("num_acceptors.tcp", "listeners.acceptors_tcp", integer(1)),
    Key("num_acceptors.ssl", "listeners.acceptors_ssl", integer(1)),
    Key("handshake_timeout", "listeners.handshake_timeout_ms", MILLISECONDS),
    Key("proxy_protocol", "listeners.proxy_protocol", BOOLEAN),
    Key("tcp_listen_options.backlog", "listeners.backlog", integer(0)),
    Key("tcp_listen_options.nodelay", "listeners.nodelay", BOOLEAN),
    Key("tcp_listen_options.keepalive", "listeners.keepalive", BOOLEAN),
    Key("tcp_listen_options.sndbuf", "listeners.sndbuf_bytes", BYTES),
    Key("tcp_listen_options.recbuf", "listeners.recbuf_bytes", BYTES),
    Key("tcp_listen_options.linger.on", "listeners.linger", BOOLEAN),
    Key("tcp_listen_options.linger.timeout", "listeners.linger_timeout_s", SECONDS),
    Key("tcp_listen_options.exit_on_close", "listeners.exit_on_close", BOOLEAN),
    *_tls_keys("ssl_options", "tls"),
]

_AUTH = [
    Key("auth_mechanisms.*", "auth.mechanisms", enum("PLAIN", "AMQPLAIN", "EXTERNAL"), "list"),
    Key(
        "auth_backends.*", "auth.backends", enum("internal", "rabbit_auth_backend_internal"), "list"
    ),
    Key(
        "ssl_cert_login_from",
        "auth.certificate_login_from",
        enum("distinguished_name", "common_name"),
    ),
    Key("loopback_users", "auth.loopback_users", NONE),
    Key("loopback_users.*", "auth.loopback_users", BOOLEAN, "flags_added"),
    Key("default_vhost", "auth.default_vhost", TEXT),
    Key("default_user", "auth.default_user", TEXT),
    Key("default_pass", "auth.default_pass", SECRET),
    Key("default_permissions.configure", "auth.default_configure", PATTERN),
    Key("default_permissions.write", "auth.default_write", PATTERN),
    Key("default_permissions.read", "auth.default_read", PATTERN),
    Key("default_user_tags.*", "auth.default_user_tags", BOOLEAN, "flags"),
    Key("default_users.*.password", "auth.default_users", SECRET, "records"),
    Key("default_users.*.tags", "auth.default_users", TEXT, "records"),
    *(
        Key(f"default_users.*.{attribute}", "auth.default_users", PATTERN, "records")
        for attribute in ("configure", "write", "read", "vhost_pattern")
    ),
    Key(
        "password_hashing_module",
        "auth.password_hashing",
        enum(
            "rabbit_password_hashing_sha256",
            "rabbit_password_hashing_sha512",
            "rabbit_password_hashing_md5",
        ),
    ),
    Key(
        "credential_validator.validation_backend",
        "auth.credential_validator",
        enum(
            "accept_everything",
            "min_password_length",
            "password_regexp",
            "rabbit_credential_validator_accept_everything",
            "rabbit_credential_validator_min_password_length",
            "rabbit_credential_validator_password_regexp",
        ),
    ),
    Key("credential_validator.min_length", "auth.credential_min_length", integer(1)),
    Key("credential_validator.regexp", "auth.credential_pattern", PATTERN),
]

_LIMITS = [
    Key("heartbeat", "limits.heartbeat_s", integer(0, 65_535, "seconds")),
    Key("frame_max", "limits.frame_max_bytes", BYTES),
    Key("initial_frame_max", "limits.initial_frame_max_bytes", BYTES),
    Key("channel_max", "limits.channel_max", integer(0, 65_535)),
    Key("channel_max_per_node", "limits.channel_max_per_node", integer_or("infinity")),
    Key("consumer_max_per_channel", "limits.consumer_max_per_channel", integer_or("infinity", 1)),
    Key("connection_max", "limits.connection_max", integer_or("infinity")),
    Key("vhost_max", "limits.vhost_max", integer_or("infinity")),
    Key("max_message_size", "limits.message_bytes_max", size(MESSAGE_BYTES_MAX)),
    Key("consumer_timeout", "limits.consumer_timeout_ms", CONSUMER_TIMEOUT),
    *(
        Key(f"default_limits.vhosts.*.{attribute}", "limits.default_vhost_limits", kind, "records")
        for attribute, kind in VHOST_LIMIT_ATTRIBUTES.items()
    ),
    *(
        Key(
            f"default_policies.operator.*.{attribute}",
            "limits.default_operator_policies",
            kind,
            "records",
        )
        for attribute, kind in OPERATOR_POLICY_ATTRIBUTES.items()
    ),
    Key("vm_memory_high_watermark.relative", "memory.high_watermark_ratio", RATIO),
    Key("vm_memory_high_watermark.absolute", "memory.high_watermark_bytes", BYTES),
    Key("vm_memory_high_watermark_paging_ratio", "memory.paging_ratio", RATIO),
    Key("total_memory_available_override_value", "memory.total_override_bytes", BYTES),
    Key("disk_free_limit.absolute", "disk.free_limit_bytes", BYTES),
    Key("disk_free_limit.relative", "disk.free_limit_memory_ratio", RATIO),
]

_CLUSTER = [
    Key("cluster_name", "cluster.name", TEXT),
    Key("cluster_partition_handling", "cluster.partition_handling", PARTITION_HANDLING),
    Key(
        "cluster_partition_handling.pause_if_all_down.recover",
        "cluster.pause_recover",
        enum("ignore", "autoheal"),
    ),
    Key(
        "cluster_partition_handling.pause_if_all_down.nodes.*",
        "cluster.pause_nodes",
        NODE_NAME,
        "list",
    ),
    Key("cluster_partition_handling.ignore.stash_limit", "cluster.stash_limit_bytes", BYTES),
    Key("mirroring_sync_batch_size", "cluster.mirroring_sync_batch_size", integer(1)),
    Key("mirroring_sync_max_throughput", "cluster.mirroring_sync_bytes_per_s_max", BYTES),
    Key("cluster_formation.peer_discovery_backend", "cluster.peer_discovery", PEER_DISCOVERY),
    Key("cluster_formation.classic_config.nodes.*", "cluster.peers", NODE_NAME, "list"),
    Key(
        "cluster_formation.node_type", "cluster.node_type", renamed({"disk": "disc"}, "disc", "ram")
    ),
    Key("cluster_formation.discovery_retry_limit", "cluster.discovery_retry_limit", integer(0)),
    Key(
        "cluster_formation.discovery_retry_interval",
        "cluster.discovery_retry_interval_ms",
        MILLISECONDS,
    ),
    Key("cluster_formation.target_cluster_size_hint", "cluster.size_hint", integer(1)),
    Key("queue_master_locator", "cluster.queue_master_locator", LOCATOR),
    Key("queue_leader_locator", "cluster.queue_master_locator", LOCATOR),
    Key("cluster_rebalance", "cluster.rebalance", enum("on-demand", "timer")),
    Key("cluster_rebalance_interval", "cluster.rebalance_interval_s", REBALANCE_INTERVAL),
    Key("cluster_rebalance_strategy", "cluster.rebalance_strategy", REBALANCE_STRATEGY),
    Key("cluster_keepalive_interval", "cluster.keepalive_interval_ms", MILLISECONDS),
    Key("net_ticktime", "cluster.net_tick_s", SECONDS),
    Key("cluster.listen", "cluster.listen", ENDPOINT),
    Key("cluster.nodes.*", "cluster.links", HOST_ENDPOINT, "map"),
    Key("cluster.secret_file", "cluster.secret_file", PATH),
    Key("cluster.try_out", "cluster.try_out", TEXT),
    *(
        Key(f"cluster.tls.{name}", f"cluster.tls.{name}", TEXT)
        for name in ("cacertfile", "certfile", "keyfile")
    ),
]

_LOG = [
    Key("log.dir", "log.directory", TEXT),
    Key("log.console", "log.console", BOOLEAN),
    Key("log.console.level", "log.console_level", LOG_LEVEL),
    Key("log.console.formatter", "log.console_formatter", enum("plaintext", "json")),
    Key("log.file", "log.file", FILE_NAME),
    Key("log.file.level", "log.file_level", LOG_LEVEL),
    Key("log.file.formatter", "log.file_formatter", enum("plaintext", "json")),
    Key("log.file.rotation.date", "log.rotation_date", TEXT),
    Key("log.file.rotation.size", "log.rotation_bytes", BYTES),
    Key("log.file.rotation.count", "log.rotation_count", integer(0)),
    *(
        Key(f"log.{category}.level", f"log.levels.{category}", LOG_LEVEL)
        for category in LOG_CATEGORIES
    ),
]

_MANAGEMENT = [
    Key("management.tcp.ip", "management.ip", TEXT),
    Key("management.tcp.port", "management.port", PORT),
    Key("management.ssl.ip", "management.tls_ip", TEXT),
    Key("management.ssl.port", "management.tls.port", PORT),
    *_tls_keys("management.ssl", "management.tls"),
    Key("management.path_prefix", "management.path_prefix", TEXT),
    Key("management.load_definitions", "management.load_definitions", TEXT),
    Key("management.http_log_dir", "management.http_log_dir", TEXT),
    Key("management.cors.allow_origins.*", "management.cors_allow_origins", TEXT, "list"),
    Key("management.cors.max_age", "management.cors_max_age_s", SECONDS),
    Key("management.csp.policy", "management.csp_policy", TEXT),
    Key("management.hsts.policy", "management.hsts_policy", TEXT),
    Key(
        "management.login_session_timeout",
        "management.login_session_timeout_min",
        integer(1, None, "minutes"),
    ),
    Key("management.rates_mode", "management.rates_mode", enum("none", "basic", "detailed")),
    Key(
        "management.sample_retention_policies.*.*", "management.sample_retention", integer(1), "map"
    ),
    Key("management.disable_stats", "management.disable_stats", BOOLEAN),
    Key("management.enable_queue_totals", "management.enable_queue_totals", BOOLEAN),
    Key("management.http.max_body_size", "management.body_bytes_max", BYTES),
    Key("collect_statistics_interval", "management.statistics_interval_ms", MILLISECONDS),
    Key("prometheus.tcp.ip", "prometheus.ip", TEXT),
    Key("prometheus.tcp.port", "prometheus.port", PORT),
    Key("prometheus.ssl.ip", "prometheus.tls_ip", TEXT),
    Key("prometheus.ssl.port", "prometheus.tls.port", PORT),
    *_tls_keys("prometheus.ssl", "prometheus.tls"),
    Key("prometheus.path", "prometheus.path", TEXT),
    Key("prometheus.return_per_object_metrics", "prometheus.per_object", BOOLEAN),
]

_NODE = [
    Key("data_dir", "node.data_dir", DIRECTORY),
    Key("product.name", "announce_product", TEXT),
    Key("product.version", "announce_version", TEXT),
    Key("motd_file", "node.motd_file", TEXT),
    Key("load_definitions", "definitions.load", TEXT),
    Key(
        "definitions.import_backend",
        "definitions.import_backend",
        enum("local_filesystem", "rabbit_definitions_import_local_filesystem"),
    ),
    Key("definitions.local.path", "definitions.local_path", TEXT),
    Key("definitions.skip_if_unchanged", "definitions.skip_if_unchanged", BOOLEAN),
]

#: The event journal; see docs/internals/journal.md.
_JOURNAL = [
    Key("journal.enabled", "journal.enabled", BOOLEAN),
    Key("journal.queues", "journal.queues", PATTERN),
    Key("journal.directory", "journal.directory", DIRECTORY),
    Key("journal.interval", "journal.interval_s", integer(1, 3600, "seconds")),
    Key("journal.max_bytes", "journal.bytes_max", BYTES),
]

SCHEMA: tuple[Key, ...] = (
    *_LISTENERS,
    *_AUTH,
    *_LIMITS,
    *_CLUSTER,
    *_LOG,
    *_MANAGEMENT,
    *_NODE,
    *_JOURNAL,
)

#: Keys, by their beginning, that are read and kept while the part that obeys them is not there.
KEYS_WITHOUT_EFFECT: tuple[str, ...] = (
    "cluster_formation.discovery_retry_interval",
    "cluster_formation.discovery_retry_limit",
    "cluster_formation.target_cluster_size_hint",
    "cluster_keepalive_interval",
    "definitions.skip_if_unchanged",
    "log.channel",
    "log.default",
    "log.federation",
    "log.file.rotation.date",
    "log.ldap",
    "log.mirroring",
    "log.prelaunch",
    "log.queue",
    "log.upgrade",
    "management.http_log_dir",
    "management.login_session_timeout",
    "management.ssl.depth",
    "management.ssl.honor_ecc_order",
    "mirroring_sync_batch_size",
    "motd_file",
    "net_ticktime",
    "num_acceptors",
    "prometheus.ssl.depth",
    "prometheus.ssl.honor_ecc_order",
    "proxy_protocol",
    "ssl_options.depth",
    "ssl_options.honor_ecc_order",
    "tcp_listen_options.exit_on_close",
    "tcp_listen_options.linger",
)


def has_no_effect_yet(name: str) -> bool:
    """Whether the key is among those that nothing obeys yet."""
    return any(name == start or name.startswith(f"{start}.") for start in KEYS_WITHOUT_EFFECT)


def find_key(segments: Iterable[str]) -> tuple[Key, tuple[str, ...]] | None:
    """The row for a key, with the segments the user chose; literal segments go before `*`."""
    given = tuple(segments)
    for key, pattern in _PATTERNS:
        if len(pattern) != len(given):
            continue
        if all(part in ("*", segment) for part, segment in zip(pattern, given, strict=True)):
            chosen = zip(pattern, given, strict=True)
            return key, tuple(segment for part, segment in chosen if part == "*")
    return None


def known_names_like(segments: Iterable[str]) -> list[str]:
    """Every key, with `*` filled from the given key where both have as many segments."""
    given = tuple(segments)
    names = []
    for _key, pattern in _PATTERNS:
        if len(pattern) == len(given):
            filled = zip(pattern, given, strict=True)
            names.append(".".join(mine if part == "*" else part for part, mine in filled))
        else:
            names.append(".".join("1" if part == "*" else part for part in pattern))
    return names


_PATTERNS = sorted(
    ((key, tuple(key.name.split("."))) for key in SCHEMA), key=lambda row: row[1].count("*")
)
