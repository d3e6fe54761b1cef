"""How many bytes a process has received over the TCP connections that it has open.

Asked of the kernel (sock_diag(7)), so that every broker is measured the same way, whatever it
counts itself.
"""

import os
import socket
import struct
from pathlib import Path

from bench.measure import process_tree

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST, _DUMP = 1, 0x300
_DONE, _ERROR = 3, 2
_ESTABLISHED = 1 << 1
#: The attribute that holds a `struct tcp_info`, and where `tcpi_bytes_received` is in it.
_INFO, _BYTES_RECEIVED_AT = 2, 128
_HEADER = struct.Struct("=IHHII")
#: A `struct inet_diag_msg`: local port at 4, inode at its end.
_DIAG_BYTES, _INODE_AT = 72, 68
_ANSWER_BYTES = 1 << 16


def _socket_inodes(pid: int) -> set[int]:
    """Those of the process and of all below it."""
    found = set()
    for one in process_tree(pid):
        folder = Path(f"/proc/{one}/fd")
        try:
            names = list(folder.iterdir())
        except OSError:
            continue
        for name in names:
            try:
                target = os.readlink(name)
            except OSError:
                continue
            if target.startswith("socket:["):
                found.add(int(target[len("socket:[") : -1]))
    return found


def _received(message: bytes) -> int:
    """Out of the attributes that follow the description of one socket."""
    at = _DIAG_BYTES
    while at + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, at)
        if length < 4:
            break
        if kind == _INFO and length >= 4 + _BYTES_RECEIVED_AT + 8:
            return int(struct.unpack_from("=Q", message, at + 4 + _BYTES_RECEIVED_AT)[0])
        at += (length + 3) & ~3
    return 0


def _established(family: int) -> list[tuple[int, int, int]]:
    """Inode, local port and bytes received of every connection of this machine."""
    request = struct.pack("=BBBxI48x", family, socket.IPPROTO_TCP, 1 << (_INFO - 1), _ESTABLISHED)
    size = _HEADER.size + len(request)
    head = _HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _REQUEST | _DUMP, 1, 0)
    found = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.send(head + request)
        while True:
            answer, at = kernel.recv(_ANSWER_BYTES), 0
            while at + _HEADER.size <= len(answer):
                length, kind, *_ = _HEADER.unpack_from(answer, at)
                if kind in {_DONE, _ERROR}:
                    return found
                message = answer[at + _HEADER.size : at + length]
                (inode,) = struct.unpack_from("=I", message, _INODE_AT)
                (port,) = struct.unpack_from("!H", message, 4)
                found.append((inode, port, _received(message)))
                at += (length + 3) & ~3


def received_bytes(pid: int, client_port: int) -> int:
    """Over all connections that are open now, but for those of clients."""
    own = _socket_inodes(pid)
    rows = [row for family in (socket.AF_INET, socket.AF_INET6) for row in _established(family)]
    return sum(count for inode, port, count in rows if inode in own and port != client_port)
