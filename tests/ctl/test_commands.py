"""What the commands of warrenctl do, print and return."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from pathlib import Path

import pika
import pytest

from warren.ctl.main import commands
from warren.testing.broker import Broker

Ctl = Callable[..., tuple[int, str, str]]
Ok = Callable[..., str]


@pytest.fixture
def channel(broker: Broker) -> pika.adapters.blocking_connection.BlockingChannel:
    return pika.BlockingConnection(pika.URLParameters(broker.url)).channel()


def test_list_queues_looks_as_rabbitmqctls(ctl: Ctl, ok: Ok) -> None:
    ok("add_vhost", "looks")
    ok("-p", "looks", "pub", "--count", "2", "q1", "x")
    ok("set_policy", "-p", "looks", "ha", "^q", '{"max-length": 5}')
    status, out, err = ctl("list_queues", "-p", "looks", "name", "messages", "policy", "slave_pids")
    assert status == 0
    assert err == "Timeout: 60.0 seconds ...\nListing queues for vhost looks ...\n"
    assert out == "name\tmessages\tpolicy\tslave_pids\nq1\t2\tha\t\n"
    assert ctl("-q", "list_queues", "-p", "looks") == (0, "name\tmessages\nq1\t2\n", "")
    assert ctl("-s", "list_queues", "-p", "looks") == (0, "q1\t2\n", "")
    assert ok("list_queues", "-p", "looks", "--no-table-headers") == "q1\t2\n"
    assert ok(
        "list_queues", "-p", "looks", "--formatter", "json", "name", "messages", "durable"
    ) == ('[\n{"name": "q1", "messages": 2, "durable": true}\n]\n')
    csv = ok("--formatter=csv", "list_queues", "-p", "looks", "name", "messages", "arguments")
    assert csv == '"name","messages","arguments"\n"q1","2","[]"\n'
    box = ok("--formatter", "pretty_table", "list_queues", "-p", "looks").splitlines()
    assert box[1] == "│ name │ messages │"
    assert ok("-q", "list_queues", "-p", "looks", "--offline") == ""


def test_columns(ctl: Ctl, ok: Ok) -> None:
    ok("pub", "cols", "x")
    for command in commands():
        if command.columns:
            ok(command.name, *command.columns)
    status, _, err = ctl("list_queues", "mesages")
    assert (status, err) == (
        64,
        "Error (argument validation): Info key mesages is not supported. "
        "Did you mean 'messages'?\n",
    )
    shown = json.loads(
        ok("--json", "list_queues", "name", "node", "master_node", "queue_slave_nodes")
    )
    row = next(row for row in shown if row["name"] == "cols")
    assert row["node"] == row["master_node"]
    assert row["queue_slave_nodes"] is None


def test_wrong_words(ctl: Ctl) -> None:
    status, _, err = ctl("lst_queues")
    assert (status, err) == (64, "\nCommand 'lst_queues' not found.\nDid you mean 'list_queues'?\n")
    status, _, err = ctl("add_user")
    assert status == 64
    assert err.startswith(
        "Error (argument validation): not enough arguments.\nArguments given:\n\tadd"
    )
    assert "add_user <username> [password]" in err
    assert ctl("list_users", "more")[0] == 64
    assert ctl("list_queues", "--colour")[0] == 64
    assert ctl("list_queues", "--formatter", "erlang")[0] == 64
    assert ctl("list_queues", "--formatter")[0] == 64
    assert ctl("-t", "soon", "list_queues")[0] == 64
    assert ctl("list-queues")[0] == 0


def test_unknown_places(ctl: Ctl) -> None:
    assert ctl("list_queues", "-p", "nope")[0] == 65
    assert ctl("delete_user", "nope")[0] == 67
    assert ctl("set_user_tags", "nope", "x")[0] == 67
    assert ctl("list_user_permissions", "nope")[0] == 67
    assert ctl("delete_vhost", "nope")[0] == 65
    assert ctl("delete_queue", "nope")[0] == 65
    assert ctl("clear_policy", "nope")[0] == 65
    assert ctl("close_connection", "nope")[0] == 65
    assert ctl("restart_vhost", "-p", "nope")[0] == 65


def test_what_would_be_done_by_mistake(
    broker: Broker, ctl: Ctl, ok: Ok, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An empty line is no password.
    for given in ("", "\n"):
        monkeypatch.setattr("sys.stdin", io.StringIO(given))
        status, _, err = ctl("add_user", "nobody")
        assert (status, "password is not provided" in err) == (64, True)
    assert "nobody" not in ok("list_users")
    status, _, err = ctl("set_vm_memory_high_watermark", "7")
    assert (status, "between 0.0 and 1.0" in err) == (64, True)
    # Nothing is there to be moved, and nowhere to move it.
    ok("pub", "mv.orders", "x")
    ok("purge_queue", "mv.orders")
    assert ctl("move", "mv.orders", "mv.nowhere")[0] == 65
    assert ctl("move", "mv.orders", "mv.orders")[0] == 65
    for command in ("mirrors", "delete_queue", "purge_queue", "peek"):
        status, _, err = ctl(command, "mv.order")
        assert (status, "Did you mean 'mv.orders'?" in err) == (65, True), command
    ok("set_policy", "dots", r"^ha\.", '{"max-length": 1}')
    assert "/\tdots\t^ha\\.\tall\t" in ok("list_policies")
    ok("clear_policy", "dots")


def test_a_node_that_is_not_there(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from warren.ctl.main import run

    monkeypatch.setenv("WARREN_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("WARREN_URL", raising=False)
    assert run(["-n", "nope@here", "list_queues"]) == 69
    assert "the node is not running" in capsys.readouterr().err
    assert run(["--url", "http://guest:guest@127.0.0.1:1", "ping"]) == 69
    assert run(["--url", "ftp://x", "ping"]) == 65


def test_wrong_password(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    from warren.ctl.main import run

    assert run(["--url", broker.http_url.replace("//", "//guest:bad@"), "list_users"]) == 77
    assert "Login failed" in capsys.readouterr().err


def test_users(ctl: Ctl, ok: Ok) -> None:
    ok("add_user", "u1", "pw")
    assert ctl("add_user", "u1", "pw")[0] == 65
    ok("set_user_tags", "u1", "management", "x")
    assert json.loads(ok("list_users", "--json"))[-1] == {"user": "u1", "tags": ["management", "x"]}
    assert ok("authenticate_user", "u1", "pw") == "Success\n"
    ok("change_password", "u1", "new")
    status, _, err = ctl("-q", "authenticate_user", "u1", "pw")
    assert (status, err) == (
        65,
        "Error:\nError: failed to authenticate user \"u1\"\nuser 'u1' - invalid credentials\n",
    )
    assert ctl("authenticate_user", "u1", "new")[0] == 0
    assert json.loads(ok("list_users", "--json"))[-1]["tags"] == ["management", "x"]
    ok("clear_password", "u1")
    assert ctl("authenticate_user", "u1", "new")[0] == 65
    assert len(ok("hash_password", "abc").strip()) == 48
    ok("delete_user", "u1")


def test_permissions(ctl: Ctl, ok: Ok) -> None:
    ok("add_user", "p1", "pw")
    ok("add_vhost", "pv", "--description", "mine", "--tags", "a,b")
    assert "pv\tmine\t[a, b]\n" in ok("list_vhosts", "name", "description", "tags")
    ok("set_permissions", "-p", "pv", "p1", "^a", ".*", "")
    assert "p1\t^a\t.*\t\n" in ok("list_permissions", "-p", "pv")
    assert ok("-s", "list_user_permissions", "p1") == "pv\t^a\t.*\t\n"
    ok("set_topic_permissions", "-p", "pv", "p1", "amq.topic", "^w", "^r")
    assert ok("-s", "list_topic_permissions", "-p", "pv") == "p1\tamq.topic\t^w\t^r\n"
    assert ok("-s", "list_user_topic_permissions", "p1") == "pv\tamq.topic\t^w\t^r\n"
    ok("clear_topic_permissions", "-p", "pv", "p1")
    ok("clear_permissions", "-p", "pv", "p1")
    assert ok("-s", "list_user_permissions", "p1") == ""
    ok("set_vhost_limits", "-p", "pv", '{"max-queues": 3}')
    assert ok("-s", "list_vhost_limits") == 'pv\t{"max-queues":3}\n'
    ok("clear_vhost_limits", "-p", "pv")
    ok("set_user_limits", "p1", '{"max-connections": 1}')
    assert ok("-s", "list_user_limits") == 'p1\t{"max-connections":1}\n'
    ok("clear_user_limits", "p1")
    assert ok("trace_on", "-p", "pv") == "Trace enabled for vhost pv\n"
    assert "pv\ttrue" in ok("list_vhosts", "name", "tracing")
    ok("trace_off", "-p", "pv")
    ok("delete_vhost", "pv")
    ok("delete_user", "p1")


def test_policies(ctl: Ctl, ok: Ok) -> None:
    status, _, err = ctl("set_policy", "--priority", "2", "ha", "^ha", '{"ha-mode":"all"}')
    assert status == 0
    assert err == (
        'Setting policy "ha" for pattern "^ha" to "{"ha-mode":"all"}" '
        'with priority "2" for vhost "/" ...\n'
    )
    _, out, err = ctl("list_policies")
    assert err == 'Listing policies for vhost "/" ...\n'
    assert out == (
        "vhost\tname\tpattern\tapply-to\tdefinition\tpriority\n"
        '/\tha\t^ha\tall\t{"ha-mode":"all"}\t2\n'
    )
    assert ctl("set_policy", "x", "y", "{")[0] == 65
    status, _, err = ctl("-q", "set_policy", "x", "y", '{"ha-mode": "exactly"}')
    assert (status, err) == (
        65,
        'Error:\nValidation failed\n\nha-mode="exactly" takes an integer, none given\n\n',
    )
    status, _, err = ctl("-q", "set_policy", "ha", "^ha", '{"ha-mode": "all", "ha-mode": "nodes"}')
    assert (status, err) == (65, "Error:\nValidation failed\n\nha-mode is given twice\n\n")
    for wrong, hint in (
        ('{"ha-mod": "all"}', "Did you mean 'ha-mode' instead of 'ha-mod'?"),
        ('{"ha-mode": "some"}', "ha-mode is one of all, exactly, nodes"),
    ):
        status, _, err = ctl("set_policy", "x", "y", wrong)
        assert (status, err.splitlines()[-1]) == (65, hint)
    assert """'{"ha-mode": "all", "ha-sync-mode": "automatic"}'""" in ok("help", "set_policy")
    ok("pub", "ha.q", "x")
    assert "ha\t^ha" in ok("list_policies_that_match", "ha.q")
    ok("clear_policy", "ha")
    ok("set_operator_policy", "cap", ".*", '{"max-length": 9}')
    assert "cap" in ok("list_operator_policies")
    ok("clear_operator_policy", "cap")


def test_pausing_queues(ctl: Ctl, ok: Ok) -> None:
    ok("pub", "rest.q", "x")
    status, out, err = ctl("pause_queue", "rest.q")
    assert (status, out) == (0, "")
    assert err == "Pausing the consumers of queue 'rest.q' in vhost '/' ...\n"
    columns = ("name", "state", "paused", "paused_by")
    assert "rest.q\tpaused\ttrue\tguest\n" in ok("-s", "list_queues", *columns)
    # It answers, so it is not among those that do not.
    assert ok("-s", "list_unresponsive_queues") == ""
    ok("resume_queue", "rest.q")
    assert "rest.q\trunning\tfalse\t\n" in ok("-s", "list_queues", *columns)
    assert ctl("pause_queue", "none")[0] == 65
    ok("delete_queue", "rest.q")


def test_pausing_shovels(ctl: Ctl, ok: Ok) -> None:
    ends = '{"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"}'
    ok("set_parameter", "shovel", "mover", ends)
    ok("pause_shovel", "mover")

    def state() -> str:
        return ok("-s", "shovel_status", "state").strip()

    until_s = time.monotonic() + 30
    while state() != "paused":
        assert time.monotonic() < until_s
        time.sleep(0.1)
    assert "guest" in ok("-s", "shovel_status", "name", "paused_by")
    ok("resume_shovel", "mover")
    while state() != "running":
        assert time.monotonic() < until_s
        time.sleep(0.1)
    assert ctl("pause_shovel", "none")[0] == 65
    ok("delete_shovel", "mover")
    while ok("-s", "list_connections"):
        assert time.monotonic() < until_s
        time.sleep(0.1)


def test_parameters(ok: Ok) -> None:
    ok("set_parameter", "federation-upstream", "s", '{"uri": "amqp://"}')
    assert ok("-s", "list_parameters") == 'federation-upstream\ts\t{"uri":"amqp://"}\n'
    ok("clear_parameter", "federation-upstream", "s")
    ok("set_global_parameter", "g", "[1]")
    assert "g\t[1]\n" in ok("list_global_parameters")
    ok("clear_global_parameter", "g")
    ok("set_cluster_name", "mine")
    assert "Cluster name: mine" in ok("cluster_status")


def test_definitions(ctl: Ctl, ok: Ok, tmp_path: Path) -> None:
    ok("pub", "defs", "x")
    path = tmp_path / "definitions.json"
    ok("export_definitions", str(path))
    assert json.loads(ok("export_definitions", "-")) == json.loads(path.read_text())
    ok("delete_queue", "defs")
    ok("import_definitions", str(path))
    assert "defs\t0\n" in ok("list_queues")
    assert ctl("import_definitions", str(tmp_path / "none"))[0] == 65
    path.write_text("{")
    assert ctl("import_definitions", str(path))[0] == 65


def test_lists_of_clients(
    ok: Ok, channel: pika.adapters.blocking_connection.BlockingChannel
) -> None:
    channel.queue_declare("cl.q")
    channel.basic_consume("cl.q", lambda *_: None, consumer_tag="me")
    assert ok("-s", "list_connections").split("\t")[0] == "guest"
    assert ok("-s", "list_channels", "user", "consumer_count") == "guest\t1\n"
    assert "cl.q\t<127.0.0.1:" in ok("-s", "list_consumers")
    assert "\texchange\tcl.q\tqueue\tcl.q\t[]\n" in ok("list_bindings")
    assert "amq.topic\ttopic\n" in ok("list_exchanges")
    name = ok("-s", "list_connections", "pid").strip()
    ok("close_connection", name, "go", "away")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="go away"):
        channel.connection.process_data_events(5)


def test_close_many(broker: Broker, ok: Ok) -> None:
    for close in (("close_all_connections", "bye"), ("close_all_user_connections", "guest", "bye")):
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        ok(*close)
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="bye"):
            connection.process_data_events(5)


def test_checks(broker: Broker, ctl: Ctl, ok: Ok) -> None:
    assert "Ping succeeded\n" in ok("ping")
    for name in ("check_running", "is_running", "check_alarms", "check_local_alarms", "alarms"):
        ok(name)
    ok("check_if_node_is_mirror_sync_critical")
    ok("check_port_listener", str(broker.port))
    status, _, err = ctl("-q", "check_port_listener", "1")
    assert status == 69
    assert err.startswith("No listener for port 1 is active on node ")
    ok("check_protocol_listener", "amqp091")
    assert ctl("check_protocol_listener", "stomp")[0] == 69
    assert ctl("check_port_listener", "x")[0] == 64
    broker.set_alarm("disk")
    try:
        assert ctl("check_alarms")[0] == 69
        assert "disk alarm" in ok("alarms")
    finally:
        broker.set_alarm("disk", False)
    ok("await_startup")
    ok("await_online_nodes", "1")
    assert ctl("await_online_nodes", "2", "-t", "1")[0] == 75


def test_status(ok: Ok) -> None:
    shown = json.loads(ok("--formatter", "json", "status"))
    assert shown["alarms"] == []
    assert "Node name: " in ok("status")
    cluster = json.loads(ok("cluster_status", "--json"))
    assert cluster["running_nodes"] == cluster["disk_nodes"] == [shown["node"]]
    assert cluster["partitions"] == {}
    assert "protocol: amqp, purpose: AMQP 0-9-1" in ok("listeners")
    assert "auth" in json.loads(ok("environment"))
    assert "other_system" in ok("memory_breakdown")
    ok("version")
    ok("server_version")
    ok("rebalance", "all")


def test_messages(ctl: Ctl, ok: Ok) -> None:
    ok("add_vhost", "msgs")
    ok("-p", "msgs", "pub", "q", "one", "--properties", '{"headers": {"a": 1}}')
    ok("-p", "msgs", "pub", "q", "two")
    assert ok("-p", "msgs", "get", "q", "--count", "9", "--requeue") == "one\ntwo\n"
    (first,) = json.loads(ok("-p", "msgs", "get", "q", "--json"))
    assert (first["payload"], first["properties"]) == ("one", {"headers": {"a": 1}})
    assert ctl("-p", "msgs", "pub", "k", "x", "--exchange", "amq.topic")[0] == 65
    ok("-p", "msgs", "pub", "r", "zero")
    assert ok("-p", "msgs", "move", "q", "r") == "1 messages moved\n"
    assert ok("-p", "msgs", "redrive", "r") == "0 messages moved, 2 stayed\n"
    assert ok("-s", "-p", "msgs", "unacked", "r") == ""
    ok("-p", "msgs", "purge_queue", "r")
    assert ok("-p", "msgs", "delete_queue", "r", "--if-empty") == (
        "Queue was successfully deleted with 0 ready messages\n"
    )
    assert ctl("-p", "msgs", "sync_queue", "q")[0] == 65
    assert ctl("-p", "msgs", "cancel_sync_queue", "q")[0] == 65
    assert ctl("-p", "msgs", "transfer_master", "q", "elsewhere")[0] == 65
    assert ctl("-p", "msgs", "mirrors", "nowhere")[0] == 65
    shown = ok("-p", "msgs", "mirrors", "q").splitlines()
    assert shown[0].startswith("running, master on ")
    assert shown[1].split("\t")[:4] == ["node", "role", "explicit", "synchronised"]
    assert shown[2].split("\t")[1:5] == ["master", "false", "true", "true"]
    assert shown[3].startswith("it has no mirrors")
    shown = ok("events")
    assert "queue.deleted  vhost=msgs name=r" in shown
    assert json.loads(ok("events", "--json").splitlines()[0])["id"] >= 1
    of_one = ok("-p", "msgs", "events", "--queue", "r").splitlines()
    assert of_one
    assert all("vhost=msgs name=r" in line for line in of_one)
    assert ok("events", "--queue", "r") == ""
    deleted = ok("events", "--all", "--names", "queue.deleted").splitlines()
    assert deleted
    assert all("queue.deleted" in line for line in deleted)


def test_a_node_inside_a_program_cannot_be_stopped(ctl: Ctl) -> None:
    status, _, err = ctl("stop")
    assert status == 65
    assert "part of another program" in err


def test_help(ctl: Ctl) -> None:
    status, out, _ = ctl("help")
    assert status == 0
    for command in commands():
        assert command.name in out
    status, out, _ = ctl("help", "list_queues")
    assert "Columns: name, durable" in out
    assert ctl("list_queues", "--help")[1] == out
    assert ctl("help", "nope")[0] == 64
    assert ctl()[0] == 64
    assert "list_queues" in ctl("completion", "bash")[1]
    assert ctl("autocomplete", "list_q")[1] == "list_queues\n"
    assert len({command.name for command in commands()}) == len(commands())


def test_odd_names_do_not_break_tables(broker: Broker, ok: Ok) -> None:
    from warren.model.queue_arguments import QueueDeclaration

    ok("add_vhost", "odd")
    broker.call(
        lambda node: node.engine.add_queue(
            node.engine.vhost("odd"), "a\tb\nc", QueueDeclaration(), None
        )
    )
    assert ok("-s", "-p", "odd", "list_queues") == "a\\tb\\nc\t0\n"


def test_doctor(broker: Broker, ctl: Ctl, ok: Ok, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warren.ctl.doctor.FILES_WISHED", 1)
    monkeypatch.setattr("warren.ctl.doctor.FORGOTTEN_MESSAGES", 3)
    assert ok("doctor") == "Nothing to find fault with.\n"
    assert json.loads(ok("doctor", "--json")) == []
    ok("add_user", "lazy", "lazy")
    ok("pub", "--count", "3", "forgotten", "x")
    broker.set_alarm("memory")
    try:
        status, out, _ = ctl("doctor")
    finally:
        broker.set_alarm("memory", False)
    assert status == 69
    assert "memory is short" in out
    assert "the password of user 'lazy'" in out
    assert "queue 'forgotten' in vhost '/' holds 3 messages and has no consumer" in out
    assert out.count("  fix: ") == 3
    monkeypatch.setattr("warren.ctl.doctor.FILES_WISHED", 2**60)
    assert "raise the limit: ulimit -n" in ctl("doctor")[1]
    monkeypatch.setattr("warren.ctl.doctor.CLOCK_OFF_S", -1000.0)
    assert "s apart" in ctl("doctor")[1]
    ok("pause_queue", "forgotten")
    out = ctl("doctor")[1]
    assert "queue 'forgotten' in vhost '/' holds 3 messages and was paused by 'guest'" in out
    assert "  fix: warrenctl -p / resume_queue forgotten" in out
    ok("delete_user", "lazy")
    ok("delete_queue", "forgotten")
