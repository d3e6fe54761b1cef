"""Mirrored queues: what their rings look like, and what an operator may do to them."""

from __future__ import annotations

from warren.management.across import at_home, proxied
from warren.management.call import Answer, Call, Reply, Route, field_of
from warren.management.errors import ApiError, bad_request
from warren.management.mirror_links import check_new_link, check_old_link
from warren.management.mirrors import (
    is_sync_critical,
    position_of,
    show_ring,
    view_of,
)
from warren.management.pace import Pace
from warren.management.routes_node import OK, failed
from warren.management.transferring import transfer

#: So many queues are named when a check fails.
NAMED_MAX = 100
#: ... and when it is asked which lack mirrors.
LACKING_SHOWN_MAX = 20


async def get_mirrors(call: Call) -> Answer:
    """The ring of a queue: master, mirrors in order, how far each of them is, and what if."""
    queue = call.queue()
    if queue.is_remote and queue.absence is None and not call.is_from_peer:
        try:
            return await proxied(call, queue.home)
        except ApiError as error:
            if error.status != 503:
                raise
            # The master does not answer: what all nodes know is better than nothing.
    return show_ring(call.context.engine, queue, _is_outvoted(call))


def _is_outvoted(call: Call) -> bool:
    """Whether this node has no part in a majority."""
    control = call.context.cluster_control()
    agreement = None if control is None else control.status().agreement
    return agreement is not None and not agreement.is_ready


async def get_position(call: Call) -> Answer:
    """How far the replica on this node is."""
    told = position_of(call.context.engine, call.queue())
    return {"epoch": told.epoch, "last": told.last}


@at_home
async def queue_action(call: Call) -> Answer:
    """Synchronise the mirrors of a queue, stop that, or have another replica be the master."""
    queue, body = call.queue(), await call.body()
    action, mirrors = body.get("action"), call.context.engine.mirrors
    if action not in {"sync", "cancel_sync", "transfer_leader"}:
        raise bad_request(f"unknown action '{action}'")
    if mirrors is None or view_of(call.context.engine, queue) is None:
        raise bad_request("not_mirrored")
    if action == "transfer_leader":
        node = field_of(body, "node", str)
        await transfer(call.context, queue, node)
    elif action == "sync":
        if queue.effective.ha_sync_strategy == "event":
            raise bad_request(
                "ha-sync-strategy is event: nothing is copied, mirrors have what comes from now on"
            )
        call.context.act(lambda: mirrors.sync(queue))
    elif not call.context.act(lambda: mirrors.cancel_sync(queue)):
        raise bad_request("not_syncing")
    return None


async def add_mirror(call: Call) -> Answer:
    """Have a mirror of a queue on a node, whatever its policy; answered when all nodes know it."""
    context, queue, node = call.context, call.queue(), call.path["node"]
    check_new_link(context, queue, node)
    where = (queue.vhost.name, queue.name, node)
    await context.agree(lambda: context.engine.add_mirror_link(*where))
    return Reply(201)


async def remove_mirror(call: Call) -> Answer:
    """Leave it to the policy of a queue again whether a node has a mirror."""
    context, queue, node = call.context, call.queue(), call.path["node"]
    check_old_link(context.engine, queue, node)
    where = (queue.vhost.name, queue.name, node)
    await context.agree(lambda: context.engine.remove_mirror_link(*where))
    return None


async def check_sync_critical(call: Call) -> Answer:
    """Whether mirrored queues of this node have no other synchronised replica."""
    engine, pace = call.context.engine, Pace()
    found = []
    for vhost in list(engine.vhosts.values()):
        for queue in list(vhost.queues.values()):
            if is_sync_critical(engine, queue):
                found.append(queue)
            await pace.rest()
    if not found:
        return OK
    return failed(
        "There are classic mirrored queues without online synchronised mirrors",
        queues=[
            {
                "name": queue.name,
                "vhost": queue.vhost.name,
                "readable_name": f"queue '{queue.name}' in vhost '{queue.vhost.name}'",
                "type": "classic",
            }
            for queue in found[:NAMED_MAX]
        ],
        count=len(found),
    )


async def count_mirrored(call: Call) -> Answer:
    """How many mirrored queues there are, and which of them lack replicas or have no master."""
    views, pace = call.context.engine.views, Pace()
    lacking: list[dict[str, str]] = []
    mirrored = down = behind = 0
    for vhost in call.visible_vhosts():
        for queue in list(vhost.queues.values()):
            await pace.rest()
            view = views.get(queue.number)
            if view is None or len(view.wanted) < 2:
                continue
            mirrored += 1
            is_down = view.master is None
            is_behind = not set(view.wanted) <= set(view.in_sync)
            down, behind = down + is_down, behind + (is_behind and not is_down)
            if (is_down or is_behind) and len(lacking) < LACKING_SHOWN_MAX:
                state = "down" if is_down else "behind"
                lacking.append({"vhost": vhost.name, "name": queue.name, "state": state})
    return {"mirrored": mirrored, "behind": behind, "down": down, "examples": lacking}


ROUTES = (
    Route("GET", "/warren/mirrors", "user", count_mirrored),
    Route("GET", "/queues/{vhost}/{name}/mirrors", "vhost", get_mirrors),
    Route("PUT", "/queues/{vhost}/{name}/mirrors/{node}", "policymaker", add_mirror),
    Route("DELETE", "/queues/{vhost}/{name}/mirrors/{node}", "policymaker", remove_mirror),
    Route("POST", "/queues/{vhost}/{name}/actions", "policymaker", queue_action),
    Route("GET", "/health/checks/node-is-mirror-sync-critical", "user", check_sync_critical),
)
#: For other nodes of the cluster only.
PEER_ROUTES = (Route("GET", "/queues/{vhost}/{name}/mirrors/position", "vhost", get_position),)
