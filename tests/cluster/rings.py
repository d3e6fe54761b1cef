"""Mirrored queues as operators see them: their rings, over the management API of any node."""

from __future__ import annotations

import base64
import contextlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

from warren.testing import Cluster

#: How long a change of a ring may take on a busy machine.
RING_S = 60.0
#: How long a node may take to answer a question.
ANSWER_S = 15.0

_GUEST = "Basic " + base64.b64encode(b"guest:guest").decode()


class Refused(RuntimeError):
    """The API has answered with an error."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{status}: {reason}")
        self.status = status
        self.reason = reason


def api(cluster: Cluster, node: int, method: str, path: str, body: object = None) -> Any:
    """An answer of the management API. Raises Refused, or OSError when nobody answers."""
    request = urllib.request.Request(
        f"{cluster.management_url(node)}/api{path}",
        None if body is None else json.dumps(body).encode(),
        {"authorization": _GUEST, "content-type": "application/json"},
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            text = answer.read()
    except urllib.error.HTTPError as error:
        raise Refused(error.code, error.read().decode(errors="replace")) from None
    return json.loads(text) if text else None


def mirror(
    cluster: Cluster, pattern: str, definition: dict[str, object], node: int = 1, vhost: str = "/"
) -> None:
    """A policy for the queues that match; named as the pattern."""
    body = {"pattern": pattern, "definition": definition, "apply-to": "queues"}
    api(cluster, node, "PUT", f"/policies/{quote(vhost, safe='')}/{quote(pattern, safe='')}", body)


def clear_policy(cluster: Cluster, pattern: str, node: int = 1) -> None:
    """Take it away."""
    api(cluster, node, "DELETE", f"/policies/%2F/{quote(pattern, safe='')}")


def queue_row(cluster: Cluster, node: int, queue: str, vhost: str = "/") -> dict[str, Any]:
    """A queue in the words of the API."""
    row: dict[str, Any] = api(
        cluster, node, "GET", f"/queues/{quote(vhost, safe='')}/{quote(queue, safe='')}"
    )
    return row


class Ring:
    """Who has what of a queue, at one moment."""

    def __init__(self, shown: dict[str, Any]) -> None:
        self.shown = shown
        self.master: str | None = shown["master"]
        self.replicas: list[str] = [row["node"] for row in shown["replicas"]]
        self.synchronised: list[str] = [
            row["node"] for row in shown["replicas"] if row["synchronised"]
        ]

    def __repr__(self) -> str:
        return json.dumps(self.shown)


def ring_of(cluster: Cluster, queue: str, vhost: str = "/") -> Ring | None:
    """The ring of a queue, as the first node that answers shows it; None: nobody does."""
    path = f"/queues/{quote(vhost, safe='')}/{quote(queue, safe='')}/mirrors"
    for node in cluster.running:
        with contextlib.suppress(OSError, Refused):
            return Ring(api(cluster, node, "GET", path))
    return None


def await_ring(
    cluster: Cluster,
    queue: str,
    *,
    master: int | None = None,
    replicas: Sequence[int] | None = None,
    synchronised: Sequence[int] | None = None,
    within_s: float = RING_S,
    vhost: str = "/",
) -> Ring:
    """Until the ring of a queue is as wanted; numbers are those of nodes."""

    def is_so(ring: Ring) -> bool:
        def are(names: list[str], wanted: Sequence[int] | None) -> bool:
            return wanted is None or set(names) == {cluster.nodes[n - 1] for n in wanted}

        return (
            (master is None or ring.master == cluster.nodes[master - 1])
            and are(ring.replicas, replicas)
            and are(ring.synchronised, synchronised)
        )

    wanted = f"master {master}, replicas {replicas}, synchronised {synchronised}"
    return await_that(cluster, queue, is_so, wanted, within_s, vhost)


def await_that(
    cluster: Cluster,
    queue: str,
    is_so: Callable[[Ring], bool],
    wanted: str,
    within_s: float = RING_S,
    vhost: str = "/",
) -> Ring:
    """Until something is true of the ring of a queue."""
    until_s = time.monotonic() + within_s
    while True:
        ring = ring_of(cluster, queue, vhost)
        if ring is not None and is_so(ring):
            return ring
        assert time.monotonic() < until_s, f"{queue}: wanted {wanted}; it is {ring!r}"
        time.sleep(0.05)


def make_master(cluster: Cluster, queue: str, node: int, within_s: float = RING_S) -> None:
    """Have a synchronised replica be the master of a queue."""
    name, until_s = cluster.nodes[node - 1], time.monotonic() + within_s
    path = f"/queues/%2F/{quote(queue, safe='')}/actions"
    while (ring := ring_of(cluster, queue)) is None or ring.master != name:
        assert time.monotonic() < until_s, f"{name} does not become master of {queue}: {ring!r}"
        # Refused while another change is under way.
        with contextlib.suppress(OSError, Refused):
            api(cluster, node, "POST", path, {"action": "transfer_leader", "node": name})
        time.sleep(0.1)


class RingsGoOn:
    """Whether all mirrored queues are well, by one question to a node for all of them."""

    def __init__(self, cluster: Cluster, prefix: str = "ha.") -> None:
        self._cluster = cluster
        self._prefix = prefix

    def wait_synchronised(self, within_s: float = 30.0) -> None:
        """Until all replicas that are wanted have everything. Raises TimeoutError."""
        self._wait(self._lags, within_s)

    def wait_without(self, node: int, within_s: float = 15.0) -> None:
        """Until other nodes are master of all queues, and so have all. Raises TimeoutError."""
        gone = self._cluster.nodes[node - 1]
        self._wait(lambda row: row["node"] == gone or row["state"] != "running", within_s)

    @staticmethod
    def _lags(row: dict[str, Any]) -> bool:
        return not set(row["recoverable_slaves"]) <= set(row["synchronised_slave_nodes"])

    def _wait(self, is_wrong: Callable[[dict[str, Any]], bool], within_s: float) -> None:
        until_s, wrong = time.monotonic() + within_s, ["nobody answers"]
        while time.monotonic() < until_s:
            rows = self._rows()
            if rows is not None:
                wrong = [row["name"] for row in rows if is_wrong(row)]
                if not wrong:
                    return
            time.sleep(0.1)
        raise TimeoutError(f"{len(wrong)} queues, as {wrong[:3]}")

    def _rows(self) -> list[dict[str, Any]] | None:
        """All mirrored queues; None while nobody can tell."""
        for node in self._cluster.running:
            with contextlib.suppress(OSError, Refused):
                rows = api(self._cluster, node, "GET", "/queues/%2F")
                return [
                    row
                    for row in rows
                    if row["name"].startswith(self._prefix) and row.get("recoverable_slaves")
                ]
        return None
