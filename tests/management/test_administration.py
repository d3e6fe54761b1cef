"""Users, permissions, virtual hosts, limits, policies, parameters and definitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pika
import pytest

from management.api import Api
from warren.auth.password import hash_password
from warren.testing.broker import Broker

CAPTURES = Path(__file__).parent / "captures"


def test_users(api: Api) -> None:
    assert api.put("/users/u1", {"password": "pw", "tags": "management, x"}) == 201
    shown = api.get("/users/u1")
    assert shown["tags"] == ["management", "x"]
    assert api.as_user("u1").get("/whoami") == {"name": "u1", "tags": ["management", "x"]}
    hashed = hash_password("other")
    assert api.put("/users/u1", {"password_hash": hashed, "tags": ["management"]}) == 204
    assert api.get("/users/u1")["password_hash"] == hashed
    assert api.as_user("u1", "other").get("/whoami")["name"] == "u1"
    assert "u1" in {row["name"] for row in api.get("/users/without-permissions")}
    assert api.put("/users/u1", {"tags": ["management"]}) == 204
    assert api.as_user("u1", "other").refusal("GET", "/whoami")[0] == 401
    assert api.delete("/users/u1") == 204
    assert api.delete("/users/u1") == 404


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"password": "x"}, "tags_not_present"),
        ({"password": 5, "tags": ""}, "password must be a string"),
        ({"password_hash": "%%", "tags": ""}, "the password hash of user 'bad' is not"),
        ({"password": "a", "password_hash": "b", "tags": ""}, "Cannot set both"),
        ({"tags": 5}, "tags must be a list"),
    ],
)
def test_bad_users(api: Api, body: dict[str, Any], reason: str) -> None:
    status, error, told = api.refusal("PUT", "/users/bad", body)
    assert (status, error) == (400, "bad_request")
    assert told.startswith(reason)
    assert api.refusal("GET", "/users/bad")[0] == 404


def test_bulk_delete(api: Api) -> None:
    for name in ("b1", "b2"):
        api.put(f"/users/{name}", {"password": "x", "tags": ""})
    assert api("POST", "/api/users/bulk-delete", {"users": ["b1", "b2", "b3"]}).status == 204
    assert not {"b1", "b2"} & {row["name"] for row in api.get("/users")}


def test_a_deleted_user_is_thrown_out(broker: Broker, api: Api) -> None:
    url = broker.add_user("gone", "pw")
    connection = pika.BlockingConnection(pika.URLParameters(url))
    api.delete("/users/gone")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        connection.process_data_events(5)


def test_permissions(api: Api, vhost: str) -> None:
    api.put("/users/p1", {"password": "x", "tags": ""})
    place = f"/permissions/{vhost}/p1"
    body = {"configure": "^a", "write": ".*", "read": ""}
    assert api.refusal("GET", place)[0] == 404
    assert api.put(place, body) == 201
    assert api.put(place, body) == 204
    assert body.items() <= api.get(place).items()
    assert api.get("/users/p1/permissions") == [api.get(place)]
    assert api.get(place) in api.get(f"/vhosts/{vhost}/permissions")
    assert api.refusal("PUT", place, {"configure": ""})[2] == "{key_missing,write}"
    assert api.refusal("PUT", place, {**body, "read": "("})[0] == 400
    assert api.refusal("PUT", f"/permissions/{vhost}/none", body)[0] == 400
    assert api.delete(place) == 204
    assert api.delete(place) == 404


def test_topic_permissions(api: Api, vhost: str) -> None:
    api.put("/users/t1", {"password": "x", "tags": ""})
    place = f"/topic-permissions/{vhost}/t1"
    body = {"exchange": "amq.topic", "write": "^a", "read": "^b"}
    assert api.put(place, body) == 201
    assert api.put(place, body) == 204
    (shown,) = api.get(place)
    assert body.items() <= shown.items()
    assert api.get("/users/t1/topic-permissions") == [shown]
    assert api.delete(f"{place}/amq.topic") == 204
    assert api.delete(place) == 404


def test_vhosts(api: Api) -> None:
    body = {"description": "mine", "tags": "a,b", "tracing": True}
    assert api.put("/vhosts/v1", body) == 201
    assert api.put("/vhosts/v1", {}) == 204
    shown = api.get("/vhosts/v1")
    assert (shown["description"], shown["tags"], shown["tracing"]) == ("mine", ["a", "b"], True)
    assert shown["metadata"] == {"description": "mine", "tags": ["a", "b"]}
    assert api.delete("/vhosts/v1") == 204
    assert api.delete("/vhosts/v1") == 404


def test_limits(api: Api, vhost: str) -> None:
    assert api.put(f"/vhost-limits/{vhost}/max-queues", {"value": 1}) == 204
    assert api.get(f"/vhost-limits/{vhost}")[0]["value"] == {"max-queues": 1}
    assert api.put(f"/queues/{vhost}/a") == 201
    assert "queue limit" in api.refusal("PUT", f"/queues/{vhost}/b", {})[2]
    assert api.refusal("PUT", f"/vhost-limits/{vhost}/max-fun", {"value": 1})[0] == 400
    assert api.delete(f"/vhost-limits/{vhost}/max-queues") == 204
    assert api.get(f"/vhost-limits/{vhost}") == []
    api.put("/users/l1", {"password": "x", "tags": ""})
    assert api.put("/user-limits/l1/max-connections", {"value": 2}) == 204
    assert api.get("/user-limits/l1") == [{"user": "l1", "value": {"max-connections": 2}}]
    assert api.get("/users/l1")["limits"] == {"max-connections": 2}
    assert api.delete("/user-limits/l1/max-connections") == 204


def test_policies(api: Api, vhost: str) -> None:
    api.put(f"/queues/{vhost}/ha.q")
    place = f"/policies/{vhost}/ha"
    body = {
        "pattern": "^ha",
        "definition": {"ha-mode": "all", "max-length": 10},
        "priority": 3,
        "apply-to": "queues",
    }
    assert api.put(place, body) == 201
    assert api.put(place, body) == 204
    assert body.items() <= api.get(place).items()
    shown = api.get(f"/queues/{vhost}/ha.q")
    assert shown["policy"] == "ha"
    assert shown["effective_policy_definition"] == body["definition"]
    bad = {"pattern": "x", "definition": {"ha-mode": "exactly"}}
    assert api.refusal("PUT", place, bad) == (
        400,
        "bad_request",
        'Validation failed\n\nha-mode="exactly" takes an integer, none given\n',
    )
    operator = {"pattern": ".*", "definition": {"max-length": 5}}
    assert api.put(f"/operator-policies/{vhost}/cap", operator) == 201
    shown = api.get(f"/queues/{vhost}/ha.q")
    assert (shown["operator_policy"], shown["effective_policy_definition"]["max-length"]) == (
        "cap",
        5,
    )
    assert api.get(f"/parameters/operator_policy/{vhost}/cap")["value"]["pattern"] == ".*"
    assert api.delete(f"/operator-policies/{vhost}/cap") == 204
    assert api.delete(place) == 204
    assert api.delete(place) == 404


def test_parameters(api: Api, vhost: str) -> None:
    place = f"/parameters/federation-upstream/{vhost}/mine"
    value = {"uri": "amqp://"}
    assert api.put(place, {"value": value}) == 201
    assert api.put(place, {"value": value}) == 204
    assert api.get(place)["value"] == value
    assert api.get("/parameters/federation-upstream")[0]["name"] == "mine"
    assert api.delete(place) == 204
    assert api.delete(place) == 404
    refused = api.refusal("PUT", f"/parameters/zz/{vhost}/x", {"value": {}})
    assert refused[2] == "Validation failed\n\ncomponent zz not found\n"
    limits = f"/parameters/vhost-limits/{vhost}/limits"
    assert api.put(limits, {"value": {"max-queues": 7}}) == 201
    assert api.get(limits)["value"] == {"max-queues": 7}


def test_global_parameters_and_the_cluster_name(api: Api) -> None:
    assert api.put("/global-parameters/mine", {"value": [1]}) == 201
    assert api.get("/global-parameters/mine") == {"name": "mine", "value": [1]}
    assert api.delete("/global-parameters/mine") == 204
    assert api.put("/cluster-name", {"name": "c1"}) == 204
    assert api.get("/cluster-name") == {"name": "c1"}
    assert api.get("/overview")["cluster_name"] == "c1"


def test_definitions_go_round(api: Api, vhost: str) -> None:
    api.put(f"/queues/{vhost}/q", {"arguments": {"x-max-length": 3}})
    api.put(f"/exchanges/{vhost}/x", {"type": "headers"})
    api("POST", f"/api/bindings/{vhost}/e/x/q/q", {"arguments": {"x-match": "any", "n": 5}})
    api.put(f"/policies/{vhost}/p", {"pattern": "q", "definition": {"max-length": 9}})
    api.put(f"/parameters/shovel/{vhost}/s", {"value": {"src-uri": "amqp://"}})
    whole = api.get("/definitions")
    assert api("POST", "/api/definitions", whole).status == 204
    assert api.get("/definitions") == whole
    with Broker(http=True) as other:
        copy = Api(other.http_url)
        assert copy("POST", "/api/definitions", whole).status == 204
        again = copy.get("/definitions")
        for key in ("users", "vhosts", "permissions", "policies", "queues", "bindings"):
            assert sorted(map(json.dumps, again[key])) == sorted(map(json.dumps, whole[key])), key
        one = api.get(f"/definitions/{vhost}")
        assert "vhost" not in one["queues"][0]
        assert copy("POST", "/api/definitions/%2F", one).status == 204
        assert copy.get("/queues/%2F/q")["arguments"] == {"x-max-length": 3}


def test_a_real_export_imports_whole(api: Api) -> None:
    document = (CAPTURES / "definitions.json").read_bytes()
    with Broker(http=True) as other:
        fresh = Api(other.http_url)
        assert fresh("POST", "/api/definitions", document).status == 204
        # The export holds its own guest, whose password is guest too.
        imported, exported = fresh.get("/definitions"), json.loads(document)
        for key in ("policies", "queues", "exchanges", "bindings"):
            assert imported[key] == exported[key]


def test_definitions_from_a_form(api: Api) -> None:
    edge = "cut-here"
    body = (
        f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="d.json"\r\n'
        f"Content-Type: application/json\r\n\r\n"
        '{"vhosts": [{"name": "from-form"}]}'
        f"\r\n--{edge}--\r\n"
    ).encode()
    headers = {"Content-Type": f"multipart/form-data; boundary={edge}"}
    assert api("POST", "/api/definitions", body, headers).status == 204
    assert api.get("/vhosts/from-form")["name"] == "from-form"


def test_bad_definitions(api: Api) -> None:
    status, error, reason = api.refusal("POST", "/definitions", b"{")
    assert (status, error) == (400, "bad_request")
    rows = {"queues": [{"name": "x", "vhost": "none"}], "vhosts": [{"name": "kept"}]}
    status, error, reason = api.refusal("POST", "/definitions", rows)
    assert (status, error) == (400, "bad_request")
    assert reason == "queues[0] ('x'): vhost 'none' not found"
    assert api.get("/vhosts/kept")["name"] == "kept"


def test_health(broker: Broker, api: Api) -> None:
    for name in ("alarms", "local-alarms", "virtual-hosts", "node-is-mirror-sync-critical"):
        assert api.get(f"/health/checks/{name}") == {"status": "ok"}
    port = broker.port
    assert api.get(f"/health/checks/port-listener/{port}") == {"status": "ok", "port": port}
    answer = api("GET", "/api/health/checks/port-listener/1")
    assert answer.status == 503
    assert answer.json["reason"] == "No active listener"
    assert answer.json["missing"] == 1
    assert api.get("/health/checks/protocol-listener/amqp091")["protocol"] == "amqp"
    assert api("GET", "/api/health/checks/protocol-listener/stomp").status == 503
    assert api.get("/health/checks/certificate-expiration/1/months") == {"status": "ok"}
    assert api.refusal("GET", "/health/checks/certificate-expiration/1/aeons")[0] == 400
    broker.set_alarm("memory")
    try:
        assert api("GET", "/api/health/checks/alarms").status == 503
        assert api.get("/nodes")[0]["mem_alarm"]
    finally:
        broker.set_alarm("memory", False)


def test_secrets_stay_secret(api: Api) -> None:
    shown = json.dumps(api.get("/config/effective"))
    assert "guest" in shown
    assert "default_pass" not in shown
