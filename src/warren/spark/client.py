"""The broker's HTTP API as the connector uses it: any node will do, and a failover is waited for.

Connections are kept open per process and thread. What may be tried again is tried again, at the
next endpoint, for longer than a failover takes; what the broker refuses is not.
"""

from __future__ import annotations

import base64
import copy
import http.client
import json
import ssl
import threading
import time
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from warren.spark.errors import OptionError, Refused, Unreachable
from warren.spark.options import Options

#: How long one answer may take, in seconds.
ANSWER_S = 60.0
#: Refusals that pass: a node that is starting, a queue whose master is being chosen.
_PASSING = {500, 502, 503, 504}
_idle = threading.local()


class Client:
    """See the module's text. It can be pickled: connections are not part of it."""

    def __init__(self, options: Options) -> None:
        self.endpoints = options.endpoints
        self.vhost = options.vhost
        self.retries = options.number("retries", 60, 1)
        self.interval_s = options.number("retryIntervalMs", 1000, 1) / 1000
        self.ca_file = options.text("caFile", "")
        user, password = options.text("user", "guest"), options.password
        secret = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {secret}"}
        self._current = 0

    def __repr__(self) -> str:
        return f"Client({', '.join(self.endpoints)})"

    def preferring(self, endpoint: str | None) -> Client:
        """The same with one of its endpoints to be asked first, and the others if that fails."""
        other = copy.copy(self)
        if endpoint is not None:
            other.endpoints = [endpoint, *(one for one in self.endpoints if one != endpoint)]
            other._current = 0
        return other

    # -- one request -------------------------------------------------------------------------------

    def _connection(self, endpoint: str) -> http.client.HTTPConnection:
        connections: dict[str, http.client.HTTPConnection] = _idle.__dict__.setdefault("by_url", {})
        found = connections.get(endpoint)
        if found is None:
            parts = urlsplit(endpoint)
            assert parts.hostname is not None
            if parts.scheme == "https":
                try:
                    context = ssl.create_default_context(cafile=self.ca_file or None)
                except OSError as error:
                    raise OptionError(f"option 'caFile': {error}") from error
                found = http.client.HTTPSConnection(
                    parts.hostname, parts.port or 15671, timeout=ANSWER_S, context=context
                )
            else:
                found = http.client.HTTPConnection(
                    parts.hostname, parts.port or 15672, timeout=ANSWER_S
                )
            connections[endpoint] = found
        return found

    def _once(self, endpoint: str, method: str, path: str, body: bytes | None) -> bytes:
        """Raises OSError, HTTPException, Refused."""
        connection = self._connection(endpoint)
        was_idle = connection.sock is not None
        try:
            connection.request(method, urlsplit(endpoint).path + "/api" + path, body, self._headers)
            response = connection.getresponse()
            data = response.read()
        except ConnectionError:
            connection.close()
            if was_idle:
                # The other end closes connections that nobody uses for a while.
                return self._once(endpoint, method, path, body)
            raise
        except BaseException:
            connection.close()
            raise
        if response.status < 300:
            return data
        try:
            told = json.loads(data) if data else {}
        except ValueError:
            told = {}
        raise Refused(
            response.status,
            str(told.get("error", "")),
            str(told.get("reason", "")) or f"{method} {path}: HTTP status {response.status}",
        )

    def request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Raises Unreachable, Refused."""
        last = ""
        for attempt in range(self.retries):
            if attempt:
                time.sleep(self.interval_s)
            # Every endpoint gets its chance before anybody waits.
            for _ in self.endpoints:
                endpoint = self.endpoints[self._current % len(self.endpoints)]
                try:
                    return self._once(endpoint, method, path, body)
                except Refused as error:
                    if error.status not in _PASSING or error.word == "staged_too_much":
                        raise
                    last = f"{endpoint}: {error}"
                except (OSError, http.client.HTTPException) as error:
                    last = f"{endpoint}: {error or type(error).__name__}"
                self._current += 1
        waited_s = self.retries * self.interval_s
        raise Unreachable(
            f"no endpoint of the option 'endpoints' has answered for {waited_s:.0f} s (options "
            f"'retries' and 'retryIntervalMs'). The last: {last}"
        )

    def call(self, method: str, path: str, said: Any = None) -> Any:
        """JSON there and back."""
        data = self.request(method, path, None if said is None else json.dumps(said).encode())
        return json.loads(data) if data else None

    # -- what there is -----------------------------------------------------------------------------

    @property
    def _vhost(self) -> str:
        return quote(self.vhost, safe="")

    def _queue(self, queue: str) -> str:
        return f"/queues/{self._vhost}/{quote(queue, safe='')}"

    def _cursor(self, queue: str, cursor: str) -> str:
        return f"{self._queue(queue)}/cursors/{quote(cursor, safe='')}"

    def queue_names(self) -> list[str]:
        query = urlencode({"columns": "name", "disable_stats": "true"})
        return sorted(row["name"] for row in self.call("GET", f"/queues/{self._vhost}?{query}"))

    def open_cursor(self, queue: str, cursor: str, said: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self.call("PUT", self._cursor(queue, cursor), said)
        return found

    def poll(self, queue: str, cursor: str, said: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self.call("POST", self._cursor(queue, cursor) + "/poll", said)
        return found

    def trim(self, queue: str, cursor: str, said: dict[str, Any]) -> None:
        self.call("POST", self._cursor(queue, cursor) + "/trim", said)

    def release(self, queue: str, cursor: str, owner: str) -> None:
        self.call("POST", self._cursor(queue, cursor) + "/release", {"owner": owner})

    def drop_cursor(self, queue: str, cursor: str) -> None:
        self.call("DELETE", self._cursor(queue, cursor))

    def range_info(self, queue: str, timestamp_ms: int | None = None) -> dict[str, Any]:
        query = "" if timestamp_ms is None else f"?timestamp={timestamp_ms}"
        found: dict[str, Any] = self.call("GET", f"{self._queue(queue)}/range/info{query}")
        return found

    def read_range(self, queue: str, query: dict[str, Any]) -> bytes:
        return self.request("GET", f"{self._queue(queue)}/range?{urlencode(query)}")

    def queue_info(self, queue: str) -> dict[str, Any]:
        found: dict[str, Any] = self.call("GET", self._queue(queue))
        return found

    def replica_info(self, queue: str, node: str) -> dict[str, Any]:
        """What one node's own replica of a mirrored queue has."""
        query = urlencode({"node": node})
        found: dict[str, Any] = self.call("GET", f"{self._queue(queue)}/replica?{query}")
        return found

    def read_replica(self, queue: str, query: dict[str, Any]) -> bytes:
        return self.request("GET", f"{self._queue(queue)}/replica/range?{urlencode(query)}")

    def send_back(
        self, queue: str, incarnation: str, positions: list[int], to: str | None
    ) -> dict[str, Any]:
        """Messages at some positions to another queue, or back to where they first died."""
        said: dict[str, Any] = {"positions": positions, "incarnation": incarnation}
        verb = "redrive"
        if to is not None:
            verb, said["to"] = "move", to
        found: dict[str, Any] = self.call("POST", f"{self._queue(queue)}/{verb}", said)
        return found

    def _batch(self, producer: str, batch: int) -> str:
        return f"/batches/{self._vhost}/{quote(producer, safe='')}/{batch}"

    def stage(
        self, producer: str, batch: int, part: str, attempt: str, block: bytes, number: int = 0
    ) -> Any:
        """`number` counts the blocks of a part: one that comes twice is staged once."""
        query = urlencode({"part": part, "attempt": attempt, "block": number})
        path = f"{self._batch(producer, batch)}/stage?{query}"
        return json.loads(self.request("POST", path, block))

    def commit(self, producer: str, batch: int, parts: list[Any]) -> Any:
        return self.call("POST", f"{self._batch(producer, batch)}/commit", {"parts": parts})

    def abort(self, producer: str, batch: int) -> None:
        self.call("DELETE", self._batch(producer, batch))
