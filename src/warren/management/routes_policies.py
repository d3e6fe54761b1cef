"""Routes of policies, parameters and the import of definitions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from warren.engine.vhost import VHost
from warren.management.call import Answer, Call, Reply, Route, field_of
from warren.management.context import ended
from warren.management.definitions import Import, read_definitions
from warren.management.errors import bad_request, not_found
from warren.management.listing import answer_list
from warren.management.pace import SLICE_S, Pace
from warren.management.routes_access import CREATED, NO_CONTENT
from warren.management.routes_cluster import rename_cluster
from warren.management.routes_objects import answer_one
from warren.management.show_topology import global_parameters, parameters, show_policy
from warren.model.errand import Errand
from warren.model.policy import Policy
from warren.shovel.settings import BadShovel, parse_shovel
from warren.shovel.supervisor import COMPONENT

#: Components whose parameters are kept; nothing obeys those of federation, but another broker that
#: the definitions are taken to may.
KEPT_COMPONENTS = ("shovel", "federation-upstream", "federation-upstream-set")
#: Nothing is waited for: others only get their turn.
NO_ERRAND = Errand()


# -- policies --------------------------------------------------------------------------------------


def _is_operator(call: Call) -> bool:
    return "/operator-policies" in call.request.path


def _table(call: Call, vhost: VHost) -> dict[str, Policy]:
    return vhost.operator_policies if _is_operator(call) else vhost.policies


async def list_policies(call: Call) -> Answer:
    """The policies of all virtual hosts, or of one."""
    found = [policy for vhost in call.visible_vhosts() for policy in _table(call, vhost).values()]
    return await answer_list(call, found, show_policy, lambda policy: policy.name)


async def get_policy(call: Call) -> Answer:
    """One policy."""
    policy = _table(call, call.vhost).get(call.path["name"])
    if policy is None:
        raise not_found()
    return await answer_one(call, show_policy(policy))


async def put_policy(call: Call) -> Answer:
    """Set or replace a policy."""
    body, vhost = await call.body(), call.vhost
    operator = _is_operator(call)
    policy = Policy(
        vhost.name,
        call.path["name"],
        field_of(body, "pattern", str),
        field_of(body, "definition", dict),
        field_of(body, "priority", int, 0),
        field_of(body, "apply-to", str, "queues" if operator else "all"),
    )
    existed = policy.name in _table(call, vhost)
    await call.context.agree(lambda: call.context.engine.set_policy(policy, operator=operator))
    return Reply(NO_CONTENT if existed else CREATED)


async def delete_policy(call: Call) -> Answer:
    """Remove a policy."""
    name, vhost, operator = call.path["name"], call.vhost.name, _is_operator(call)
    if name not in _table(call, call.vhost):
        raise not_found()
    await call.context.agree(lambda: call.context.engine.clear_policy(vhost, name, operator))
    return None


# -- parameters ------------------------------------------------------------------------------------


def _found_parameters(call: Call) -> list[dict[str, Any]]:
    vhost, component = call.path.get("vhost"), call.path.get("component")
    if vhost is not None:
        call.context.vhost(vhost)
    return [
        row
        for row in parameters(call.context, vhost)
        if component in {None, row["component"]} and call.caller.sees_vhost(row["vhost"])
    ]


async def list_parameters(call: Call) -> Answer:
    """Runtime parameters: all, or those of a component or in a virtual host."""
    return await answer_list(call, _found_parameters(call), lambda row: row)


async def get_parameter(call: Call) -> Answer:
    """One runtime parameter."""
    for row in _found_parameters(call):
        if row["name"] == call.path["name"]:
            return await answer_one(call, row)
    raise not_found()


def _check_shovel(value: Any) -> None:
    """Raises 400; addresses in the text are without their passwords."""
    try:
        parse_shovel(value)
    except BadShovel as error:
        raise bad_request(f"Validation failed\n\n{error}\n") from None


async def put_parameter(call: Call) -> Answer:
    """Set a runtime parameter."""
    body, vhost = await call.body(), call.vhost.name
    component, name = call.path["component"], call.path["name"]
    value = field_of(body, "value", object)
    engine = call.context.engine
    existed = any(row["name"] == name for row in _found_parameters(call))
    if component == "vhost-limits":
        call.caller.check_administrator()
        limits = field_of(body, "value", dict)
        await call.context.agree(lambda: engine.directory.set_vhost_limits(vhost, limits))
    elif component == "operator_policy":
        call.caller.check_administrator()
        given = field_of(body, "value", dict)
        policy = Policy(
            vhost,
            name,
            field_of(given, "pattern", str),
            field_of(given, "definition", dict),
            field_of(given, "priority", int, 0),
            field_of(given, "apply-to", str, "queues"),
        )
        await call.context.agree(lambda: engine.set_policy(policy, operator=True))
    elif component in KEPT_COMPONENTS:
        if not isinstance(value, dict | list):
            raise bad_request("Validation failed\n\nvalue must be an object\n")
        if component == COMPONENT:
            _check_shovel(value)
        await call.context.agree(lambda: engine.set_parameter(vhost, component, name, value))
    else:
        raise bad_request(f"Validation failed\n\ncomponent {component} not found\n")
    return Reply(NO_CONTENT if existed else CREATED)


async def delete_parameter(call: Call) -> Answer:
    """Clear a runtime parameter."""
    vhost, engine = call.vhost.name, call.context.engine
    component, name = call.path["component"], call.path["name"]
    if component == "vhost-limits":
        await call.context.agree(lambda: engine.directory.set_vhost_limits(vhost, {}))
    elif component == "operator_policy":
        if name not in call.vhost.operator_policies:
            raise not_found()
        await call.context.agree(lambda: engine.clear_policy(vhost, name, True))
    elif (vhost, component, name) not in engine.parameters:
        raise not_found()
    else:
        await call.context.agree(lambda: engine.clear_parameter(vhost, component, name))
    return None


async def list_global_parameters(call: Call) -> Answer:
    """The settings of the whole cluster."""
    return await answer_list(call, global_parameters(call.context), lambda row: row)


async def get_global_parameter(call: Call) -> Answer:
    """One setting of the whole cluster."""
    for row in global_parameters(call.context):
        if row["name"] == call.path["name"]:
            return await answer_one(call, row)
    raise not_found()


async def put_global_parameter(call: Call) -> Answer:
    """Set something for the whole cluster."""
    name, engine = call.path["name"], call.context.engine
    value = field_of(await call.body(), "value", object)
    existed = any(row["name"] == name for row in global_parameters(call.context))
    if name == "cluster_name":
        if not isinstance(value, str):
            raise bad_request("cluster_name must be a string")
        await rename_cluster(call, value)
    else:
        await call.context.agree(lambda: engine.set_global_parameter(name, value))
    return Reply(NO_CONTENT if existed else CREATED)


async def delete_global_parameter(call: Call) -> Answer:
    """Clear a setting of the whole cluster."""
    name, engine = call.path["name"], call.context.engine
    if name not in engine.global_parameters:
        raise not_found()
    await call.context.agree(lambda: engine.clear_global_parameter(name))
    return None


# -- definitions -----------------------------------------------------------------------------------


async def post_definitions(call: Call) -> Answer:
    """Import definitions: what is there stays or is overwritten, nothing is deleted."""
    vhost = call.vhost.name if "vhost" in call.path else None
    definitions = read_definitions(await _document(call))
    if vhost is not None:
        # A file of one virtual host cannot make users, nor reach into other virtual hosts.
        definitions.users, definitions.vhosts = [], []
        definitions.permissions, definitions.topic_permissions = [], []
        definitions.global_parameters = []
        for rows in (
            definitions.parameters,
            definitions.policies,
            definitions.queues,
            definitions.exchanges,
            definitions.bindings,
        ):
            for row in rows:
                row.vhost = vhost
    work = Import(call.context.engine, vhost)
    steps = work.steps(definitions)
    pace = Pace()
    while (errand := call.context.act(lambda: _some(steps))) is not None:
        await (pace.rest() if errand is NO_ERRAND else ended(errand))
    call.context.act(work.finish)
    return None


def _some(steps: Iterator[Errand | None]) -> Errand | None:
    """A slice of an import: the errand that it waits for; None when it is over."""
    until_s = time.perf_counter() + SLICE_S
    for errand in steps:
        if errand is not None and not errand.is_done:
            return errand
        if time.perf_counter() >= until_s:
            return NO_ERRAND
    return None


async def _document(call: Call) -> bytes:
    """The body, or the file in a form, as a browser sends it."""
    if not call.request.content_type.startswith("multipart/"):
        return await call.request.read()
    form = await call.request.post()
    upload = form.get("file")
    if upload is None or isinstance(upload, bytes | str | bytearray):
        return str(upload or "").encode()
    content: bytes = upload.file.read()
    return content


ROUTES = (
    Route("GET", "/policies", "user", list_policies),
    Route("GET", "/policies/{vhost}", "visible", list_policies),
    Route("GET", "/policies/{vhost}/{name}", "visible", get_policy),
    Route("PUT", "/policies/{vhost}/{name}", "policymaker", put_policy),
    Route("DELETE", "/policies/{vhost}/{name}", "policymaker", delete_policy),
    Route("GET", "/operator-policies", "user", list_policies),
    Route("GET", "/operator-policies/{vhost}", "visible", list_policies),
    Route("GET", "/operator-policies/{vhost}/{name}", "visible", get_policy),
    Route("PUT", "/operator-policies/{vhost}/{name}", "administrator", put_policy),
    Route("DELETE", "/operator-policies/{vhost}/{name}", "administrator", delete_policy),
    Route("GET", "/parameters", "policymaker", list_parameters),
    Route("GET", "/parameters/{component}", "policymaker", list_parameters),
    Route("GET", "/parameters/{component}/{vhost}", "policymaker", list_parameters),
    Route("GET", "/parameters/{component}/{vhost}/{name}", "policymaker", get_parameter),
    Route("PUT", "/parameters/{component}/{vhost}/{name}", "policymaker", put_parameter),
    Route("DELETE", "/parameters/{component}/{vhost}/{name}", "policymaker", delete_parameter),
    Route("GET", "/global-parameters", "policymaker", list_global_parameters),
    Route("GET", "/global-parameters/{name}", "policymaker", get_global_parameter),
    Route("PUT", "/global-parameters/{name}", "administrator", put_global_parameter),
    Route("DELETE", "/global-parameters/{name}", "administrator", delete_global_parameter),
    Route("POST", "/definitions", "administrator", post_definitions),
    Route("POST", "/all-configuration", "administrator", post_definitions),
    Route("POST", "/definitions/{vhost}", "administrator", post_definitions),
)
