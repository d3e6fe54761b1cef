"""Routes of users, permissions, virtual hosts and limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote

from warren.auth.directory import DirectoryError
from warren.auth.password import hash_password
from warren.management.across import ask_all, question
from warren.management.call import Answer, Call, Reply, Route, field_of
from warren.management.errors import bad_request, not_found
from warren.management.listing import answer_list
from warren.management.routes_objects import answer_one
from warren.management.sampler import sum_totals
from warren.management.show_access import show_permission, show_topic_permission, show_user
from warren.management.show_cluster import add_vhost
from warren.management.show_topology import show_vhost
from warren.management.spans import spans_of

CREATED, NO_CONTENT = 201, 204


def _words(given: object) -> list[str]:
    """Tags are a list, or a text with commas."""
    if isinstance(given, str):
        given = given.split(",")
    if not isinstance(given, list) or not all(isinstance(word, str) for word in given):
        raise bad_request("tags must be a list or a comma-separated string")
    return [word.strip() for word in given if word.strip()]


# -- users -----------------------------------------------------------------------------------------


def _check_user(call: Call) -> str:
    name = call.path["user"]
    if not call.context.engine.directory.has_user(name):
        raise not_found()
    return name


async def list_users(call: Call) -> Answer:
    """All users."""
    users = call.context.engine.directory.list_users()
    return await answer_list(call, users, show_user, lambda user: user.name)


async def list_users_without_permissions(call: Call) -> Answer:
    """The users that have access to no virtual host."""
    directory = call.context.engine.directory
    users = [user for user in directory.list_users() if not directory.list_permissions(user.name)]
    return await answer_list(call, users, show_user, lambda user: user.name)


async def get_user(call: Call) -> Answer:
    """One user."""
    return await answer_one(call, show_user(call.context.engine.directory.user(_check_user(call))))


async def put_user(call: Call) -> Answer:
    """Make or change a user; without password and hash nobody can log in as it."""
    name, body = call.path["user"], await call.body()
    if "tags" not in body and "administrator" not in body:
        raise bad_request("tags_not_present")
    tags = ["administrator"] if body.get("administrator") is True else _words(body.get("tags", ""))
    directory = call.context.engine.directory
    existed = directory.has_user(name)
    limits = dict(directory.user(name).limits) if existed else {}
    password, hashed = body.get("password"), body.get("password_hash")
    algorithm = field_of(body, "hashing_algorithm", str, directory.hashing_algorithm)
    if password is not None and hashed is not None:
        raise bad_request("Cannot set both password and password_hash, please choose one")
    if password is not None:
        if not isinstance(password, str):
            raise bad_request("password must be a string")
        # The directory judges the password before anything is changed.
        kept, algorithm = directory.hashed(name, password), directory.hashing_algorithm
    else:
        kept = _text(hashed)
    await call.context.agree(lambda: directory.put_user(name, kept, algorithm, tags, limits))
    call.context.act(call.context.engine.permissions_changed)
    return Reply(NO_CONTENT if existed else CREATED)


def _text(hashed: object) -> str:
    if hashed is None:
        return ""
    if not isinstance(hashed, str):
        raise bad_request("password_hash must be a string")
    return hashed


async def _delete_user(call: Call, name: str) -> None:
    engine = call.context.engine
    await call.context.agree(lambda: engine.directory.delete_user(name))
    call.context.act(engine.close_deleted_users)


async def delete_user(call: Call) -> Answer:
    """Delete a user; its connections are closed."""
    await _delete_user(call, _check_user(call))
    return None


async def delete_users(call: Call) -> Answer:
    """Delete several users."""
    directory = call.context.engine.directory
    for name in field_of(await call.body(), "users", list):
        if isinstance(name, str) and directory.has_user(name):
            await _delete_user(call, name)
    return None


async def hash_a_password(call: Call) -> Answer:
    """The form a password is stored in."""
    directory = call.context.engine.directory
    return {"ok": hash_password(call.path["password"], directory.hashing_algorithm)}


# -- permissions -----------------------------------------------------------------------------------


async def list_permissions(call: Call) -> Answer:
    """Permissions: all, or those of a user or in a virtual host."""
    if "user" in call.path:
        _check_user(call)
    if "vhost" in call.path:
        call.context.vhost(call.path["vhost"])
    found = call.context.engine.directory.list_permissions(
        call.path.get("user"), call.path.get("vhost")
    )
    return await answer_list(call, found, show_permission)


async def get_permission(call: Call) -> Answer:
    """What a user may do in a virtual host."""
    call.context.vhost(call.path["vhost"])
    found = call.context.engine.directory.permission(_check_user(call), call.path["vhost"])
    if found is None:
        raise not_found()
    return await answer_one(call, show_permission(found))


async def put_permission(call: Call) -> Answer:
    """Set what a user may do in a virtual host."""
    body, vhost, user = await call.body(), call.path["vhost"], call.path["user"]
    patterns = [field_of(body, name, str) for name in ("configure", "write", "read")]
    engine = call.context.engine
    _known_or_bad(call, vhost, user)
    existed = engine.directory.permission(user, vhost) is not None
    await call.context.agree(lambda: engine.directory.set_permissions(user, vhost, *patterns))
    call.context.act(engine.permissions_changed)
    return Reply(NO_CONTENT if existed else CREATED)


def _known_or_bad(call: Call, vhost: str, user: str) -> None:
    """Permissions for what does not exist are a bad request, not a missing object."""
    if vhost not in call.context.engine.vhosts:
        raise bad_request("vhost_or_user_not_found")
    if not call.context.engine.directory.has_user(user):
        raise bad_request("vhost_or_user_not_found")


async def delete_permission(call: Call) -> Answer:
    """Take a user's access to a virtual host away."""
    await get_permission(call)
    engine = call.context.engine
    await call.context.agree(
        lambda: engine.directory.clear_permissions(call.path["user"], call.path["vhost"])
    )
    call.context.act(engine.permissions_changed)
    return None


async def list_topic_permissions(call: Call) -> Answer:
    """Topic permissions: all, or those of a user or in a virtual host."""
    if "user" in call.path:
        _check_user(call)
    if "vhost" in call.path:
        call.context.vhost(call.path["vhost"])
    found = call.context.engine.directory.list_topic_permissions(
        call.path.get("user"), call.path.get("vhost")
    )
    if {"user", "vhost"} <= set(call.path) and not found:
        raise not_found()
    return await answer_list(call, found, show_topic_permission)


async def put_topic_permission(call: Call) -> Answer:
    """Set which routing keys of a topic exchange a user may use."""
    body, vhost, user = await call.body(), call.path["vhost"], call.path["user"]
    exchange = field_of(body, "exchange", str)
    patterns = [field_of(body, name, str) for name in ("write", "read")]
    engine = call.context.engine
    _known_or_bad(call, vhost, user)
    existed = any(
        row.exchange == exchange for row in engine.directory.list_topic_permissions(user, vhost)
    )
    await call.context.agree(
        lambda: engine.directory.set_topic_permissions(user, vhost, exchange, *patterns)
    )
    call.context.act(engine.permissions_changed)
    return Reply(NO_CONTENT if existed else CREATED)


async def delete_topic_permission(call: Call) -> Answer:
    """Drop a user's topic permissions in a virtual host: for one exchange, or for all."""
    await list_topic_permissions(call)
    engine = call.context.engine
    user, vhost, exchange = call.path["user"], call.path["vhost"], call.path.get("exchange")
    directory = engine.directory
    await call.context.agree(lambda: directory.clear_topic_permissions(user, vhost, exchange))
    call.context.act(engine.permissions_changed)
    return None


# -- virtual hosts ---------------------------------------------------------------------------------


async def _shown_vhosts(call: Call, names: Iterable[str]) -> list[dict[str, Any]]:
    spans = spans_of(call)
    engine = call.context.engine
    return [
        show_vhost(call.context, engine.vhosts[name], await sum_totals(engine, [name]), spans)
        for name in names
        if name in engine.vhosts
    ]


async def _add_others(call: Call, shown: list[dict[str, Any]], path: str) -> None:
    """Every node counts its own queues and clients; `path` leads to the same at the others."""
    spans = {name: call.query[name] for name in call.query if name.endswith(("_age", "_incr"))}
    rows = {row["name"]: row for row in shown}
    for found in (await ask_all(call, question(call, path, spans))).values():
        for other in found if isinstance(found, list) else [found]:
            if other["name"] in rows:
                add_vhost(rows[other["name"]], other)


async def list_vhosts(call: Call) -> Answer:
    """The virtual hosts that the caller may see."""
    shown = await _shown_vhosts(call, [vhost.name for vhost in call.visible_vhosts()])
    await _add_others(call, shown, "/vhosts")
    return await answer_list(call, shown, lambda row: row, lambda row: str(row["name"]))


async def get_vhost(call: Call) -> Answer:
    """One virtual host."""
    name = call.vhost.name
    (shown,) = await _shown_vhosts(call, [name])
    await _add_others(call, [shown], f"/vhosts/{quote(name, safe='')}")
    return await answer_one(call, shown)


async def put_vhost(call: Call) -> Answer:
    """Make or change a virtual host; who makes it has all permissions in it."""
    name, body = call.path["name"], await call.body()
    engine = call.context.engine
    existed = name in engine.vhosts
    metadata = field_of(body, "metadata", dict, {})
    description = field_of({**metadata, **body}, "description", str, None)
    tags = {**metadata, **body}.get("tags")
    tracing = field_of(body, "tracing", bool, None)

    context, user = call.context, call.caller.name
    await context.agree(lambda: engine.add_vhost(name))
    if not existed and engine.directory.has_user(user):
        # Whoever makes one through the API can use it at once.
        all_of_it = (".*", ".*", ".*")
        await context.agree(lambda: engine.directory.set_permissions(user, name, *all_of_it))
    words = None if tags is None else _words(tags)
    await context.agree(lambda: engine.describe_vhost(name, description, words))
    if tracing is not None:
        context.act(lambda: engine.set_tracing(name, tracing))
    return Reply(NO_CONTENT if existed else CREATED)


async def delete_vhost(call: Call) -> Answer:
    """Delete a virtual host with everything in it; its connections are closed."""
    name = call.context.vhost(call.path["name"]).name
    await call.context.agree(lambda: call.context.engine.delete_vhost(name))
    return None


async def start_vhost(call: Call) -> Answer:
    """A virtual host cannot be down here."""
    call.context.vhost(call.path["name"])
    return None


# -- limits ----------------------------------------------------------------------------------------


async def list_vhost_limits(call: Call) -> Answer:
    """The limits of all virtual hosts, or of one."""
    directory = call.context.engine.directory
    shown = [
        {"vhost": vhost.name, "value": limits}
        for vhost in call.visible_vhosts()
        if (limits := directory.vhost_limits(vhost.name))
    ]
    return await answer_list(call, shown, lambda row: row)


async def list_user_limits(call: Call) -> Answer:
    """The limits of all users, or of one."""
    directory = call.context.engine.directory
    wanted = _check_user(call) if "user" in call.path else None
    users = [user for user in directory.list_users() if wanted in {None, user.name}]
    shown = [{"user": user.name, "value": dict(user.limits)} for user in users if user.limits]
    return await answer_list(call, shown, lambda row: row)


async def _change_limit(
    call: Call, limits: dict[str, int], value: int | None, store: Callable[[dict[str, int]], object]
) -> None:
    name = call.path["limit"]
    if value is None:
        limits.pop(name, None)
    else:
        limits[name] = value
    try:
        await call.context.agree(lambda: store(limits))
    except DirectoryError as error:
        raise bad_request(f"Validation failed\n\n{error}\n") from error


async def put_vhost_limit(call: Call) -> Answer:
    """Set a limit of a virtual host."""
    name, directory = call.vhost.name, call.context.engine.directory
    value = field_of(await call.body(), "value", int)
    limits = directory.vhost_limits(name)
    await _change_limit(call, limits, value, lambda new: directory.set_vhost_limits(name, new))
    return None


async def delete_vhost_limit(call: Call) -> Answer:
    """Lift a limit of a virtual host."""
    name, directory = call.vhost.name, call.context.engine.directory
    limits = directory.vhost_limits(name)
    await _change_limit(call, limits, None, lambda new: directory.set_vhost_limits(name, new))
    return None


async def put_user_limit(call: Call) -> Answer:
    """Set a limit of a user."""
    name, directory = _check_user(call), call.context.engine.directory
    value = field_of(await call.body(), "value", int)
    limits = dict(directory.user(name).limits)
    await _change_limit(call, limits, value, lambda new: directory.set_user_limits(name, new))
    return None


async def delete_user_limit(call: Call) -> Answer:
    """Lift a limit of a user."""
    name, directory = _check_user(call), call.context.engine.directory
    limits = dict(directory.user(name).limits)
    await _change_limit(call, limits, None, lambda new: directory.set_user_limits(name, new))
    return None


ROUTES = (
    Route("GET", "/users", "administrator", list_users),
    Route("GET", "/users/without-permissions", "administrator", list_users_without_permissions),
    Route("POST", "/users/bulk-delete", "administrator", delete_users),
    Route("GET", "/users/{user}", "administrator", get_user),
    Route("PUT", "/users/{user}", "administrator", put_user),
    Route("DELETE", "/users/{user}", "administrator", delete_user),
    Route("GET", "/users/{user}/permissions", "administrator", list_permissions),
    Route("GET", "/users/{user}/topic-permissions", "administrator", list_topic_permissions),
    Route("GET", "/auth/hash_password/{password}", "administrator", hash_a_password),
    Route("GET", "/permissions", "administrator", list_permissions),
    Route("GET", "/permissions/{vhost}/{user}", "administrator", get_permission),
    Route("PUT", "/permissions/{vhost}/{user}", "administrator", put_permission),
    Route("DELETE", "/permissions/{vhost}/{user}", "administrator", delete_permission),
    Route("GET", "/topic-permissions", "administrator", list_topic_permissions),
    Route("GET", "/topic-permissions/{vhost}/{user}", "administrator", list_topic_permissions),
    Route("PUT", "/topic-permissions/{vhost}/{user}", "administrator", put_topic_permission),
    Route("DELETE", "/topic-permissions/{vhost}/{user}", "administrator", delete_topic_permission),
    Route(
        "DELETE",
        "/topic-permissions/{vhost}/{user}/{exchange}",
        "administrator",
        delete_topic_permission,
    ),
    Route("GET", "/vhosts", "user", list_vhosts),
    Route("GET", "/vhosts/{vhost}", "visible", get_vhost),
    Route("PUT", "/vhosts/{name}", "administrator", put_vhost),
    Route("DELETE", "/vhosts/{name}", "administrator", delete_vhost),
    Route("POST", "/vhosts/{name}/start/{node}", "administrator", start_vhost),
    Route("GET", "/vhosts/{vhost}/permissions", "administrator", list_permissions),
    Route("GET", "/vhosts/{vhost}/topic-permissions", "administrator", list_topic_permissions),
    Route("GET", "/vhost-limits", "user", list_vhost_limits),
    Route("GET", "/vhost-limits/{vhost}", "visible", list_vhost_limits),
    Route("PUT", "/vhost-limits/{vhost}/{limit}", "administrator", put_vhost_limit),
    Route("DELETE", "/vhost-limits/{vhost}/{limit}", "administrator", delete_vhost_limit),
    Route("GET", "/user-limits", "administrator", list_user_limits),
    Route("GET", "/user-limits/{user}", "administrator", list_user_limits),
    Route("PUT", "/user-limits/{user}/{limit}", "administrator", put_user_limit),
    Route("DELETE", "/user-limits/{user}/{limit}", "administrator", delete_user_limit),
)
