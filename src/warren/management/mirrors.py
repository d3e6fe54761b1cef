"""The ring of a mirrored queue as operators see it.

Who is in it is agreed on, so every node can tell; how far each replica is, only the master knows
(`engine.mirrors.describe`). What is not known is null.
"""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Any

import msgspec

from warren.engine.mirror_links import links_of
from warren.management.forks import explain_forks

if TYPE_CHECKING:
    from warren.cluster.metadata import View
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine

Shown = dict[str, Any]

TRANSIENT = "since it is not durable"


class Position(msgspec.Struct):
    """How far one replica is: the epoch of its last operation, and the number of that."""

    epoch: int = -1
    last: int = -1


def view_of(engine: Engine, queue: AmqpQueue) -> View | None:
    """Who holds the queue; None: it is on its home alone and was never mirrored."""
    view: View | None = engine.views.get(queue.number)
    return view


def described(engine: Engine, queue: AmqpQueue) -> Shown:
    """What this node's own replica of a queue has to say."""
    if engine.mirrors is None or queue.number not in engine.views:
        return {}
    told: Shown | None = engine.mirrors.describe(queue)
    return told or {}


def position_of(engine: Engine, queue: AmqpQueue) -> Position:
    """How far this node's own replica is."""
    told = described(engine, queue)
    # Of the operation where that is told, else of the view.
    numbers = [told.get(name) for name in ("last_epoch", "epoch", "last")]
    operation, view, last = (it if isinstance(it, int) else -1 for it in numbers)
    return Position(operation if operation >= 0 else view, last)


def living(engine: Engine) -> frozenset[str]:
    """The nodes that count as alive."""
    if engine.cluster is None:
        return frozenset((engine.settings.node_name,))
    return frozenset(engine.cluster.living_nodes())


def _linked(engine: Engine) -> frozenset[str]:
    if engine.cluster is None:
        return living(engine)
    return frozenset(engine.cluster.linked_nodes())


# -- in lists of queues ----------------------------------------------------------------------------


def mirror_fields(engine: Engine, queue: AmqpQueue) -> Shown:
    """What a queue's row says of its mirrors, under RabbitMQ's old names and the new ones."""
    view = view_of(engine, queue)
    if view is None:
        return {"recoverable_slaves": None}
    mirrors = _mirrors(view)
    in_sync = [name for name in mirrors if name in view.in_sync]
    replicas = dict.fromkeys((*view.in_sync, *view.wanted))
    shown: Shown = {
        "slave_nodes": mirrors,
        "synchronised_slave_nodes": in_sync,
        "mirror_nodes": mirrors,
        "synchronised_mirror_nodes": in_sync,
        "recoverable_slaves": [name for name in replicas if name != view.master],
        "explicit_mirror_nodes": list(links_of(queue)),
    }
    copies = _copies(view, described(engine, queue)).values()
    if copies:
        shown["sync_messages"] = sum(copy["done"] for copy in copies)
    return shown


def _mirrors(view: View) -> list[str]:
    """All that are there besides the master, in the order of the ring."""
    alive = view.in_sync if view.master is not None else ()
    return [name for name in (*alive, *view.learners) if name != view.master]


def _copies(view: View, told: Shown) -> dict[str, Shown]:
    """By learner, how far the copy that it gets has come."""
    syncs: dict[str, Shown] = told.get("syncs", {})
    return {name: syncs[name] for name in view.learners if name in syncs}


def is_sync_critical(engine: Engine, queue: AmqpQueue) -> bool:
    """Whether stopping this node would take the last good copy of a queue that has mirrors.

    One on a node that cannot be reached at present is none: it may be down, which is not known yet
    or, without a majority, cannot be agreed on.
    """
    view, here = view_of(engine, queue), engine.settings.node_name
    if view is None or here not in view.in_sync or len(view.wanted) < 2:
        return False
    linked = _linked(engine)
    return not any(name in linked for name in view.in_sync if name != here)


# -- one ring --------------------------------------------------------------------------------------


def show_ring(engine: Engine, queue: AmqpQueue, is_outvoted: bool = False) -> Shown:
    """The ring of a queue; the figures are there where its master is.

    `is_outvoted`: this node has no part in a majority, so what it knows may be so no more.
    """
    view = view_of(engine, queue)
    told = described(engine, queue)
    shown: Shown = {"name": queue.name, "vhost": queue.vhost.name}
    online = _linked(engine) if is_outvoted else living(engine)
    if view is None:
        return shown | _alone(engine, queue)
    return shown | {
        "epoch": view.epoch,
        "state": _state(view),
        "master": view.master,
        "wanted": list(view.wanted),
        "min_in_sync": queue.effective.ha_min_in_sync,
        "commit": told.get("commit"),
        "last": told.get("last"),
        **_show_promises(queue, told),
        "replicas": [
            {
                **_show_replica(view, name, online, told, engine.clock.now_ms()),
                "explicit": name in links_of(queue),
            }
            for name in _in_order(view)
        ],
        "explain": [
            *explain_forks(engine, queue),
            *(
                _explain_outvoted(engine, view, queue)
                if is_outvoted
                else explain(view, queue, told)
            ),
        ],
    }


def _explain_outvoted(engine: Engine, view: View, queue: AmqpQueue) -> list[str]:
    """What holds for sure where nothing can be agreed on."""
    here = engine.settings.node_name
    cut_off = [name for name in view.wanted if name not in _linked(engine)]
    if explain_forks(engine, queue):
        so = ""
    elif view.master is not None and not set(view.in_sync) & set(cut_off):
        so = ": its master goes on, but nobody would be promoted in its place"
    else:
        so = ": nothing is confirmed and nobody is promoted"
    return [
        f"{here} has no part in a majority{so}; start the other nodes, or mend the network "
        "(warrenctl cluster_status)",
        f"when that was agreed on last, {view.master or 'nobody'} was master, and "
        f"{_names(view.in_sync) or 'nobody'} had everything"
        + (f"; {_names(cut_off)} cannot be reached" if cut_off else ""),
    ]


def _show_promises(queue: AmqpQueue, told: Shown) -> Shown:
    """What publishers were told of that the mirrors may not have, and how much that may be."""
    effective = queue.effective
    is_async = effective.ha_replication == "async"
    return {
        "replication": effective.ha_replication,
        "replication_window": effective.ha_replication_window,
        "unreplicated_confirms": told.get("promised") if is_async else 0,
        "unreplicated_confirms_max": effective.ha_max_lag_messages if is_async else 0,
    }


def _alone(engine: Engine, queue: AmqpQueue) -> Shown:
    """A queue that was never mirrored."""
    home = queue.home or engine.settings.node_name
    is_there = queue.absence is None
    return {
        "epoch": 0,
        "state": "running" if is_there else "down",
        "master": home if is_there else None,
        "wanted": [home],
        "min_in_sync": 1,
        "commit": None,
        "last": None,
        **_show_promises(queue, {"promised": 0}),
        "replicas": [
            {
                "node": home,
                "role": "master",
                "synchronised": True,
                "online": is_there,
                "position": None,
                "applied": None,
                "lacks_messages": 0,
                "lag_messages": 0,
                "lag_bytes": 0,
                "lag_seconds": 0,
                "since": None,
                "sync": None,
                "explicit": False,
            }
        ],
        "explain": [
            *_explain_forbidden(queue),
            *_explain_by_itself(engine, queue),
            f"it has no mirrors: if {home} dies now, {_end_alone(queue, home)}"
            if is_there
            else f"it has no mirrors: it is down until {home} is back; start it, or, if it is lost "
            f"for good, warrenctl forget_cluster_node {home}: the queue goes with it",
        ],
    }


def _end_alone(queue: AmqpQueue, home: str) -> str:
    declaration = queue.declaration
    if declaration.exclusive:
        return "it is gone, as every exclusive queue"
    return f"it is down until {home} is back" if declaration.durable else f"it is gone, {TRANSIENT}"


def _explain_forbidden(queue: AmqpQueue) -> list[str]:
    effective = queue.effective
    if effective.ha_replicate or "ha-mode" not in effective.mirroring:
        return []
    return ["a policy wants mirrors, and ha-replicate forbids them"]


def _explain_by_itself(engine: Engine, queue: AmqpQueue) -> list[str]:
    """A first try's surprise: a policy without effect, since there is nobody to mirror to."""
    if engine.cluster is not None and engine.mirrors is not None:
        return []
    if "ha-mode" not in queue.effective.mirroring or not queue.effective.ha_replicate:
        return []
    return [
        "a policy wants mirrors, and this node is in no cluster whose nodes have data directories: "
        "for a try-out, warren cluster up"
    ]


def _state(view: View) -> str:
    """`no master`: there are replicas, but none that has everything."""
    if view.master is not None:
        return "running"
    return "no master" if view.learners else "down"


def _in_order(view: View) -> list[str]:
    first = (view.master,) if view.master is not None else ()
    return list(dict.fromkeys((*first, *view.in_sync, *view.learners, *view.wanted)))


def _show_replica(view: View, name: str, alive: frozenset[str], told: Shown, now_ms: int) -> Shown:
    is_master = name == view.master
    is_in_sync = name in view.in_sync
    role = "master" if is_master else "mirror" if is_in_sync else "learner"
    position, last = told.get("positions", {}).get(name), told.get("last")
    lag: int | None = 0 if is_master else None
    lag_bytes, lag_ms = lag, lag
    if position is not None and last is not None:
        lag = max(0, last - position)
        lag_bytes, lag_ms = (0, 0) if lag == 0 else told.get("lags", {}).get(name, (None, None))
    copy = _copies(view, told).get(name)
    commit, since_ms = told.get("commit"), told.get("since", {}).get(name)
    return {
        "node": name,
        "role": role,
        "synchronised": is_in_sync,
        "online": name in alive,
        "position": position,
        "applied": None if position is None or commit is None else min(position, commit),
        # What only a copy can bring, or its end: of what comes there are operations, below.
        "lacks_messages": 0 if is_in_sync else told.get("lacks", {}).get(name),
        "lag_messages": lag,
        "lag_bytes": lag_bytes,
        "lag_seconds": None if lag_ms is None else lag_ms / 1000,
        "since": None if since_ms is None else int(time.time() * 1000) - (now_ms - since_ms),
        "sync": None if copy is None else _show_copy(copy, now_ms),
    }


def _show_copy(copy: Shown, now_ms: int) -> Shown:
    """Speeds are those since the copy began."""
    passed_s = max(1, now_ms - copy["since_ms"]) / 1000
    done, total = copy["done"], copy["total"]
    speed = done / passed_s
    return {
        "done": done,
        "total": total,
        "bytes_done": copy["bytes_done"],
        "messages_per_second": round(speed, 1),
        "bytes_per_second": round(copy["bytes_done"] / passed_s, 1),
        "eta_seconds": round((total - done) / speed, 1) if speed and total >= done else None,
    }


def explain(view: View, queue: AmqpQueue, told: Shown | None = None) -> list[str]:
    """What would follow from the loss of each replica, and what holds the queue up now."""
    told = told or {}
    if view.master is None:
        return [*_explain_down(view, queue), *_explain_links(queue)]
    said = _explain_shortage(view, queue)
    others = [name for name in view.in_sync if name != view.master]
    if others:
        said.append(
            f"if {view.master} dies now: {others[0]} becomes master, {_loss(view, queue, told)}"
            + _explain_held(told)
        )
    else:
        said.append(_explain_last(view, queue, told))
    for name in others:
        left = [other for other in others if other != name]
        rest = (
            f"{_names(left)} still has everything"
            if len(left) == 1
            else (
                f"{_names(left)} still have everything"
                if left
                else "no other node has everything then"
            )
        )
        said.append(f"if {name} dies now: {view.master} goes on, {rest}")
    said += [_explain_learner(view, name, queue, told) for name in view.learners]
    absent = [name for name in view.wanted if name not in (*view.in_sync, *view.learners)]
    said += [
        f"{name} is wanted, and down or cut off: start it, mend the network, or, if it is lost for "
        f"good, warrenctl forget_cluster_node {name}"
        for name in absent
    ]
    leaving = [
        name for name in view.in_sync if name not in view.wanted or _stays(view, name, queue)
    ]
    said += [f"{name} goes as soon as a wanted replica is synchronised" for name in leaving]
    return said + _explain_hours(view, queue) + _explain_links(queue)


def _stays(view: View, name: str, queue: AmqpQueue) -> bool:
    """Whether it is wanted only until one of those has everything that the policy names."""
    named = queue.effective.ha_params
    if queue.effective.ha_mode != "nodes" or not isinstance(named, tuple) or name in named:
        return False
    return name not in links_of(queue) and any(other in view.wanted for other in named)


def _explain_learner(view: View, name: str, queue: AmqpQueue, told: Shown) -> str:
    """One that is no use yet, and what makes it one."""
    copy, lacks = _copies(view, told).get(name), told.get("lacks", {}).get(name)
    if copy is not None:
        how = f"yet: {copy['done']:,} of {copy['total']:,} messages are copied"
    elif queue.effective.ha_sync_strategy == "event":
        how = (
            "before those are consumed, or another ha-sync-strategy than event is in the policy "
            "(warrenctl set_policy)"
        )
    elif queue.effective.ha_sync_mode == "automatic":
        is_timed = queue.effective.ha_replication_window is not None
        how = f"yet: it is given them by itself{', in its hours' if is_timed else ''}"
    else:
        how = f"before it has them: {command_on(queue, 'sync_queue')}"
    return f"{name} lacks {_counted(lacks)}: it cannot take over {how}"


def _counted(messages: int | None) -> str:
    if not messages:
        return "messages"
    return "1 message" if messages == 1 else f"{messages:,} messages"


def command_on(queue: AmqpQueue, name: str, *words: str) -> str:
    """A command about a queue, as it is to be typed."""
    vhost = () if queue.vhost.name == "/" else ("-p", queue.vhost.name)
    return shlex.join(("warrenctl", *vhost, name, queue.name, *words))


def _loss(view: View, queue: AmqpQueue, told: Shown) -> str:
    if queue.effective.ha_replication != "async":
        return "nothing is lost"
    now = f" ({told['promised']} at this moment)" if "promised" in told else ""
    return (
        f"and up to {queue.effective.ha_max_lag_messages} of the last messages that were "
        f"confirmed{now} are missing until {view.master} is back, which publishes them again "
        "(ha-replication is async)"
    )


def _explain_hours(view: View, queue: AmqpQueue) -> list[str]:
    hours = queue.effective.ha_replication_window
    if hours is None:
        return []
    if len(view.in_sync) > 1:
        return [f"it is copied from {hours.replace('-', ' to ')} only (ha-replication-window)"]
    return [
        f"it is not protected: it is copied from {hours.replace('-', ' to ')} only "
        "(ha-replication-window)"
    ]


def _explain_links(queue: AmqpQueue) -> list[str]:
    return [
        f"{name} has a replica because an operator wants it, whatever the policy is; to end that: "
        + command_on(queue, "remove_queue_mirror_link", name)
        for name in links_of(queue)
    ]


def _explain_shortage(view: View, queue: AmqpQueue) -> list[str]:
    least = queue.effective.ha_min_in_sync
    if len(view.in_sync) >= least:
        return []
    return [
        f"{len(view.in_sync)} synchronised where ha-min-in-sync wants {least}: nothing is "
        "confirmed until there are more"
    ]


def _explain_held(told: Shown) -> str:
    held = told.get("held", 0)
    if not held:
        return ""
    whose = "1 message that a consumer holds comes" if held == 1 else ""
    return f"; {whose or f'{held:,} messages that consumers hold come'} again, redelivered"


def _explain_last(view: View, queue: AmqpQueue, told: Shown) -> str:
    master = view.master
    if not queue.declaration.durable:
        return f"if {master} dies now: it is gone, {TRANSIENT} and no other has everything"
    if view.learners and queue.effective.ha_promote_on_failure == "always":
        return (
            f"if {master} dies now: one of {_names(view.learners)} becomes master after a while, "
            f"and what it lacks is lost (ha-promote-on-failure is always){_lacking(view, told)}"
        )
    return f"if {master} dies now: it is down until {master} is back; no other has everything"


def _lacking(view: View, told: Shown) -> str:
    """How much the best of those lacks that may be promoted."""
    positions, last = told.get("positions", {}), told.get("last")
    lacks: dict[str, int] = {}
    for name in view.learners:
        if last is not None and positions.get(name):
            lacks[name] = max(0, last - positions[name]) + told.get("lacks", {}).get(name, 0)
    if not lacks:
        return ""
    best = min(lacks, key=lambda name: lacks[name])
    if not lacks[best]:
        return ""
    return f"; {best} lacks the least, {lacks[best]:,} operations and messages of its copy"


def _explain_down(view: View, queue: AmqpQueue) -> list[str]:
    said = [f"it is down until one of these is back: {_names(view.in_sync) or 'nobody is left'}"]
    if view.in_sync:
        said[0] += "; start it" if len(view.in_sync) == 1 else "; start any of them"
    if view.learners:
        said.append(f"{_names(view.learners)} may lack messages")
        if queue.effective.ha_promote_on_failure == "always":
            said.append("the policy wants one of them promoted all the same, which happens soon")
        else:
            said.append(
                "if none of those comes back, to go on without what they alone have: "
                "ha-promote-on-failure always, in the policy (warrenctl set_policy)"
            )
    return said


def _names(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names)
