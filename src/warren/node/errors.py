"""Why a node does not start, in words for the person who started it."""

from __future__ import annotations

import errno

from warren.config.settings import Endpoint


class StartError(Exception):
    """The node cannot start; the text says why and what to do."""


def listen_error(endpoint: Endpoint, error: OSError) -> StartError:
    """The reason why an address cannot be listened on."""
    where = f"port {endpoint.port}" + (f" on {endpoint.host}" if endpoint.host else "")
    if error.errno == errno.EADDRINUSE:
        return StartError(
            f"{where} is taken by another program, perhaps another broker.\n"
            f"Find it with: ss -ltnp 'sport = :{endpoint.port}'\n"
            "Stop it, or choose another port: warren dev --port 0 takes a free one, "
            "warren serve obeys listeners.tcp.default."
        )
    if error.errno == errno.EACCES:
        return StartError(f"{where} needs rights this user does not have; take one above 1023.")
    return StartError(f"cannot listen on {where}: {error.strerror or error}")


def damaged_text(node: str, error: Exception) -> str:
    """What to do about a log of the agreement that does not hold what was saved."""
    return (
        f"the log of the agreement: {error}.\n"
        "Nothing of it is used and nothing is changed: a node that has forgotten what it agreed to "
        "could undo what the others rely on.\n"
        f"Have the others forget the node (warrenctl forget_cluster_node {node}), move its data "
        "directory away, start it and have it join anew (warrenctl stop_app, force_reset, "
        "join_cluster, start_app). Mirrored queues come from the others; what was on this node "
        "only stays behind in the directory. An older copy of it must not be put back."
    )


class RefusedError(StartError):
    """The cluster does not take this node."""
