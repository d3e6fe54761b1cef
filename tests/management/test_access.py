"""Who may do what: logging in, and the table of user tags against routes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from management.api import Api, q
from warren.management.server import ROUTES
from warren.testing.broker import Broker


@pytest.fixture(scope="module")
def users(broker: Broker) -> dict[str, Api]:
    """One user for each tag, all with permissions in `/`."""
    api = Api(broker.http_url)
    found = {}
    for tag in ("", "management", "policymaker", "monitoring", "administrator"):
        name = f"user-{tag or 'none'}"
        broker.add_user(name, "pw", [tag] if tag else [])
        found[tag or "none"] = api.as_user(name)
    return found


def test_without_credentials(api: Api) -> None:
    answer = api.as_user(None)("GET", "/api/overview")
    assert (answer.status, answer.body) == (401, b"")
    assert answer.headers["www-authenticate"] == 'Basic realm="RabbitMQ Management"'


@pytest.mark.parametrize("password", ["wrong", ""])
def test_wrong_credentials(api: Api, password: str) -> None:
    refused = (401, "not_authorized", "Login failed")
    assert api.as_user("guest", password).refusal("GET", "/overview") == refused
    assert api.as_user("nobody", password).refusal("GET", "/overview") == refused


@pytest.mark.parametrize("header", ["Basic", "Basic !!!", "Basic Z3Vlc3Q=", "Bearer abc", ""])
def test_broken_credentials(api: Api, header: str) -> None:
    answer = api.as_user(None)("GET", "/api/overview", headers={"Authorization": header})
    assert answer.status == 401
    assert answer.json == {"error": "not_authorized", "reason": "Login failed"}


def test_guessing_becomes_slow(broker: Broker) -> None:
    with Broker(http=True) as other:
        guesser = Api(other.http_url, "guest", "wrong")
        for _ in range(7):
            guesser("GET", "/api/whoami")
        began = time.monotonic()
        guesser("GET", "/api/whoami")
        assert time.monotonic() - began > 0.3


def test_a_user_without_tags_is_kept_out(users: dict[str, Api]) -> None:
    refused = (401, "not_authorised", "Not management user")
    assert users["none"].refusal("GET", "/overview") == refused


#: Access of a route -> the tags that it is open to, and what others are told.
TABLE = {
    "user": {"management", "policymaker", "monitoring", "administrator"},
    "vhost": {"management", "policymaker", "monitoring", "administrator"},
    "visible": {"management", "policymaker", "monitoring", "administrator"},
    "monitor": {"monitoring", "administrator"},
    "policymaker": {"policymaker", "administrator"},
    "administrator": {"administrator"},
}
#: Handlers that look again, at what the path names: others' connections are not a plain user's.
_PLACES = {"vhost": "%2F", "user": "no-such", "name": "no-such", "source": "amq.direct"}


def _requests() -> Iterator[tuple[str, str, str]]:
    for route in ROUTES:
        if route.access == "open":
            continue
        path = route.path
        for name in ("vhost", "user", "name", "source"):
            path = path.replace("{" + name + "}", _PLACES[name])
        for name in (
            "kind",
            "node",
            "limit",
            "component",
            "port",
            "protocol",
            "within",
            "unit",
            "peer",
            "file",
        ):
            path = path.replace("{" + name + "}", "x")
        for name in ("destination", "props", "exchange", "password", "cursor", "producer"):
            path = path.replace("{" + name + "}", "no-such")
        path = path.replace("{batch}", "1")
        yield route.method, path, route.access


@pytest.mark.parametrize(("method", "path", "access"), list(_requests()))
def test_tags(users: dict[str, Api], method: str, path: str, access: str) -> None:
    if (method, path) in {
        ("PUT", "/cluster-name"),
        ("PUT", "/users/no-such"),
        ("PUT", "/vhosts/no-such"),
        ("PUT", "/queues/%2F/no-such"),
        ("PUT", "/exchanges/%2F/no-such"),
    }:
        body: object = b"no json"
    else:
        body = None if method in {"GET", "DELETE"} else {}
    for tag, api in users.items():
        if path.endswith(("/stream", "/stop_app")) and tag in TABLE[access]:
            # It would never end, or the broker would let no clients in.
            continue
        status = api(method, f"/api{path}", body).status
        if tag in TABLE[access]:
            assert status != 401, (tag, method, path)
        else:
            assert status == 401, (tag, method, path)


def test_vhosts_are_closed_to_strangers(broker: Broker, api: Api, vhost: str) -> None:
    broker.add_user("stranger", "pw", ["management"], vhost=None)
    stranger = api.as_user("stranger")
    refused = (401, "not_authorised", "User not authorised to access virtual host")
    assert stranger.refusal("GET", f"/queues/{vhost}") == refused
    assert stranger.refusal("PUT", f"/queues/{vhost}/a", {}) == refused
    assert stranger.get("/queues") == []
    assert stranger.get("/vhosts") == []
    assert stranger.get("/overview")["object_totals"]["queues"] == 0


def test_permissions_count_as_over_amqp(broker: Broker, api: Api) -> None:
    broker.add_user("reader", "pw", ["management"])
    broker.set_permissions("reader", configure="^mine", write="^mine", read=".*")
    reader = api.as_user("reader")
    assert reader.put("/queues/%2F/mine.q", {}) == 201
    status, error, reason = reader.refusal("PUT", "/queues/%2F/other", {})
    assert (status, error) == (401, "not_authorised")
    assert reason == ("configure access to queue 'other' in vhost '/' refused for user 'reader'")
    body = {"routing_key": "x", "payload": "x", "payload_encoding": "string", "properties": {}}
    assert reader.refusal("POST", "/exchanges/%2F/amq.topic/publish", body)[0] == 401


def test_plain_users_see_their_own_connections(broker: Broker, api: Api) -> None:
    import pika

    url = broker.add_user("owner", "pw", ["management"])
    broker.add_user("other", "pw", ["management"])
    connection = pika.BlockingConnection(pika.URLParameters(url))
    connection.channel()
    (own,) = api.as_user("owner").get("/connections")
    assert own["user"] == "owner"
    assert api.as_user("other").get("/connections") == []
    assert api.as_user("other").get("/channels") == []
    assert len(api.get("/connections")) >= 1
    place = f"/connections/{q(own['name'])}"
    assert api.as_user("other").refusal("GET", place)[0] == 401
    assert api.as_user("other").refusal("DELETE", place)[0] == 401
    assert api.as_user("owner").delete(place) == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        connection.process_data_events(5)
    assert closed.value.reply_text == "CONNECTION_FORCED - Closed via management plugin"


def test_guest_from_elsewhere() -> None:
    from warren.management.server import _is_loopback

    assert _is_loopback("127.0.0.1")
    assert _is_loopback("::ffff:127.0.0.1")
    assert _is_loopback("::1")
    assert not _is_loopback("192.0.2.1")
    assert not _is_loopback("")
