"""What the command says when the broker is up: where it is, and what to try next."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import warren
from warren.config.settings import Settings
from warren.node.data_directory import shown_data_dir
from warren.node.node import Node

#: In the package, where it was built; its module takes long to import.
WEB_UI = Path(warren.__file__).parent / "management" / "ui" / "index.html"
#: A first conversation with the broker in each client library, the handiest first.
_TRIES = {
    "pika": (
        "import pika; c = pika.BlockingConnection(pika.URLParameters('{url}')).channel(); "
        "c.queue_declare('hello'); c.basic_publish('', 'hello', b'Hello, Warren'); "
        "print(c.basic_get('hello', auto_ack=True)[2])"
    ),
    "kombu": (
        "import kombu; q = kombu.Connection('{url}').SimpleQueue('hello'); "
        "q.put('Hello, Warren'); print(q.get(timeout=5).payload)"
    ),
}


def login_url(settings: Settings, host: str, port: int) -> str:
    """The URL that logs the default user in."""
    auth = settings.auth
    user, password = quote(auth.default_user, safe=""), quote(auth.default_pass, safe="")
    # A lone slash at the end would mean the virtual host with the empty name to many clients.
    path = "" if auth.default_vhost == "/" else "/" + quote(auth.default_vhost, safe="")
    return f"amqp://{user}:{password}@{_in_url(host)}:{port}{path}"


def plain_url(node: Node) -> str:
    """The URL of the first listener for a client on this machine, without credentials."""
    if not node.listeners:
        return ""
    first = node.listeners[0]
    scheme = "amqps" if first.is_tls else "amqp"
    return f"{scheme}://{_in_url(first.host)}:{first.port}"


def _in_url(host: str) -> str:
    """Every interface is none that a client could connect to."""
    if host in {"::", "0.0.0.0"}:
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def development_greeting(url: str, node: Node) -> str:
    """Name, version, time to get ready, URLs, where data is, and a command that works as it is."""
    data = shown_data_dir(node.data_dir)
    return "\n".join(
        [
            f"warren {warren.__version__}  ready in {process_age_s():.2f} s",
            f"  AMQP   {url}",
            *_operating_lines(node),
            f"  Try    {next_command(url)}",
            f"  Data   {data}{'' if node.data_dir else ', gone when it stops'}",
            "  Stop   Ctrl-C",
        ]
    )


def _operating_lines(node: Node | None) -> list[str]:
    if node is None or node.operating is None:
        return []
    api, metrics = node.operating.url("http"), node.operating.url("http/prometheus")
    lines = [f"  HTTP   {api}/  ({_what_is_there()})"] if api is not None else []
    if metrics is not None:
        path = node.settings.prometheus.path.strip("/")
        lines.append(f"  Stats  {metrics}/{path}")
    return lines


def _what_is_there() -> str:
    if WEB_UI.exists():
        return "web UI; the API is below /api"
    return "the API is below /api; the web UI was not built, which needs Node.js"


def operating_notes(node: Node) -> list[str]:
    """What operators would look for and not find."""
    return node.operating.notes if node.operating is not None else []


def next_command(url: str) -> str:
    """A line for another terminal: a message there and back, with a client that is installed."""
    client = next((name for name in _TRIES if find_spec(name) is not None), None)
    script = _TRIES[client or "pika"].format(url=url)
    command = f'{_python()} -c "{script}"'
    return command if client is not None else f"{_python()} -m pip install pika && {command}"


def _python() -> str:
    """`python` where that is ours, else this interpreter's whole path."""
    found = shutil.which("python")
    if found is not None and Path(found).parent == Path(sys.executable).parent:
        return "python"
    return shlex.quote(sys.executable)


def process_age_s() -> float:
    """How long this process has been running, loading the interpreter included."""
    try:
        # The 20th field after the command's name, which may itself hold blanks, is the start.
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started_s)
    except (OSError, IndexError, ValueError, AttributeError):
        return time.process_time()


def addresses(node: Node) -> str:
    """Every address the node listens on, as in `[::]:5672, 127.0.0.1:5671 (TLS)`."""
    shown = []
    for listener in node.listeners:
        tls = " (TLS)" if listener.is_tls else ""
        host = f"[{listener.host}]" if ":" in listener.host else listener.host
        shown.append(f"{host}:{listener.port}{tls}")
    return ", ".join(shown) or "no address (listeners.tcp = none)"


def guest_hint(node: Node) -> str | None:
    """The commonest surprise of a first hour, told before it happens."""
    if "guest" not in node.directory.loopback_users or not node.directory.has_user("guest"):
        return None
    if all(listener.host in {"127.0.0.1", "::1"} for listener in node.listeners):
        return None
    return (
        "user 'guest' can log in from this machine only; for others name a user with "
        "default_users.NAME.password in the configuration, or import users with load_definitions"
    )
