"""Commands on users, permissions, virtual hosts and limits."""

from __future__ import annotations

from typing import Any

from warren.ctl.client import granted
from warren.ctl.command import Command, Run, json_value, q
from warren.ctl.errors import BAD_DATA, NO_USER, CtlError, usage


def check_user(run: Run, name: str) -> dict[str, Any]:
    """The user as the API shows it. Raises CtlError with the status for unknown users."""
    answer = run.client.call("GET", f"/users/{q(name)}")
    if answer.status == 404:
        raise CtlError(NO_USER, f"Error:\nUser {name} does not exist")
    if answer.status != 200:
        run.client.get(f"/users/{q(name)}")
    found: dict[str, Any] = answer.value
    return found


def _password(run: Run, number: int) -> str:
    """A password in the words, or on standard input where there is none."""
    given = run.word(number)
    if given:
        return given
    import sys

    if sys.stdin.isatty():
        import getpass

        given = getpass.getpass("Password: ")
    else:
        given = sys.stdin.readline().rstrip("\n")
    if not given:
        raise usage("password is not provided via command line argument or stdin")
    return given


def add_user(run: Run) -> None:
    name, password = run.word(0), _password(run, 1)
    if run.client.call("GET", f"/users/{q(name)}").status == 200:
        raise CtlError(BAD_DATA, f'User "{name}" already exists')
    run.banner(f'Adding user "{name}" ...')
    run.client.want("PUT", f"/users/{q(name)}", {"password": password, "tags": []})
    run.banner(
        "Done. Don't forget to grant the user permissions to some virtual hosts! "
        "See 'warrenctl help set_permissions' to learn more."
    )


def delete_user(run: Run) -> None:
    run.banner(f'Deleting user "{run.word(0)}" ...')
    check_user(run, run.word(0))
    run.client.want("DELETE", f"/users/{q(run.word(0))}")


def change_password(run: Run) -> None:
    run.banner(f'Changing password for user "{run.word(0)}" ...')
    user = check_user(run, run.word(0))
    body = {"password": _password(run, 1), "tags": user["tags"]}
    run.client.want("PUT", f"/users/{q(run.word(0))}", body)


def clear_password(run: Run) -> None:
    run.banner(f'Clearing password for user "{run.word(0)}" ...')
    user = check_user(run, run.word(0))
    run.client.want("PUT", f"/users/{q(run.word(0))}", {"tags": user["tags"]})


def authenticate_user(run: Run) -> None:
    name = run.word(0)
    run.banner(f'Authenticating user "{name}" ...')
    body = {"password": _password(run, 1)}
    answer = run.client.call("POST", f"/users/{q(name)}/authenticate", body)
    if answer.status == 401:
        granted(answer)
    if answer.status != 200:
        reason = answer.value["reason"] if answer.value else answer.status
        raise CtlError(BAD_DATA, f'Error:\nError: failed to authenticate user "{name}"\n{reason}')
    run.say("Success")


def hash_password(run: Run) -> None:
    run.banner("Will hash password ...")
    run.say(run.client.get(f"/auth/hash_password/{q(_password(run, 0))}")["ok"])


def set_user_tags(run: Run) -> None:
    name, tags = run.words[0], run.words[1:]
    run.banner(f'Setting tags for user "{name}" to [{", ".join(tags)}] ...')
    user = check_user(run, name)
    body = {
        "password_hash": user["password_hash"],
        "hashing_algorithm": user["hashing_algorithm"],
        "tags": tags,
    }
    run.client.want("PUT", f"/users/{q(name)}", body)


def set_permissions(run: Run) -> None:
    user, configure, write, read = run.words
    run.banner(f'Setting permissions for user "{user}" in vhost "{run.vhost}" ...')
    check_user(run, user)
    body = {"configure": configure, "write": write, "read": read}
    run.client.want("PUT", f"/permissions/{run.vhost_path}/{q(user)}", body)


def clear_permissions(run: Run) -> None:
    user = run.word(0)
    run.banner(f'Clearing permissions for user "{user}" in vhost "{run.vhost}" ...')
    check_user(run, user)
    run.client.want("DELETE", f"/permissions/{run.vhost_path}/{q(user)}")


def set_topic_permissions(run: Run) -> None:
    user, exchange, write, read = run.words
    run.banner(
        f'Setting topic permissions on "{exchange}" for user "{user}" in vhost "{run.vhost}" ...'
    )
    check_user(run, user)
    body = {"exchange": exchange, "write": write, "read": read}
    run.client.want("PUT", f"/topic-permissions/{run.vhost_path}/{q(user)}", body)


def clear_topic_permissions(run: Run) -> None:
    user = run.word(0)
    run.banner(f'Clearing topic permissions for user "{user}" in vhost "{run.vhost}" ...')
    check_user(run, user)
    exchange = f"/{q(run.words[1])}" if len(run.words) > 1 else ""
    run.client.want("DELETE", f"/topic-permissions/{run.vhost_path}/{q(user)}{exchange}")


def add_vhost(run: Run) -> None:
    name = run.word(0)
    run.banner(f'Adding vhost "{name}" ...')
    body: dict[str, Any] = {
        key: run.options[key] for key in ("description", "tags") if key in run.options
    }
    run.client.want("PUT", f"/vhosts/{q(name)}", body)


def delete_vhost(run: Run) -> None:
    name = run.word(0)
    run.banner(f'Deleting vhost "{name}" ...')
    if run.client.call("GET", f"/vhosts/{q(name)}").status == 404:
        raise CtlError(BAD_DATA, f'Error:\nVirtual host "{name}" does not exist')
    run.client.want("DELETE", f"/vhosts/{q(name)}")


def trace_on(run: Run) -> None:
    run.banner(f"Starting tracing for vhost {run.vhost} ...")
    run.client.get(f"/vhosts/{run.vhost_path}?columns=name")
    run.client.want("PUT", f"/vhosts/{run.vhost_path}", {"tracing": True})
    run.say(f"Trace enabled for vhost {run.vhost}")


def trace_off(run: Run) -> None:
    run.banner(f"Stopping tracing for vhost {run.vhost} ...")
    run.client.get(f"/vhosts/{run.vhost_path}?columns=name")
    run.client.want("PUT", f"/vhosts/{run.vhost_path}", {"tracing": False})
    run.say(f"Trace disabled for vhost {run.vhost}")


def _set_limits(run: Run, place: str, given: object) -> None:
    if not isinstance(given, dict):
        raise CtlError(BAD_DATA, "Error:\nlimits must be a JSON object")
    for name, value in given.items():
        run.client.want("PUT", f"{place}/{q(str(name))}", {"value": value})


def _clear_limits(run: Run, place: str) -> None:
    for row in run.client.get(place):
        for name in row["value"]:
            run.client.want("DELETE", f"{place}/{q(name)}")


def _list_limits(run: Run, whose: str) -> None:
    rows = [
        {whose: row[whose], "limits": _compact(row["value"])}
        for row in run.client.get(f"/{whose}-limits")
    ]
    run.table(rows, (whose, "limits"))


def set_vhost_limits(run: Run) -> None:
    run.banner(f'Setting vhost limits to "{run.word(0)}" for vhost "{run.vhost}" ...')
    _set_limits(run, f"/vhost-limits/{run.vhost_path}", json_value(run.word(0)))


def clear_vhost_limits(run: Run) -> None:
    run.banner(f'Clearing vhost "{run.vhost}" limits ...')
    _clear_limits(run, f"/vhost-limits/{run.vhost_path}")


def list_vhost_limits(run: Run) -> None:
    run.banner("Listing limits for all vhosts ...")
    _list_limits(run, "vhost")


def set_user_limits(run: Run) -> None:
    run.banner(f'Setting user limits to "{run.word(1)}" for user "{run.word(0)}" ...')
    check_user(run, run.word(0))
    _set_limits(run, f"/user-limits/{q(run.word(0))}", json_value(run.word(1)))


def clear_user_limits(run: Run) -> None:
    run.banner(f'Clearing user "{run.word(0)}" limits ...')
    check_user(run, run.word(0))
    _clear_limits(run, f"/user-limits/{q(run.word(0))}")


def list_user_limits(run: Run) -> None:
    run.banner("Listing limits for all users ...")
    _list_limits(run, "user")


def _compact(value: object) -> str:
    import json

    return json.dumps(value, separators=(",", ":"))


COMMANDS = (
    Command("add_user", "<username> [password]", "Creates a user", add_user),
    Command("delete_user", "<username>", "Removes a user", delete_user),
    Command(
        "change_password", "<username> [password]", "Changes a user's password", change_password
    ),
    Command("clear_password", "<username>", "Disables password login for a user", clear_password),
    Command(
        "authenticate_user",
        "<username> [password]",
        "Checks a user's password; fails if it is wrong",
        authenticate_user,
    ),
    Command("hash_password", "[password]", "Shows the stored form of a password", hash_password),
    Command("set_user_tags", "<username> [tag ...]", "Sets user tags", set_user_tags),
    Command(
        "set_permissions",
        "<username> <conf> <write> <read>",
        "Sets user permissions for a vhost",
        set_permissions,
    ),
    Command(
        "clear_permissions", "<username>", "Revokes permissions for a vhost", clear_permissions
    ),
    Command(
        "set_topic_permissions",
        "<username> <exchange> <write> <read>",
        "Sets user topic permissions for an exchange",
        set_topic_permissions,
    ),
    Command(
        "clear_topic_permissions",
        "<username> [exchange]",
        "Clears user topic permissions for a vhost or an exchange",
        clear_topic_permissions,
    ),
    Command(
        "add_vhost",
        "<vhost>",
        "Creates a virtual host",
        add_vhost,
        {"description": True, "tags": True, "default-queue-type": True},
    ),
    Command("delete_vhost", "<vhost>", "Deletes a virtual host", delete_vhost),
    Command("trace_on", "", "Copies every message to amq.rabbitmq.trace", trace_on),
    Command("trace_off", "", "Stops copying messages to amq.rabbitmq.trace", trace_off),
    Command("set_vhost_limits", "<definition>", "Sets virtual host limits", set_vhost_limits),
    Command("clear_vhost_limits", "", "Clears virtual host limits", clear_vhost_limits),
    Command("list_vhost_limits", "", "Displays virtual host limits", list_vhost_limits),
    Command("set_user_limits", "<username> <definition>", "Sets user limits", set_user_limits),
    Command("clear_user_limits", "<username>", "Clears user limits", clear_user_limits),
    Command("list_user_limits", "", "Displays user limits", list_user_limits),
)
