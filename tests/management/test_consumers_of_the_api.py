"""Programs that people use with RabbitMQ's management API: rabbitmqadmin, pyrabbit2, kombu."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kombu
import pyrabbit2
import pytest

from management.api import Api
from warren.testing.broker import Broker

WAIT_S = 60


@pytest.fixture(scope="module")
def script() -> str:
    found = shutil.which("rabbitmqadmin")
    if found is None:
        pytest.skip("rabbitmqadmin is not installed (Debian: rabbitmq-server)")
    return found


@pytest.fixture
def admin(broker: Broker, script: str) -> Any:
    """Runs rabbitmqadmin; its output, or with `--format=raw_json` what it parses to."""
    port = broker.http_url.rpartition(":")[2]

    def run(*words: str, status: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, script, "-H", "127.0.0.1", "-P", port, *words],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == status, done
        return done.stdout + done.stderr

    return run


def listed(admin: Any, what: str) -> Any:
    return json.loads(admin("--format=raw_json", "list", *what.split()))


def test_rabbitmqadmin_declares_and_deletes(admin: Any) -> None:
    assert "queue declared" in admin("declare", "queue", "name=adm.q", "durable=true")
    assert "exchange declared" in admin("declare", "exchange", "name=adm.x", "type=topic")
    words = ("source=adm.x", "destination=adm.q", "routing_key=a.#")
    assert "binding declared" in admin("declare", "binding", *words)
    definition = 'definition={"max-length":7}'
    admin("declare", "policy", "name=adm.p", "pattern=^adm", definition, "apply-to=queues")
    assert {row["name"] for row in listed(admin, "queues name")} >= {"adm.q"}
    (shown,) = [row for row in listed(admin, "queues") if row["name"] == "adm.q"]
    assert shown["policy"] == "adm.p"
    admin("delete", "policy", "name=adm.p")
    props = next(
        row["properties_key"] for row in listed(admin, "bindings") if row["source"] == "adm.x"
    )
    words = ("source=adm.x", "destination_type=queue", "destination=adm.q")
    admin("delete", "binding", *words, f"properties_key={props}")
    admin("delete", "exchange", "name=adm.x")
    assert "queue deleted" in admin("delete", "queue", "name=adm.q")
    assert "Not found" in admin("delete", "queue", "name=adm.q", status=1)


def test_rabbitmqadmin_messages(admin: Any) -> None:
    admin("declare", "queue", "name=msg.q")
    published = admin("publish", "exchange=amq.default", "routing_key=msg.q", "payload=hello")
    assert "Message published" in published
    unrouted = admin("publish", "exchange=amq.default", "routing_key=none", "payload=x")
    assert "NOT routed" in unrouted
    assert "hello" in admin("get", "queue=msg.q", "ackmode=ack_requeue_true", "count=1")
    assert json.loads(admin("--format=raw_json", "get", "queue=msg.q"))[0]["payload"] == "hello"
    assert "queue purged" in admin("purge", "queue", "name=msg.q")
    assert "No items" in admin("get", "queue=msg.q")


def test_rabbitmqadmin_users_and_vhosts(admin: Any) -> None:
    admin("declare", "vhost", "name=adm.v")
    admin("declare", "user", "name=adm.u", "password=pw", "tags=management")
    admin("declare", "permission", "vhost=adm.v", "user=adm.u", "configure=.*", "write=", "read=")
    rows = [row for row in listed(admin, "permissions") if row["user"] == "adm.u"]
    assert [row["vhost"] for row in rows] == ["adm.v"]
    limit = ("vhost=adm.v", "name=max-queues", "value=3")
    admin("declare", "vhost_limit", *limit)
    assert listed(admin, "vhost_limits")[0]["value"] == {"max-queues": 3}
    parameter = ("component=federation-upstream", "name=adm.s", 'value={"uri": "amqp://"}')
    admin("--vhost=adm.v", "declare", "parameter", *parameter)
    admin("delete", "permission", "vhost=adm.v", "user=adm.u")
    admin("delete", "user", "name=adm.u")
    admin("delete", "vhost", "name=adm.v")


@pytest.mark.parametrize(
    "what",
    [
        "users",
        "vhosts",
        "connections",
        "exchanges",
        "bindings",
        "permissions",
        "channels",
        "consumers",
        "parameters",
        "policies",
        "operator_policies",
        "queues",
        "nodes",
        "vhost_limits",
    ],
)
def test_rabbitmqadmin_lists(admin: Any, what: str) -> None:
    admin("list", what)
    admin("--format=long", "list", what)
    assert isinstance(listed(admin, what), list)


def test_rabbitmqadmin_shows(admin: Any) -> None:
    assert "rabbitmq_version" in admin("show", "overview")
    admin(
        "list", "queues", "vhost", "name", "node", "messages", "message_stats.publish_details.rate"
    )


def test_rabbitmqadmin_definitions(admin: Any, tmp_path: Path) -> None:
    admin("declare", "queue", "name=def.q", "durable=true")
    path = tmp_path / "definitions.json"
    admin("export", str(path))
    assert "def.q" in {row["name"] for row in json.loads(path.read_text())["queues"]}
    admin("delete", "queue", "name=def.q")
    admin("import", str(path))
    assert "def.q" in {row["name"] for row in listed(admin, "queues")}


def test_rabbitmqadmin_is_told_of_wrong_passwords(admin: Any) -> None:
    assert "Access refused" in admin("-u", "guest", "-p", "wrong", "list", "queues", status=1)


def client_of(broker: Broker) -> pyrabbit2.Client:
    return pyrabbit2.Client(broker.http_url.removeprefix("http://"), "guest", "guest")


def test_pyrabbit2(broker: Broker) -> None:
    client = client_of(broker)
    assert client.is_alive("%2F")
    assert client.get_whoami()["name"] == "guest"
    assert client.create_vhost("py.v") or "py.v" in client.get_vhost_names()
    client.create_queue("py.v", "q", durable=True)
    client.create_exchange("py.v", "x", "topic")
    client.create_binding("py.v", "x", "q", "k.#")
    assert [row["routing_key"] for row in client.get_queue_bindings("py.v", "q")] == ["q", "k.#"]
    assert client.publish("py.v", "x", "k.1", "hello")
    assert client.get_queue_depth("py.v", "q") == 1
    (message,) = client.get_messages("py.v", "q")
    assert message["payload"] == "hello"
    client.purge_queue("py.v", "q")
    client.create_user("py.u", "pw")
    client.set_vhost_permissions("py.v", "py.u", ".*", ".*", ".*")
    assert client.get_vhost_permissions("py.v")
    assert client.get_user_permissions("py.u")[0]["vhost"] == "py.v"
    client.create_policy(
        "py.v", "p", **{"pattern": "q", "definition": {"max-length": 2}, "apply-to": "queues"}
    )
    assert client.get_policy("py.v", "p")["definition"] == {"max-length": 2}
    assert client.get_cluster_name()["name"]
    for listing in (
        client.get_nodes,
        client.get_overview,
        client.get_connections,
        client.get_channels,
        client.get_definitions,
        client.get_extensions,
        client.get_all_policies,
        client.get_all_vhosts,
    ):
        listing()
    with pytest.raises(pyrabbit2.http.HTTPError, match="404"):
        client.get_queue("py.v", "none")
    client.delete_user("py.u")
    client.delete_queue("py.v", "q")
    client.delete_vhost("py.v")


def test_kombus_manager(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    # kombu imports pyrabbit, whose successor has the same classes under another name.
    monkeypatch.setitem(sys.modules, "pyrabbit", pyrabbit2)
    port = int(broker.http_url.rpartition(":")[2])
    with kombu.Connection(broker.url, transport_options={"manager_port": port}) as connection:
        connection.SimpleQueue("kombu.q").put("hi")
        manager = connection.get_manager(hostname="127.0.0.1")
        assert {"kombu.q"} <= {row["name"] for row in manager.get_queues("/")}
        assert manager.get_queue_depth("/", "kombu.q") == 1


def test_what_flower_reads(api: Api) -> None:
    """Flower asks for all queues of a virtual host and picks these by name."""
    api.put("/queues/%2F/celery")
    (row,) = [row for row in api.get("/queues/%2F") if row["name"] == "celery"]
    for name in ("messages", "messages_ready", "messages_unacknowledged", "consumers"):
        assert isinstance(row[name], int)


def test_what_keda_reads(api: Api) -> None:
    api.put("/queues/%2F/keda.q")
    page = api.get("/queues/%2F?page=1&use_regex=true&pagination=false&name=%5Ekeda&page_size=100")
    rows = page["items"] if isinstance(page, dict) else page
    (row,) = rows
    assert row["message_stats"]["publish_details"]["rate"] == 0.0
    assert row["message_stats"]["deliver_get_details"]["rate"] == 0.0
