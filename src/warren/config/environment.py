"""Settings from environment variables: `WARREN_X`, or RabbitMQ's `RABBITMQ_X` for the same.

Variables that RabbitMQ or its container image once read and we do not are refused with a pointer to
the key that does the same: a setting silently ignored is worse than a node that does not start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from warren.config.errors import ConfigError
from warren.config.file import Entry
from warren.config.values import BOOLEAN, DIRECTORY, PORT, SECRET, TEXT, Kind

PREFIXES = ("WARREN_", "RABBITMQ_")


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable: the setting it fills, and the kind of its value."""

    path: str
    kind: Kind


#: Variables that fill one setting each.
VARIABLES: Mapping[str, Variable] = {
    "NODENAME": Variable("node.name", TEXT),
    "USE_LONGNAME": Variable("node.long_names", BOOLEAN),
    "DIST_PORT": Variable("cluster.port", PORT),
    "ERLANG_COOKIE": Variable("cluster.cookie", SECRET),
    "LOG_BASE": Variable("log.directory", TEXT),
    "MNESIA_BASE": Variable("node.data_base", DIRECTORY),
    "MNESIA_DIR": Variable("node.data_dir", DIRECTORY),
    "DATA_DIR": Variable("node.data_dir", DIRECTORY),
    "PID_FILE": Variable("node.pid_file", TEXT),
    "DEFAULT_USER": Variable("auth.default_user", TEXT),
    "DEFAULT_PASS": Variable("auth.default_pass", SECRET),
    "DEFAULT_VHOST": Variable("auth.default_vhost", TEXT),
    "PRODUCT_NAME": Variable("announce_product", TEXT),
    "PRODUCT_VERSION": Variable("announce_version", TEXT),
}

_IN_FILE = "set {} in the configuration file"
#: Variables that are not read, each with what to do in its place.
REMOVED: Mapping[str, str] = {
    "ADVANCED_CONFIG_FILE": "Erlang terms are not read; use the keys of rabbitmq.conf",
    "DEFAULT_PASS_FILE": _IN_FILE.format("default_pass"),
    "DEFAULT_USER_FILE": _IN_FILE.format("default_user"),
    "HIPE_COMPILE": "it has no meaning any more",
    "VM_MEMORY_HIGH_WATERMARK": _IN_FILE.format("vm_memory_high_watermark.relative or .absolute"),
    **{
        f"{prefix}{variable}": _IN_FILE.format(f"{key}.{name}")
        for prefix, key in (("SSL_", "ssl_options"), ("MANAGEMENT_SSL_", "management.ssl"))
        for variable, name in (
            ("CACERTFILE", "cacertfile"),
            ("CERTFILE", "certfile"),
            ("KEYFILE", "keyfile"),
            ("VERIFY", "verify"),
            ("FAIL_IF_NO_PEER_CERT", "fail_if_no_peer_cert"),
        )
    },
}


def lookup(env: Mapping[str, str], name: str) -> tuple[str, str] | None:
    """The variable's full name and value, our spelling before RabbitMQ's; empty counts as unset."""
    for prefix in PREFIXES:
        value = env.get(prefix + name)
        if value:
            return prefix + name, value
    return None


def environment_values(env: Mapping[str, str]) -> dict[str, object]:
    """Settings by path, as the variables give them; ConfigError names all that cannot be used."""
    values: dict[str, object] = {}
    problems: list[str] = []
    for name, advice in REMOVED.items():
        found = lookup(env, name)
        if found is not None:
            problems.append(f"{found[0]} is not supported: {advice}")
    for name, variable in VARIABLES.items():
        found = lookup(env, name)
        if found is None:
            continue
        try:
            values[variable.path] = variable.kind.parse(found[1])
        except ValueError:
            problems.append(f"{found[0]}: expected {variable.kind.expected}")
    if problems:
        raise ConfigError(problems)
    _logs(env, values)
    if "node.data_base" in values:
        # It outranks the whole directory that the file may name, which would else go before it.
        values.setdefault("node.data_dir", None)
    return values


def listener_entries(env: Mapping[str, str]) -> list[Entry]:
    """The AMQP listener that NODE_IP_ADDRESS and NODE_PORT ask for, in the file's terms."""
    address, port = lookup(env, "NODE_IP_ADDRESS"), lookup(env, "NODE_PORT")
    if address is None and port is None:
        return []
    source = port[0] if port is not None else "WARREN_NODE_IP_ADDRESS"
    number = port[1] if port is not None else "5672"
    if address is None:
        return [Entry("listeners.tcp.default", number, source)]
    host = f"[{address[1]}]" if ":" in address[1] else address[1]
    return [Entry("listeners.tcp.default", f"{host}:{number}", source)]


def _logs(env: Mapping[str, str], values: dict[str, object]) -> None:
    found = lookup(env, "LOGS")
    if found is None:
        return
    to_console = found[1] == "-"
    values["log.console"] = to_console
    values["log.file"] = "" if to_console else found[1]
