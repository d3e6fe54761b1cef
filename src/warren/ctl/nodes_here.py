"""Which nodes run on this machine, which of them is meant, and why one cannot be reached."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from warren.base.runtime import control_socket, runtime_directory
from warren.ctl.errors import UNAVAILABLE, CtlError

#: A node accepts at once, however busy it is: the system does it for it.
KNOCK_S = 1.0
#: Reads a path of the API through a control socket. Raises CtlError.
Ask = Callable[[Path, str], object]


def running_here() -> list[Path]:
    """The control sockets behind which there is a node; a killed one has left its file."""
    return [path for path in sorted(runtime_directory().glob("*.sock")) if _answers(path)]


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(KNOCK_S)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def socket_of(name: str) -> Path:
    """Of the node of a name; `rabbit` is also the one `rabbit@...` that runs here."""
    path = control_socket(name)
    if "@" in name or path.exists():
        return path
    found = [one for one in running_here() if one.stem.partition("@")[0] == name]
    return found[0] if len(found) == 1 else path


def only_socket(is_wide: bool, ask: Ask) -> Path:
    """Of the node that was not named. Raises CtlError where it is not clear which one is meant.

    What is wide does the same on every node of a cluster, so that any of them will do.
    """
    found = running_here()
    if not found:
        return control_socket(f"warren@{socket.gethostname().split('.')[0]}")
    if len(found) == 1:
        return found[0]
    if is_wide and (chosen := _one_of_cluster(found, ask)) is not None:
        return chosen
    names = ", ".join(path.stem for path in found)
    raise CtlError(
        UNAVAILABLE,
        f"Error: several nodes run here ({names}): name one with -n, as in -n {found[0].stem}",
    )


def _one_of_cluster(found: Sequence[Path], ask: Ask) -> Path | None:
    """The first that serves clients, where all of them are nodes of one cluster."""
    answered = None
    for path in found:
        try:
            status = ask(path, "/warren/cluster/status")
        except CtlError:
            continue
        if not isinstance(status, dict):
            return None
        known = {control_socket(row["name"]).name for row in status["nodes"]}
        if {other.name for other in found} - known:
            return None
        if status["app_running"]:
            return path
        answered = answered or path
    return answered


def why_unreachable(path: Path | None, address: tuple[str, int] | None, error: OSError) -> str:
    """What may be the reason, and what to do about it: a line each."""
    reasons = _of_socket() if path is not None else _of_address(address or ("", 0), error)
    lines = "".join(f" * {reason}\n" for reason in reasons)
    return f"\n\nMost common reasons for this are:\n\n{lines}"


def _of_socket() -> list[str]:
    others = [one.stem for one in running_here()]
    if others:
        return [f"the node is not running; here run: {', '.join(others)} (choose one with -n)"]
    return [
        "the node is not running (start one with: warren dev, or warren cluster up)",
        "it runs as another user: run warrenctl as that one (sudo -u USER warrenctl ...), or give "
        "--url http://user:password@host:15672",
        f"its XDG_RUNTIME_DIR or WARREN_RUNTIME_DIR is another one: here it is looked for in "
        f"{runtime_directory()}",
    ]


def _of_address(address: tuple[str, int], error: OSError) -> list[str]:
    import ssl

    host, port = address
    if isinstance(error, ssl.SSLCertVerificationError):
        return ["its certificate is none that this machine trusts: SSL_CERT_FILE=ca.pem names one"]
    if isinstance(error, ssl.SSLError):
        return [f"there is no TLS on this port: try --url http://user:password@{host}:{port}"]
    if isinstance(error, socket.gaierror):
        return [f"nobody knows a host of the name {host}"]
    return [
        "the node is not running",
        "its management API is on another port or address: 127.0.0.1 or every interface, and "
        "15672, unless management.tcp.ip and management.tcp.port say otherwise",
    ]
