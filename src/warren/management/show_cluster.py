"""What several nodes show, put together to one."""

from __future__ import annotations

from typing import Any

Shown = dict[str, Any]
#: Parts of an overview that are sums over all nodes.
_SUMS = ("message_stats", "churn_rates", "queue_totals")
#: Objects that each node has some of; the others are the same on all.
_OWN_OBJECTS = ("channels", "connections", "consumers")


def show_absent_node(name: str, drained: bool = False) -> Shown:
    """A node that is down or does not answer."""
    return {
        "name": name,
        "type": "disc",
        "running": False,
        "being_drained": drained,
        "partitions": [],
        "mem_used": 0,
    }


def add_overview(shown: Shown, other: Shown) -> None:
    """Add what another node counts to an overview."""
    for part in _SUMS:
        _add(shown[part], other.get(part, {}))
    for name in _OWN_OBJECTS:
        shown["object_totals"][name] += other.get("object_totals", {}).get(name, 0)
    for part in ("listeners", "contexts"):
        shown[part] = [*shown[part], *other.get(part, [])]


def add_vhost(shown: Shown, other: Shown) -> None:
    """Add what another node counts of a virtual host."""
    shown["cluster_state"] = {**shown["cluster_state"], **other.get("cluster_state", {})}
    _add(shown["message_stats"], other.get("message_stats", {}))
    # What is counted has a rate beside it; all else is the same on all nodes.
    counted = [name for name in shown if f"{name}_details" in shown]
    both = [*counted, *(f"{name}_details" for name in counted)]
    _add(shown, {name: other[name] for name in both if name in other})


def _add(shown: Shown, other: Shown) -> None:
    for name, value in other.items():
        if name.endswith("_details"):
            shown[name] = _details(shown.get(name, {}), value)
        else:
            shown[name] = shown.get(name, 0) + value


def _details(one: Shown, other: Shown) -> Shown:
    """Rates add up; so do samples of the same moment."""
    added = {**one, "rate": one.get("rate", 0) + other.get("rate", 0)}
    for name in ("avg", "avg_rate"):
        if name in one and name in other:
            added[name] = one[name] + other[name]
    if "samples" in one and "samples" in other:
        theirs = {row["timestamp"]: row["sample"] for row in other["samples"]}
        added["samples"] = [
            {**row, "sample": row["sample"] + theirs.get(row["timestamp"], 0)}
            for row in one["samples"]
        ]
    return added
