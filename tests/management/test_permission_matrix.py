"""Who may call what: every route for every kind of user. For commands see test_command_matrix.py.

Refusals are tried on all routes. That someone is let in is tried on those that only look: the
others would stop nodes and forget queues.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from management.api import Api
from warren.management.call import Route
from warren.management.server import ROUTES
from warren.testing.broker import Broker

TAGS = ("management", "policymaker", "monitoring", "administrator")
#: Who is let in, by what the route asks for: tags, and whether without permissions in the vhost.
TABLE: dict[str, dict[str, tuple[str, ...]]] = {
    "user": {"member": TAGS, "stranger": TAGS},
    "vhost": {"member": TAGS, "stranger": ()},
    "visible": {"member": TAGS, "stranger": ("monitoring", "administrator")},
    "monitor": {
        "member": ("monitoring", "administrator"),
        "stranger": ("monitoring", "administrator"),
    },
    "policymaker": {
        "member": ("policymaker", "administrator"),
        "stranger": ("administrator",),
    },
    "administrator": {"member": ("administrator",), "stranger": ("administrator",)},
}
#: What someone is told whom the route is closed to.
CLOSED = (
    "Not management user",
    "Not monitor user",
    "Not administrator user",
    "User not authorised to access object",
    "User not authorised to access virtual host",
)
#: It never ends.
STREAM = "/cluster/events/stream"


@pytest.fixture(scope="module")
def users(broker: Broker, api: Api) -> Iterator[dict[tuple[str, str], Api]]:
    """(tag, whether a member of the virtual host) -> the API as that user."""
    broker.add_vhost("matrix")
    api.put("/queues/matrix/q")
    found: dict[tuple[str, str], Api] = {}
    for tag in (*TAGS, ""):
        for kind in ("member", "stranger"):
            name = f"matrix-{tag or 'plain'}-{kind}"
            api.put(f"/users/{name}", {"password": "pw", "tags": tag})
            if kind == "member":
                rights = {"configure": ".*", "write": ".*", "read": ".*"}
                api.put(f"/permissions/matrix/{name}", rights)
            found[tag, kind] = Api(api.url, name, "pw")
    yield found
    broker.delete_vhost("matrix")


def path_of(route: Route) -> str:
    """The route's path with names in it; only the virtual host is there."""
    names = {"vhost": "matrix"}
    return re.sub(r"\{(\w+)\}", lambda found: names.get(found.group(1), "nothing"), route.path)


def is_closed(api: Api, route: Route) -> bool:
    method = "HEAD" if route.path == STREAM else route.method
    answer = api(method, f"/api{path_of(route)}", None if route.method == "GET" else {})
    if answer.status != 401:
        return False
    return method == "HEAD" or not answer.body or answer.json["reason"] in CLOSED


@pytest.mark.parametrize("access", TABLE)
def test_every_route(users: dict[tuple[str, str], Api], access: str) -> None:
    routes = [route for route in ROUTES if route.access == access]
    assert routes
    wrong = []
    for route in routes:
        is_global = "{vhost}" not in route.path
        for (tag, kind), api in users.items():
            # Without a virtual host in the path everybody is a member.
            let_in = tag in TABLE[access]["member" if is_global else kind]
            if access == "vhost" and is_global:
                let_in = tag in TAGS
            if let_in and route.method != "GET":
                continue
            if is_closed(api, route) == let_in:
                wrong.append((route.method, route.path, tag, kind, let_in))
    assert wrong == []


def test_no_route_is_open_that_should_not_be(api: Api) -> None:
    stranger = api.as_user(None)
    for route in ROUTES:
        if route.access == "open":
            assert route.path in {"/auth", "/openapi.json"}
        else:
            answer = stranger(route.method, f"/api{path_of(route)}", None)
            assert answer.status == 401, route
            assert answer.body == b"", route
