"""`warren serve`: a rabbitmq.conf obeyed, refused with its place, and told in the log."""

from __future__ import annotations

import json
import signal
import ssl
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pytest
import trustme
from test_cli_dev import Command, run

Serve = Callable[..., Command]
#: The management API and the metrics on free ports of this machine.
OPERATING = "".join(
    f"{part}.tcp.ip = 127.0.0.1\n{part}.tcp.port = 0\n" for part in ("management", "prometheus")
)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts `warren serve` with the text of a configuration file."""
    commands: list[Command] = []

    def start(text: str, **env: str) -> Command:
        path = tmp_path / "rabbitmq.conf"
        path.write_text(text + OPERATING)
        env.setdefault("WARREN_DATA_DIR", str(tmp_path / "data"))
        command = Command("serve", "--config", str(path), **env)
        commands.append(command)
        return command

    yield start
    for command in commands:
        command.kill()


def connect(url: str, user: str, password: str, vhost: str = "/") -> pika.BlockingConnection:
    parameters = pika.URLParameters(url)
    parameters.credentials = pika.PlainCredentials(user, password)
    parameters.virtual_host = vhost
    return pika.BlockingConnection(parameters)


def test_serves_as_configured(serve: Serve) -> None:
    command = serve(
        "listeners.tcp.1 = 127.0.0.1:0\nheartbeat = 7\ndefault_user = boss\ndefault_pass = s3cret\n"
        "default_vhost = main\nproduct.name = Warren\ndefault_users.app.password = apppw\n"
    )
    assert command.url.startswith("amqp://127.0.0.1:")
    with connect(command.url, "boss", "s3cret", "main") as connection:
        assert connection._impl.server_properties["product"] == "Warren"
    connect(command.url, "app", "apppw", "main").close()
    code, out, err = command.stop()
    assert code == 0
    assert "ready in" in out
    assert "s3cret" not in out + err


def test_unknown_keys_are_refused_with_place_and_guess(tmp_path: Path) -> None:
    path = tmp_path / "rabbitmq.conf"
    path.write_text("# mine\nhartbeat = 5\nframe_max = large\n")
    done = run("serve", "--config", str(path))
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"{path}:2: unknown key 'hartbeat'; did you mean 'heartbeat'?",
        f"{path}:3: frame_max = 'large': expected a size such as 500KB, 50MB or 2GiB",
    ]
    done = run("serve", "--config", str(tmp_path / "missing.conf"))
    assert done.returncode == 2
    assert "no such configuration file" in done.stderr


def test_the_environment_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "some.conf"
    path.write_text("hartbeat = 5\n")
    done = run("serve", RABBITMQ_CONFIG_FILE=str(path))
    assert f"{path}:1: unknown key" in done.stderr


def test_keys_without_effect_are_told_in_one_line(serve: Serve) -> None:
    command = serve(
        "listeners.tcp.1 = 127.0.0.1:0\nnum_acceptors.tcp = 3\nnet_ticktime = 30\nheartbeat = 9\n"
    )
    _, _, err = command.stop()
    told = [line for line in err.splitlines() if "without effect" in line]
    assert len(told) == 1
    assert told[0].endswith("accepted without effect yet: net_ticktime, num_acceptors.tcp")


def test_everything_by_default(serve: Serve) -> None:
    command = serve("listeners.tcp.default = 0\n")
    connect(command.url, "guest", "guest").close()
    assert command.process.stdout is not None
    ready = command.process.stdout.readline()
    assert " on [::]:" in ready or " on 0.0.0.0:" in ready
    _, _, err = command.stop()
    assert "user 'guest' can log in from this machine only" in err


def test_no_guest_hint_where_it_does_not_matter(serve: Serve) -> None:
    for text in ("listeners.tcp.1 = 127.0.0.1:0\n", "listeners.tcp.1 = 0\nloopback_users = none\n"):
        assert "'guest' can log in" not in serve(text).stop()[2]


def test_log_file(serve: Serve, tmp_path: Path) -> None:
    command = serve(
        f"listeners.tcp.1 = 127.0.0.1:0\nlog.file = {tmp_path}/w.log\nlog.file.formatter = json\n"
        "log.console = false\n"
    )
    connect(command.url, "guest", "guest").close()
    code, _, err = command.stop()
    assert (code, err) == (0, "")
    entries = [json.loads(line) for line in (tmp_path / "w.log").read_text().splitlines()]
    assert any("user 'guest' authenticated" in entry["msg"] for entry in entries)


def test_definitions(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    document = {
        "users": [{"name": "ann", "password": "pw", "tags": []}],
        "vhosts": [{"name": "v"}],
        "permissions": [
            {"user": "ann", "vhost": "v", "configure": ".*", "write": ".*", "read": ".*"}
        ],
        "queues": [{"name": "q", "vhost": "v", "durable": True, "arguments": {"x-max-length": 9}}],
    }
    file.write_text(json.dumps(document))
    command = serve(f"listeners.tcp.1 = 127.0.0.1:0\nload_definitions = {file}\n")
    with connect(command.url, "ann", "pw", "v") as connection:
        arguments = {"x-max-length": 9}
        connection.channel().queue_declare("q", durable=True, arguments=arguments)
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        connect(command.url, "guest", "guest", "v")


def test_definitions_that_cannot_be_imported(tmp_path: Path) -> None:
    path = tmp_path / "rabbitmq.conf"
    file = tmp_path / "definitions.json"
    file.write_text('{"queues": [{"name": "q", "vhost": "gone"}]}')
    path.write_text(f"listeners.tcp.1 = 127.0.0.1:0\nload_definitions = {file}\n")
    done = run("serve", "--config", str(path), "--in-memory")
    assert done.returncode == 1
    assert f"{file}: queues[0] ('q'): vhost 'gone' not found" in done.stderr
    assert "Traceback" not in done.stderr


def test_tls(serve: Serve, tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    for name, blob in (
        ("cert.pem", issued.cert_chain_pems[0]),
        ("key.pem", issued.private_key_pem),
        ("ca.pem", authority.cert_pem),
    ):
        blob.write_to_path(tmp_path / name)
    command = serve(
        f"listeners.tcp = none\nlisteners.ssl.1 = 127.0.0.1:0\n"
        f"ssl_options.cacertfile = {tmp_path}/ca.pem\nssl_options.certfile = {tmp_path}/cert.pem\n"
        f"ssl_options.keyfile = {tmp_path}/key.pem\n"
    )
    assert command.url.startswith("amqps://127.0.0.1:")
    parameters = pika.URLParameters(command.url)
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    parameters.ssl_options = pika.SSLOptions(context, "localhost")
    pika.BlockingConnection(parameters).close()


def test_bad_tls_is_told(tmp_path: Path) -> None:
    path = tmp_path / "rabbitmq.conf"
    path.write_text("listeners.tcp = none\nlisteners.ssl.1 = 127.0.0.1:0\n")
    done = run("serve", "--config", str(path), "--in-memory")
    assert done.returncode == 1
    assert "TLS needs ssl_options.certfile" in done.stderr


def test_a_signal_while_a_client_is_silent(serve: Serve) -> None:
    command = serve("listeners.tcp.1 = 127.0.0.1:0\n")
    connection = connect(command.url, "guest", "guest")
    assert command.stop(signal.SIGTERM)[0] == 0
    assert connection is not None


def test_pid_file_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "rabbitmq.conf"
    path.write_text("listeners.tcp.1 = 127.0.0.1:0\n")
    done = run("serve", "--config", str(path), "--in-memory", "--pid-file", str(tmp_path))
    assert done.returncode == 1
    assert "cannot write the pid file" in done.stderr
    assert stat.S_ISDIR(tmp_path.stat().st_mode)
