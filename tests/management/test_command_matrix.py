"""Who may run what: every command of warrenctl, for every kind of user and for the operator.

A row has the exit status for each caller: 0 done, 77 not allowed, and where somebody who is allowed
cannot have it of this node, that status. A command that has no row fails a test.
"""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from management.api import Api
from warren.ctl.main import commands, run
from warren.testing.broker import Broker

#: Users by their tag, all with all permissions in the virtual host; then the unix socket.
CALLERS = ("none", "management", "policymaker", "monitoring", "administrator", "socket")
NOT_ALLOWED = 77
SHOVEL = '{"src-uri": "amqp://", "src-queue": "nowhere", "dest-uri": "amqp://", "dest-queue": "x"}'

Row = tuple[int, ...]


def anybody(status: int = 0) -> Row:
    """Who has any tag."""
    return (NOT_ALLOWED, *[status] * 5)


def monitors() -> Row:
    return (*[NOT_ALLOWED] * 3, 0, 0, 0)


def policymakers(status: int = 0) -> Row:
    return (NOT_ALLOWED, NOT_ALLOWED, status, NOT_ALLOWED, status, status)


def administrators(status: int = 0) -> Row:
    return (*[NOT_ALLOWED] * 4, status, status)


#: Command -> its words, and who may run it.
TABLE: dict[str, tuple[str, Row]] = {
    # Lists
    "list_queues": ("", anybody()),
    "list_exchanges": ("", anybody()),
    "list_bindings": ("", anybody()),
    "list_connections": ("", anybody()),
    "list_channels": ("", anybody()),
    "list_consumers": ("", anybody()),
    "list_vhosts": ("", anybody()),
    # Users, permissions, virtual hosts
    "list_users": ("", administrators()),
    "list_permissions": ("", administrators()),
    "list_user_permissions": ("u", administrators()),
    "list_topic_permissions": ("", administrators()),
    "list_user_topic_permissions": ("u", administrators()),
    "add_user": ("fresh pw", administrators()),
    "delete_user": ("u", administrators()),
    "change_password": ("u new", administrators()),
    "clear_password": ("u", administrators()),
    "authenticate_user": ("u pw", administrators()),
    "hash_password": ("x", administrators()),
    "set_user_tags": ("u management", administrators()),
    "set_permissions": ("u .* .* .*", administrators()),
    "clear_permissions": ("u", administrators()),
    "set_topic_permissions": ("u amq.topic .* .*", administrators()),
    "clear_topic_permissions": ("u", administrators()),
    "add_vhost": ("fresh", administrators()),
    "delete_vhost": ("spare", administrators()),
    "trace_on": ("", administrators()),
    "trace_off": ("", administrators()),
    "set_vhost_limits": ('{"max-queues":100}', administrators()),
    "clear_vhost_limits": ("", administrators()),
    "list_vhost_limits": ("", anybody()),
    "set_user_limits": ('u {"max-channels":9}', administrators()),
    "clear_user_limits": ("u", administrators()),
    "list_user_limits": ("", administrators()),
    # Policies, parameters, definitions
    "set_policy": ('p ^x {"max-length":9}', policymakers()),
    "clear_policy": ("p", policymakers()),
    "list_policies": ("", anybody()),
    "set_operator_policy": ('o ^x {"max-length":9}', administrators()),
    "clear_operator_policy": ("o", administrators()),
    "list_operator_policies": ("", anybody()),
    "list_policies_that_match": ("q", anybody()),
    "set_parameter": (f"shovel s {SHOVEL.replace(' ', '')}", policymakers()),
    "clear_parameter": ("shovel s", policymakers()),
    "list_parameters": ("", policymakers()),
    "set_global_parameter": ("g {}", administrators()),
    "clear_global_parameter": ("g", administrators()),
    "list_global_parameters": ("", policymakers()),
    "export_definitions": ("-", administrators()),
    "import_definitions": ("", administrators()),
    # Nodes, health, operations
    "status": ("", monitors()),
    "ping": ("", anybody()),
    "version": ("", (0,) * 6),
    "server_version": ("", anybody()),
    "listeners": ("", anybody()),
    "environment": ("", administrators()),
    "memory_breakdown": ("", monitors()),
    "alarms": ("", monitors()),
    "check_alarms": ("", monitors()),
    "check_local_alarms": ("", monitors()),
    "check_running": ("", anybody()),
    "is_running": ("", anybody()),
    "check_port_listener": ("{port}", anybody()),
    "check_protocol_listener": ("http", anybody()),
    "check_if_node_is_mirror_sync_critical": ("", anybody()),
    # This node is part of the test's process, and ends with it.
    "stop": ("", administrators(65)),
    "shutdown": ("", administrators(65)),
    # Of a connection that is the user u's.
    "close_connection": ("{connection}", administrators()),
    # All of those that one may close.
    "close_all_connections": ("", anybody()),
    "close_all_user_connections": ("u", administrators()),
    "delete_queue": ("q", anybody()),
    "purge_queue": ("q", anybody()),
    "pause_queue": ("q", anybody()),
    "resume_queue": ("q", anybody()),
    # Mirrored queues
    "mirrors": ("q", anybody()),
    "explain": ("q", anybody()),
    "sync_queue": ("q", policymakers(65)),
    "cancel_sync_queue": ("q", policymakers(65)),
    "add_queue_mirror_link": ("q n@x", policymakers(65)),
    "remove_queue_mirror_link": ("q n@x", policymakers(65)),
    "transfer_master": ("q n@x", policymakers(65)),
    "rebalance": ("", administrators()),
    "spread": ("^q$", administrators()),
    "salvage": ("list", administrators()),
    # Running nodes
    "set_vm_memory_high_watermark": ("0.4", administrators(65)),
    "set_disk_free_limit": ("1GB", administrators(65)),
    "set_log_level": ("info", administrators()),
    "rotate_logs": ("", administrators()),
    "log_location": ("", administrators(65)),
    "log_tail": ("", administrators(65)),
    "log_tail_stream": ("--duration 1", administrators(65)),
    "report": ("", anybody()),
    "check_port_connectivity": ("", anybody()),
    "check_virtual_hosts": ("", anybody()),
    "check_certificate_expiration": ("", anybody()),
    "list_unresponsive_queues": ("", anybody()),
    "restart_vhost": ("", anybody()),
    "list_feature_flags": ("", anybody()),
    # Cluster
    "cluster_status": ("", monitors()),
    "join_cluster": ("n@x", administrators(70)),
    "forget_cluster_node": ("n@x", administrators(70)),
    "reset": ("", administrators(70)),
    "force_reset": ("", administrators(70)),
    "stop_app": ("", administrators()),
    "start_app": ("", administrators()),
    "drain": ("", administrators(70)),
    "revive": ("", administrators()),
    "await_startup": ("", monitors()),
    "await_online_nodes": ("1", monitors()),
    "set_cluster_name": ("c", administrators()),
    "cluster_name": ("", anybody()),
    # Upgrades and repairs
    "await_online_synchronized_mirror": ("", anybody()),
    "is_booting": ("", anybody(69)),
    "force_boot": ("", anybody(70)),
    "update_cluster_nodes": ("n@x", anybody()),
    "change_cluster_node_type": ("disc", anybody()),
    "rename_cluster_node": ("a b", anybody(70)),
    "eval": ("x", anybody(70)),
    # Messages
    "pub": ("q x", anybody()),
    "get": ("q", anybody()),
    "peek": ("q", anybody()),
    "tail": ("q --for 1", anybody()),
    "move": ("q r", anybody()),
    "redrive": ("r", anybody()),
    "unacked": ("q", anybody()),
    "list_cursors": ("", anybody()),
    "delete_cursor": ("q c", anybody(65)),
    # Shovels
    "shovel_status": ("", monitors()),
    "delete_shovel": ("s", policymakers()),
    "restart_shovel": ("s", policymakers()),
    "pause_shovel": ("s", policymakers()),
    "resume_shovel": ("s", policymakers()),
    # Live, the screen, speed, trouble
    "events": ("--for 1", monitors()),
    "consume_event_stream": ("--for 1", monitors()),
    "top": ("--count 1", monitors()),
    "bench": ("--seconds 1", anybody()),
    "doctor": ("", administrators(69)),
}
#: Commands that begin so change nothing.
LOOKS = ("list_", "check_", "is_", "await_")


@pytest.fixture(scope="module")
def runtime_dir(broker: Broker, api: Api, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the node's control socket is."""
    directory = tmp_path_factory.mktemp("run")
    place = directory / "matrix@here.sock"
    api.get("/overview")

    def listen(node: object) -> None:
        server = node.operating._server  # type: ignore[attr-defined]
        tasks.append(asyncio.ensure_future(server.listen_unix(place)))

    tasks: list[object] = []
    broker.call(listen)
    until_s = time.monotonic() + 30
    while not place.exists() and time.monotonic() < until_s:
        time.sleep(0.01)
    return directory


def set_the_stage(api: Api) -> None:
    """All that commands are about is there, and nothing that they are to make."""
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    for vhost in ("matrix", "spare"):
        api.put(f"/vhosts/{vhost}")
    for name in (*CALLERS[:-1], "u"):
        tags = "" if name in {"none", "u"} else name
        api.put(f"/users/{name}", {"password": "pw", "tags": tags})
        api.put(f"/permissions/matrix/{name}", rights)
    topic = {"exchange": "amq.topic", "write": ".*", "read": ".*"}
    api.put("/topic-permissions/matrix/u", topic)
    api.put("/permissions/matrix/guest", rights)
    for queue in ("q", "r"):
        api.put(f"/queues/matrix/{queue}")
    policy = {"pattern": "^x", "definition": {"max-length": 9}}
    api.put("/policies/matrix/p", policy)
    api.put("/operator-policies/matrix/o", policy)
    api.put("/global-parameters/g", {"value": {}})
    api("PUT", "/api/parameters/shovel/matrix/s", f'{{"value": {SHOVEL}}}'.encode())
    api.delete("/users/fresh")
    api.delete("/vhosts/fresh")


def test_no_command_is_missing() -> None:
    assert list(TABLE) == [command.name for command in commands()]


@pytest.fixture
def connection(broker: Broker, api: Api) -> Iterator[str]:
    """The name of a connection of somebody."""
    set_the_stage(api)
    parameters = pika.URLParameters(broker.url)
    parameters.credentials = pika.PlainCredentials("u", "pw")
    parameters.virtual_host = "matrix"
    opened = pika.BlockingConnection(parameters)
    (row,) = [row for row in api.get("/connections") if row["user"] == "u"]
    yield row["name"]
    try:
        opened.close()
    except pika.exceptions.AMQPError:
        return


def outcome(broker: Broker, caller: str, name: str, words: list[str]) -> int:
    at = broker.http_url.replace("http://", f"http://{caller}:pw@")
    where = ["-n", "matrix@here"] if caller == "socket" else ["--url", at]
    return run([*where, "-q", "-t", "20", "-p", "matrix", name, *words])


@pytest.mark.parametrize("name", [name for name in TABLE if name != "close_connection"])
def test_every_command(
    broker: Broker, api: Api, runtime_dir: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("WARREN_RUNTIME_DIR", str(runtime_dir))
    words, expected = TABLE[name]
    found = []
    set_the_stage(api)
    for caller in CALLERS:
        if found and found[-1] == 0 and not name.startswith(LOOKS):
            set_the_stage(api)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"{}")))
        given = words.format(port=broker.port) if "{port}" in words else words
        found.append(outcome(broker, caller, name, given.split()))
    assert dict(zip(CALLERS, found, strict=True)) == dict(zip(CALLERS, expected, strict=True))


@pytest.mark.parametrize("caller", CALLERS)
def test_close_connection(
    broker: Broker,
    runtime_dir: Path,
    connection: str,
    caller: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WARREN_RUNTIME_DIR", str(runtime_dir))
    expected = dict(zip(CALLERS, TABLE["close_connection"][1], strict=True))
    assert outcome(broker, caller, "close_connection", [connection]) == expected[caller]
