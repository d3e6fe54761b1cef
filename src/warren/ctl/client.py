"""A very small HTTP client: importing the standard one would take longer than a whole command."""

from __future__ import annotations

import base64
import json
import os
import select
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warren.base.runtime import is_private
from warren.ctl.errors import BAD_DATA, NO_PERMISSION, SOFTWARE, TIMEOUT, UNAVAILABLE, CtlError

CHUNK_BYTES = 256 * 1024
#: How long a node may take to say what its cluster is, before another one is asked.
CHOICE_S = 3.0
#: How long nothing is said at a terminal while the node does not answer.
SILENCE_S = 3.0
#: A node that has nothing to tell says so more often than this.
LIVE_S = 40.0


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and JSON of an answer; None without a body."""

    status: int
    value: Any
    #: The header as it came, for who needs more.
    head: str = ""


class Client:
    """Speaks to one node, over its control socket or over TCP with a password."""

    def __init__(
        self,
        path: Path | None,
        address: tuple[str, int] | None,
        credentials: str | None,
        timeout_s: float | None,
        tls: bool = False,
    ) -> None:
        self._tls = tls
        self._path = path
        self._address = address
        self._credentials = credentials
        self._timeout_s = timeout_s

    @property
    def place(self) -> str:
        return str(self._path) if self._path is not None else "{}:{}".format(*self._address or ())

    @property
    def is_local(self) -> bool:
        """Whether the node is on this machine for sure."""
        return self._path is not None

    @property
    def host(self) -> str:
        """The machine the node is on."""
        return "127.0.0.1" if self._address is None else self._address[0]

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Any request under /api. Raises CtlError when the node cannot be reached."""
        data = body if isinstance(body, bytes) else b""
        if body is not None and not isinstance(body, bytes):
            data = json.dumps(body).encode()
        lines = [f"{method} /api{path} HTTP/1.1", "Host: warren", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if self._credentials is not None:
            lines.append(f"Authorization: Basic {self._credentials}")
        if body is not None:
            lines.append(f"Content-Length: {len(data)}")
        try:
            with self._connect() as connection:
                connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
                _say_that_it_waits(connection)
                raw = _read_all(connection)
        except TimeoutError:
            raise CtlError(
                TIMEOUT, f"Error: the node did not answer in {self._timeout_s} s"
            ) from None
        except OSError as error:
            raise CtlError(UNAVAILABLE, self._unreachable(error)) from error
        status, head, content = self._parsed(raw)
        if status == 401 and self._credentials is not None:
            raise CtlError(NO_PERMISSION, self._refused(content))
        try:
            return Answer(status, json.loads(content) if content.strip() else None, head)
        except ValueError:
            raise CtlError(UNAVAILABLE, self._no_api()) from None

    def lines(self, path: str, until_s: float | None) -> Iterator[str]:
        """The lines of an answer that goes on, as they come, up to a moment. Raises CtlError."""
        head = f"GET /api{path} HTTP/1.0\r\nHost: warren\r\n"
        if self._credentials is not None:
            head += f"Authorization: Basic {self._credentials}\r\n"
        try:
            with self._connect() as connection:
                connection.sendall(head.encode() + b"\r\n")
                yield from _live_lines(connection, until_s)
        except TimeoutError:
            raise CtlError(TIMEOUT, "Error: nothing was heard of the node any more") from None
        except OSError as error:
            raise CtlError(UNAVAILABLE, self._unreachable(error)) from error

    def _connect(self) -> socket.socket:
        if self._path is None:
            assert self._address is not None
            connection = socket.create_connection(self._address, self._timeout_s)
            return self._secured(connection) if self._tls else connection
        if self._path.exists() and not is_private(self._path.parent):
            raise OSError(0, "others may write to the socket's directory: it is not to be trusted")
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(self._timeout_s)
        connection.connect(str(self._path))
        return connection

    def _secured(self, connection: socket.socket) -> socket.socket:
        """With the node's certificate checked: `SSL_CERT_FILE` names an authority of one's own."""
        import ssl

        assert self._address is not None
        context = ssl.create_default_context()
        return context.wrap_socket(connection, server_hostname=self._address[0])

    def _parsed(self, raw: bytes) -> tuple[int, str, bytes]:
        """Status, header and body. Raises CtlError."""
        if self._path is None and not raw.startswith(b"HTTP/"):
            raise CtlError(UNAVAILABLE, self._no_api())
        return _parse(raw)

    def _no_api(self) -> str:
        return (
            f"Error: what answers at {self.place} is not a management API: that is at port 15672 "
            "(15671 with TLS) unless management.tcp.port says otherwise"
        )

    def _refused(self, content: bytes) -> str:
        """What the node says of a login that it refuses, and what to do."""
        try:
            reason = str(json.loads(content)["reason"])
        except (ValueError, KeyError, TypeError):
            reason = "Login failed"
        user = base64.b64decode(self._credentials or "").decode().partition(":")[0]
        return (
            f"Error:\n{reason}\n\nThat was user '{user}' at {self.place}. Another one is given as "
            "--url http://user:password@host:port, and needs a tag (warrenctl set_user_tags); on "
            "the node's own machine no user is needed: leave --url and WARREN_URL out"
        )

    def _unreachable(self, error: OSError) -> str:
        from warren.ctl.nodes_here import why_unreachable

        return (
            f"Error: unable to perform an operation on the node at {self.place}: "
            f"{error.strerror or error}{why_unreachable(self._path, self._address, error)}"
        )

    def get(self, path: str) -> Any:
        """The JSON of a path. Raises CtlError for a refusal."""
        return self.want("GET", path)

    def want(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """A request that must be granted. Raises CtlError for a refusal."""
        return granted(self.call(method, path, body, headers))


def granted(answer: Answer) -> Any:
    """What an answer holds. Raises CtlError for a refusal."""
    if answer.status < 300:
        return answer.value
    given = answer.value if isinstance(answer.value, dict) else {}
    reason = given.get("reason") or f"the node answered {answer.status}"
    status = {401: NO_PERMISSION, 409: SOFTWARE, 503: UNAVAILABLE}.get(answer.status, BAD_DATA)
    raise CtlError(status, f"Error:\n{reason}")


def _say_that_it_waits(connection: socket.socket) -> None:
    """At a terminal, when the answer takes long: a node may wait for others for 20 seconds."""
    if sys.stderr.isatty() and not select.select([connection], [], [], SILENCE_S)[0]:
        print("waiting for the node's answer ...", file=sys.stderr, flush=True)


def _read_all(connection: socket.socket) -> bytes:
    pieces: list[bytes] = []
    while True:
        piece = connection.recv(CHUNK_BYTES)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)


def _live_lines(connection: socket.socket, until_s: float | None) -> Iterator[str]:
    """Without chunks: HTTP/1.0 has none, and the end of the answer is that of the connection."""
    received = b""
    in_body = False
    while True:
        left_s = LIVE_S if until_s is None else min(LIVE_S, until_s - time.monotonic())
        if left_s <= 0:
            return
        connection.settimeout(left_s)
        try:
            piece = connection.recv(CHUNK_BYTES)
        except TimeoutError:
            if until_s is not None and time.monotonic() >= until_s:
                return
            raise
        if not piece:
            raise CtlError(UNAVAILABLE, "Error: the node has ended the connection")
        received += piece
        if not in_body:
            head, separator, rest = received.partition(b"\r\n\r\n")
            if not separator:
                continue
            if head.split(b" ", 2)[1] != b"200":
                status, _, body = _parse(received)
                granted(Answer(status, json.loads(body) if body.strip() else None))
            in_body, received = True, rest
        *whole, received = received.split(b"\n")
        for line in whole:
            yield line.decode()


def _parse(raw: bytes) -> tuple[int, str, bytes]:
    head, separator, body = raw.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    if not separator or len(words) < 2 or not words[1].isdigit():
        raise CtlError(UNAVAILABLE, "Error: the node hung up before it had answered")
    if b"transfer-encoding: chunked" in head.lower():
        body = _join_chunks(body)
    return int(words[1]), head.decode("latin-1"), body


def _join_chunks(body: bytes) -> bytes:
    pieces: list[bytes] = []
    at = 0
    while True:
        end = body.find(b"\r\n", at)
        size = int(body[at:end].split(b";")[0], 16) if end >= 0 else 0
        if size == 0:
            return b"".join(pieces)
        pieces.append(body[end + 2 : end + 2 + size])
        at = end + 2 + size + 2


def make_client(
    node: str | None, url: str | None, timeout_s: float | None, is_wide: bool = False
) -> Client:
    """The node that was named, or the one that runs here. Raises CtlError.

    With `is_wide` any node of the one cluster that runs here will do.
    """
    from warren.ctl.nodes_here import only_socket, socket_of

    url = url or os.environ.get("WARREN_URL")
    if url:
        return _client_of_url(url, timeout_s)
    node = node or os.environ.get("WARREN_NODENAME") or os.environ.get("RABBITMQ_NODENAME")
    if node:
        return Client(socket_of(node), None, None, timeout_s)

    def ask(path: Path, what: str) -> object:
        return Client(path, None, None, CHOICE_S).get(what)

    return Client(only_socket(is_wide, ask), None, None, timeout_s)


def _client_of_url(url: str, timeout_s: float | None) -> Client:
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or parts.hostname is None:
        raise CtlError(BAD_DATA, "Error: --url takes http(s)://user:password@host:port")
    tls = parts.scheme == "https"
    user = unquote(parts.username or "guest")
    password = unquote(parts.password or "guest")
    credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
    address = parts.hostname, parts.port or (15671 if tls else 15672)
    return Client(None, address, credentials, timeout_s, tls)
