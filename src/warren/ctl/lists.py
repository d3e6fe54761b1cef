"""Commands that list what the broker has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from warren.ctl.command import Command, Run, q
from warren.ctl.errors import BAD_DATA, CtlError
from warren.ctl.output import Row

_QUEUE_COLUMNS = [
    "name",
    "durable",
    "auto_delete",
    "arguments",
    "policy",
    "operator_policy",
    "effective_policy_definition",
    "pid",
    "owner_pid",
    "exclusive",
    "exclusive_consumer_pid",
    "exclusive_consumer_tag",
    "messages_ready",
    "messages_unacknowledged",
    "messages",
    "messages_ready_ram",
    "messages_unacknowledged_ram",
    "messages_ram",
    "messages_persistent",
    "message_bytes",
    "message_bytes_ready",
    "message_bytes_unacknowledged",
    "message_bytes_ram",
    "message_bytes_persistent",
    "head_message_timestamp",
    "oldest_message_arrived_at",
    "oldest_message_age_seconds",
    "disk_reads",
    "disk_writes",
    "consumers",
    "consumer_utilisation",
    "consumer_capacity",
    "memory",
    "slave_pids",
    "synchronised_slave_pids",
    "mirror_pids",
    "synchronised_mirror_pids",
    "state",
    "paused",
    "paused_by",
    "type",
    "leader",
    "members",
    "online",
    "node",
    "master_node",
    "queue_slave_nodes",
    "mirrors",
    "synchronised_mirrors",
]
_CONNECTION_COLUMNS = [
    "pid",
    "name",
    "port",
    "host",
    "peer_port",
    "peer_host",
    "ssl",
    "ssl_protocol",
    "ssl_key_exchange",
    "ssl_cipher",
    "ssl_hash",
    "peer_cert_subject",
    "peer_cert_issuer",
    "peer_cert_validity",
    "state",
    "channels",
    "protocol",
    "auth_mechanism",
    "user",
    "vhost",
    "timeout",
    "frame_max",
    "channel_max",
    "client_properties",
    "recv_oct",
    "recv_cnt",
    "send_oct",
    "send_cnt",
    "send_pend",
    "connected_at",
]
_CHANNEL_COLUMNS = [
    "pid",
    "connection",
    "name",
    "number",
    "user",
    "vhost",
    "transactional",
    "confirm",
    "consumer_count",
    "messages_unacknowledged",
    "messages_uncommitted",
    "acks_uncommitted",
    "messages_unconfirmed",
    "prefetch_count",
    "global_prefetch_count",
]
_CONSUMER_COLUMNS = [
    "queue_name",
    "channel_pid",
    "consumer_tag",
    "ack_required",
    "prefetch_count",
    "active",
    "activity_status",
    "arguments",
]
_BINDING_COLUMNS = [
    "source_name",
    "source_kind",
    "destination_name",
    "destination_kind",
    "routing_key",
    "arguments",
]
_EXCHANGE_COLUMNS = ["name", "type", "durable", "auto_delete", "internal", "arguments", "policy"]
_VHOST_COLUMNS = ["name", "description", "tags", "default_queue_type", "tracing", "cluster_state"]

#: Columns that the API knows under another name.
_QUEUE_ALIASES = {
    "pid": "node",
    "leader": "node",
    "master_node": "node",
    "exclusive_consumer_pid": "exclusive_consumer_tag",
    "slave_pids": "slave_nodes",
    "mirror_pids": "slave_nodes",
    "queue_slave_nodes": "slave_nodes",
    "mirrors": "slave_nodes",
    "synchronised_slave_pids": "synchronised_slave_nodes",
    "synchronised_mirror_pids": "synchronised_slave_nodes",
    "synchronised_mirrors": "synchronised_slave_nodes",
}


def _check_vhost(run: Run) -> None:
    """RabbitMQ lists nothing for an unknown virtual host; a person would rather be told."""
    if run.client.call("GET", f"/vhosts/{run.vhost_path}?columns=name").status == 404:
        raise CtlError(BAD_DATA, f"Error:\nvhost '{run.vhost}' not found")


def _queue_row(shown: Row, columns: Sequence[str]) -> Row:
    row = {column: shown.get(_QUEUE_ALIASES.get(column, column)) for column in columns}
    if "pid" in row:
        row["pid"] = f"<{shown['node']}>"
    for column in ("members", "online"):
        if column in row:
            row[column] = [shown["node"], *(shown.get("slave_nodes") or [])]
    for column in columns:
        names = row[column]
        if column.endswith("_pids") and isinstance(names, list):
            row[column] = [f"<{name}>" for name in names]
    if "owner_pid" in row:
        owner = shown.get("owner_pid_details")
        row["owner_pid"] = f"<{owner['name']}>" if owner else ""
    for column in ("disk_reads", "disk_writes"):
        if column in row:
            row[column] = 0
    return row


def list_queues(run: Run) -> None:
    columns = run.chosen_columns(("name", "messages"))
    run.banner(f"Timeout: {float(run.options.get('timeout', 60))} seconds ...")
    run.banner(f"Listing queues for vhost {run.vhost} ...")
    _check_vhost(run)
    if "offline" in run.options:
        run.table([], columns)
        return
    wanted = {_QUEUE_ALIASES.get(column, column) for column in columns} | {"node"}
    if "owner_pid" in columns:
        wanted.add("owner_pid_details")
    if {"members", "online"} & set(columns):
        wanted.add("slave_nodes")
    shown = run.client.get(f"/queues/{run.vhost_path}?columns={','.join(sorted(wanted))}")
    run.table([_queue_row(row, columns) for row in shown], columns)


def list_exchanges(run: Run) -> None:
    columns = run.chosen_columns(("name", "type"))
    run.banner(f"Listing exchanges for vhost {run.vhost} ...")
    run.table(run.client.get(f"/exchanges/{run.vhost_path}"), columns)


def list_bindings(run: Run) -> None:
    columns = run.chosen_columns(_BINDING_COLUMNS)
    run.banner(f"Listing bindings for vhost {run.vhost}...")
    rows = [
        {
            "source_name": row["source"],
            "source_kind": "exchange",
            "destination_name": row["destination"],
            "destination_kind": row["destination_type"],
            "routing_key": row["routing_key"],
            "arguments": row["arguments"],
        }
        for row in run.client.get(f"/bindings/{run.vhost_path}")
    ]
    run.table(rows, columns)


def list_connections(run: Run) -> None:
    columns = run.chosen_columns(("user", "peer_host", "peer_port", "state"))
    run.banner("Listing connections ...")
    rows = [{**row, "pid": f"<{row['name']}>"} for row in run.client.get("/connections")]
    run.table(rows, columns)


def list_channels(run: Run) -> None:
    columns = run.chosen_columns(("pid", "user", "consumer_count", "messages_unacknowledged"))
    run.banner("Listing channels ...")
    rows = [
        {**row, "pid": f"<{row['name']}>", "connection": f"<{row['connection_details']['name']}>"}
        for row in run.client.get("/channels")
    ]
    run.table(rows, columns)


def list_consumers(run: Run) -> None:
    columns = run.chosen_columns([c for c in _CONSUMER_COLUMNS if c != "activity_status"])
    run.banner(f"Listing consumers in vhost {run.vhost} ...")
    rows = [
        {
            **row,
            "queue_name": row["queue"]["name"],
            "channel_pid": f"<{row['channel_details']['name']}>",
        }
        for row in run.client.get(f"/consumers/{run.vhost_path}")
    ]
    run.table(rows, columns)


def list_vhosts(run: Run) -> None:
    columns = run.chosen_columns(("name",))
    run.banner("Listing vhosts ...")
    run.table(run.client.get("/vhosts"), columns)


def list_users(run: Run) -> None:
    run.banner("Listing users ...")
    rows = [{"user": row["name"], "tags": row["tags"]} for row in run.client.get("/users")]
    run.table(rows, ("user", "tags"))


def list_permissions(run: Run) -> None:
    run.banner(f'Listing permissions for vhost "{run.vhost}" ...')
    rows = run.client.get(f"/vhosts/{run.vhost_path}/permissions")
    run.table(rows, ("user", "configure", "write", "read"))


def list_user_permissions(run: Run) -> None:
    run.banner(f'Listing permissions for user "{run.word(0)}" ...')
    rows = _of_user(run, "permissions")
    run.table(rows, ("vhost", "configure", "write", "read"))


def list_topic_permissions(run: Run) -> None:
    run.banner(f'Listing topic permissions for vhost "{run.vhost}" ...')
    rows = run.client.get(f"/vhosts/{run.vhost_path}/topic-permissions")
    run.table(rows, ("user", "exchange", "write", "read"))


def list_user_topic_permissions(run: Run) -> None:
    run.banner(f'Listing topic permissions for user "{run.word(0)}" ...')
    run.table(_of_user(run, "topic-permissions"), ("vhost", "exchange", "write", "read"))


def _of_user(run: Run, what: str) -> Any:
    from warren.ctl.access import check_user

    check_user(run, run.word(0))
    return run.client.get(f"/users/{q(run.word(0))}/{what}")


COMMANDS = (
    Command(
        "list_queues",
        "[column ...]",
        "Lists queues and their properties",
        list_queues,
        {"online": False, "offline": False, "local": False},
        _QUEUE_COLUMNS,
    ),
    Command(
        "list_exchanges", "[column ...]", "Lists exchanges", list_exchanges, {}, _EXCHANGE_COLUMNS
    ),
    Command(
        "list_bindings",
        "[column ...]",
        "Lists all bindings of a vhost",
        list_bindings,
        {},
        _BINDING_COLUMNS,
    ),
    Command(
        "list_connections",
        "[column ...]",
        "Lists connections",
        list_connections,
        {},
        _CONNECTION_COLUMNS,
    ),
    Command("list_channels", "[column ...]", "Lists channels", list_channels, {}, _CHANNEL_COLUMNS),
    Command(
        "list_consumers",
        "[column ...]",
        "Lists all consumers of a vhost",
        list_consumers,
        {},
        _CONSUMER_COLUMNS,
    ),
    Command("list_vhosts", "[column ...]", "Lists vhosts", list_vhosts, {}, _VHOST_COLUMNS),
    Command("list_users", "", "Lists user names and tags", list_users),
    Command("list_permissions", "", "Lists user permissions in a vhost", list_permissions),
    Command(
        "list_user_permissions",
        "<username>",
        "Lists permissions of a user across all vhosts",
        list_user_permissions,
    ),
    Command(
        "list_topic_permissions", "", "Lists topic permissions in a vhost", list_topic_permissions
    ),
    Command(
        "list_user_topic_permissions",
        "<username>",
        "Lists topic permissions of a user across all vhosts",
        list_user_topic_permissions,
    ),
)
