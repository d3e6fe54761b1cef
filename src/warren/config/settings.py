"""Everything that can be configured, typed, with its default.

One frozen tree; nothing here is global. Defaults are RabbitMQ's, with two exceptions that are on
purpose: `consumer_timeout` is off, because its 30 minutes closed the channels of healthy workers
with long jobs, and `cluster_partition_handling` is `pause_minority`, because `ignore` loses what
was confirmed. Secrets are left out of `repr`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

AMQP_PORT = 5672
MANAGEMENT_PORT = 15672
PROMETHEUS_PORT = 15692


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to listen; no host means every interface."""

    host: str | None
    port: int


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Certificates and what is asked of the peer's."""

    port: int | None = None
    cacertfile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    password: str | None = field(default=None, repr=False)
    verify: str = "verify_none"
    fail_if_no_peer_cert: bool = False
    depth: int = 1
    versions: tuple[str, ...] = ()
    ciphers: tuple[str, ...] = ()
    honor_cipher_order: bool = False
    honor_ecc_order: bool = False


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """The AMQP listeners and their sockets."""

    tcp: tuple[Endpoint, ...] = (Endpoint(None, AMQP_PORT),)
    ssl: tuple[Endpoint, ...] = ()
    acceptors_tcp: int = 10
    acceptors_ssl: int = 10
    handshake_timeout_ms: int = 10_000
    proxy_protocol: bool = False
    backlog: int = 128
    nodelay: bool = True
    keepalive: bool = False
    sndbuf_bytes: int | None = None
    recbuf_bytes: int | None = None
    linger: bool = True
    linger_timeout_s: int = 0
    exit_on_close: bool = False


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Who may log in and how, and what a new broker starts with."""

    mechanisms: tuple[str, ...] = ("PLAIN", "AMQPLAIN")
    backends: tuple[str, ...] = ("internal",)
    certificate_login_from: str = "distinguished_name"
    #: Named users are added to guest, who stays until `loopback_users.guest = false` or `= none`.
    loopback_users: tuple[str, ...] = ("guest",)
    default_vhost: str = "/"
    default_user: str = "guest"
    default_pass: str = field(default="guest", repr=False)
    default_configure: str = ".*"
    default_write: str = ".*"
    default_read: str = ".*"
    default_user_tags: tuple[str, ...] = ("administrator",)
    #: By user: password, tags, configure, write, read, vhost_pattern.
    default_users: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    password_hashing: str = "rabbit_password_hashing_sha256"
    credential_validator: str = "accept_everything"
    credential_min_length: int = 1
    credential_pattern: str | None = None


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """What a connection, a channel and a message may take; None means no limit."""

    heartbeat_s: int = 60
    frame_max_bytes: int = 131_072
    initial_frame_max_bytes: int = 8192
    channel_max: int = 2047
    channel_max_per_node: int | None = None
    consumer_max_per_channel: int | None = None
    connection_max: int | None = None
    vhost_max: int | None = None
    message_bytes_max: int = 134_217_728
    consumer_timeout_ms: int | None = None
    #: By name: pattern, max_connections, max_queues.
    default_vhost_limits: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    #: By policy: vhost_pattern, queue_pattern and the policy's keys.
    default_operator_policies: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """When publishers are stopped for want of memory; an absolute mark goes before a relative."""

    high_watermark_ratio: float = 0.4
    high_watermark_bytes: int | None = None
    paging_ratio: float = 0.5
    total_override_bytes: int | None = None

    def limit_bytes(self, total_bytes: int) -> int:
        """The mark in bytes on a machine with that much memory."""
        if self.high_watermark_bytes is not None:
            return self.high_watermark_bytes
        total = total_bytes if self.total_override_bytes is None else self.total_override_bytes
        return int(total * self.high_watermark_ratio)


@dataclass(frozen=True, slots=True)
class DiskSettings:
    """When publishers are stopped for want of disk; a relative limit is a share of memory."""

    free_limit_bytes: int = 50_000_000
    free_limit_memory_ratio: float | None = None

    def limit_bytes(self, memory_bytes: int) -> int:
        """The limit in bytes on a machine with that much memory; a ratio goes before bytes."""
        if self.free_limit_memory_ratio is not None:
            return int(memory_bytes * self.free_limit_memory_ratio)
        return self.free_limit_bytes


@dataclass(frozen=True, slots=True)
class LinkTlsSettings:
    """Certificates of the links between nodes: all three, for TLS on both sides, or none."""

    cacertfile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None

    @property
    def is_on(self) -> bool:
        return self.certfile is not None


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Peers, partitions and mirroring."""

    name: str | None = None
    #: The link's port alone, from the environment; `listen` goes before it.
    port: int | None = None
    #: Where other nodes connect to; None: see `warren.config.cluster.link_endpoint`.
    listen: Endpoint | None = None
    #: By node name: where its link is, when that does not follow from its name.
    links: Mapping[str, Endpoint] = field(default_factory=dict)
    #: The secret itself, from the environment; goes before the file.
    cookie: str | None = field(default=None, repr=False)
    #: None: `cookie` in the data directory.
    secret_file: str | None = None
    #: Of a try-out, whose nodes may be killed through the API: how one is started again, with
    #: `{node}` in the place of its name.
    try_out: str | None = None
    tls: LinkTlsSettings = field(default_factory=LinkTlsSettings)
    partition_handling: str = "pause_minority"
    pause_recover: str = "ignore"
    pause_nodes: tuple[str, ...] = ()
    #: With `ignore`: what may wait on the disk for nodes that cannot be reached.
    stash_limit_bytes: int = 1 << 30
    mirroring_sync_batch_size: int = 4096
    mirroring_sync_bytes_per_s_max: int = 0
    peer_discovery: str = "classic_config"
    peers: tuple[str, ...] = ()
    node_type: str = "disc"
    discovery_retry_limit: int = 10
    discovery_retry_interval_ms: int = 500
    size_hint: int = 1
    queue_master_locator: str = "client-local"
    #: `on-demand`, or `timer`: masters are spread every so often.
    rebalance: str = "on-demand"
    rebalance_interval_s: int = 3600
    rebalance_strategy: str = "min-masters"
    keepalive_interval_ms: int = 10_000
    net_tick_s: int = 60


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Where the log goes and how much of it."""

    directory: str | None = None
    console: bool = True
    console_level: str = "info"
    console_formatter: str = "plaintext"
    #: A file name inside `directory`, or a whole path; empty means no file, None the usual one if
    #: there is a directory for it.
    file: str | None = None
    file_level: str = "info"
    file_formatter: str = "plaintext"
    rotation_date: str | None = None
    rotation_bytes: int | None = None
    rotation_count: int = 5
    #: By category: connection, channel, queue, mirroring, ...
    levels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ManagementSettings:
    """The HTTP API and the web pages."""

    ip: str | None = None
    port: int = MANAGEMENT_PORT
    tls: TlsSettings = field(default_factory=TlsSettings)
    tls_ip: str | None = None
    path_prefix: str = ""
    load_definitions: str | None = None
    http_log_dir: str | None = None
    cors_allow_origins: tuple[str, ...] = ()
    cors_max_age_s: int = 1800
    csp_policy: str | None = None
    hsts_policy: str | None = None
    login_session_timeout_min: int = 480
    rates_mode: str = "basic"
    sample_retention: Mapping[str, int] = field(default_factory=dict)
    disable_stats: bool = False
    enable_queue_totals: bool = False
    body_bytes_max: int = 20_000_000
    statistics_interval_ms: int = 5000


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """The metrics endpoint."""

    ip: str | None = None
    port: int = PROMETHEUS_PORT
    tls: TlsSettings = field(default_factory=TlsSettings)
    tls_ip: str | None = None
    path: str = "/metrics"
    per_object: bool = False


@dataclass(frozen=True, slots=True)
class DefinitionsSettings:
    """Definitions loaded when the node starts."""

    load: str | None = None
    import_backend: str | None = None
    local_path: str | None = None
    skip_if_unchanged: bool = False


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """This node: its name, its files, what it says it is."""

    name: str | None = None
    long_names: bool = False
    data_base: str | None = None
    data_dir: str | None = None
    pid_file: str | None = None
    motd_file: str | None = None


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """The event journal: what happens to messages, for the pipelines that audit it."""

    enabled: bool = False
    #: A pattern: of which queues.
    queues: str = ".*"
    #: None: `events` in the data directory.
    directory: str | None = None
    #: How often what queues hold is noted, and a segment is ended.
    interval_s: int = 60
    #: What all segments may take; the oldest go first.
    bytes_max: int = 1_073_741_824


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole configuration of a node."""

    #: What clients are told in `server-properties`; some switch features on by version.
    announce_product: str = "RabbitMQ"
    announce_version: str = "3.13.7"
    node: NodeSettings = field(default_factory=NodeSettings)
    listeners: ListenerSettings = field(default_factory=ListenerSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    auth: AuthSettings = field(default_factory=AuthSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    memory: MemorySettings = field(default_factory=MemorySettings)
    disk: DiskSettings = field(default_factory=DiskSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    log: LogSettings = field(default_factory=LogSettings)
    management: ManagementSettings = field(default_factory=ManagementSettings)
    prometheus: PrometheusSettings = field(default_factory=PrometheusSettings)
    definitions: DefinitionsSettings = field(default_factory=DefinitionsSettings)
    journal: JournalSettings = field(default_factory=JournalSettings)
    #: Keys that were given and do nothing yet, for one line in the log at start.
    without_effect: tuple[str, ...] = ()
    #: What was given and is done otherwise than its name says, each in a sentence for the log.
    warnings: tuple[str, ...] = ()
    #: Keys that were given: a default that cannot be had is no mistake of whoever wrote the file.
    given: frozenset[str] = frozenset()
