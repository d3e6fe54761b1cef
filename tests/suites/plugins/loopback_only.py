"""A pytest plugin for the foreign suites: no test of theirs may talk to another machine.

Several suites name public hosts in their defaults or on purpose. Whatever a patch or a variable
misses fails here, in the socket, before a packet leaves.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

LOCAL_NAMES = {None, "", b"", "localhost", b"localhost", socket.gethostname()}

_connect = socket.socket.connect
_connect_ex = socket.socket.connect_ex
_getaddrinfo = socket.getaddrinfo


def _is_local(host: Any) -> bool:
    if host in LOCAL_NAMES:
        return True
    text = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _check(sock: socket.socket, address: Any) -> None:
    if sock.family in {socket.AF_INET, socket.AF_INET6} and not _is_local(address[0]):
        raise ConnectionRefusedError(f"the suites may not leave this machine: {address!r}")


def _guarded_connect(self: socket.socket, address: Any) -> None:
    _check(self, address)
    _connect(self, address)


def _guarded_connect_ex(self: socket.socket, address: Any) -> int:
    _check(self, address)
    return _connect_ex(self, address)


def _guarded_getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
    if not _is_local(host):
        raise socket.gaierror(socket.EAI_NONAME, f"the suites may not look up {host!r}")
    return _getaddrinfo(host, *args, **kwargs)


socket.socket.connect = _guarded_connect  # type: ignore[assignment, method-assign]
socket.socket.connect_ex = _guarded_connect_ex  # type: ignore[assignment, method-assign]
socket.getaddrinfo = _guarded_getaddrinfo
