"""The manners of the server: paths, codes, headers, bodies, CORS, pages, columns."""

from __future__ import annotations

import gzip
import json

import pytest

from management.api import Api, q
from warren.management.patterns import is_cheap
from warren.testing.broker import Broker

NOT_FOUND = (404, "Object Not Found", "Not Found")


def test_unknown_paths_and_objects(api: Api) -> None:
    for path in ("/nope", "/queues/%2F/none", "/queues/nov/x", "/users/none", "/nodes/none"):
        assert api.refusal("GET", path) == NOT_FOUND


def test_trailing_slashes_are_ignored(api: Api) -> None:
    for path in ("/users/", "/permissions/", "/cluster-name/", "/bindings/", "/vhosts/"):
        api.get(path)


def test_wrong_methods(api: Api) -> None:
    answer = api("PATCH", "/api/queues/%2F/x")
    assert answer.status == 405
    assert answer.headers["allow"] == "DELETE, GET, PUT"


def test_head_has_no_body(api: Api) -> None:
    answer = api("HEAD", "/api/whoami")
    assert (answer.status, answer.body) == (200, b"")


def test_headers(api: Api) -> None:
    answer = api("GET", "/api/whoami")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["vary"] == "accept, accept-encoding, origin"
    assert "script-src 'self'" in answer.headers["content-security-policy"]


def test_long_answers_are_compressed(api: Api) -> None:
    answer = api("GET", "/api/overview", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert "node" in json.loads(gzip.decompress(answer.body))


def test_names_with_slashes(api: Api, vhost: str) -> None:
    name = q("a/b c%ü")
    assert api.put(f"/queues/{vhost}/{name}") == 201
    assert api.get(f"/queues/{vhost}/{name}")["name"] == "a/b c%ü"
    assert api.get(f"/queues/{vhost.replace('%2F', '%2f')}/{name}")["name"] == "a/b c%ü"
    assert api.delete(f"/queues/{vhost}/{name}") == 204


@pytest.mark.parametrize("body", [b"{", b"[]", b'"x"', b"\xff"])
def test_bodies_must_be_json_objects(api: Api, vhost: str, body: bytes) -> None:
    refused = (400, "bad_request", "not_json")
    assert api.refusal("PUT", f"/queues/{vhost}/q", body) == refused


def test_content_type_does_not_matter(api: Api, vhost: str) -> None:
    headers = {"Content-Type": "text/plain"}
    assert api("PUT", f"/api/queues/{vhost}/q", b'{"durable": true}', headers).status == 201
    assert api("PUT", f"/api/queues/{vhost}/r", b"", headers).status == 201


def test_bodies_have_a_limit() -> None:
    with Broker(http=True, config={"management.http.max_body_size": 1000}) as broker:
        api = Api(broker.http_url)
        assert api("PUT", "/api/queues/%2F/q", b" " * 2000).status == 413


def test_cors() -> None:
    config = {"management.cors.allow_origins.1": "http://a.test", "management.cors.max_age": 9}
    with Broker(http=True, config=config) as broker:
        api = Api(broker.http_url)
        headers = {"Origin": "http://a.test"}
        answer = api("GET", "/api/whoami", headers=headers)
        assert answer.headers["access-control-allow-origin"] == "http://a.test"
        assert answer.headers["access-control-allow-credentials"] == "true"
        asked = {**headers, "Access-Control-Request-Headers": "authorization"}
        answer = api.as_user(None)("OPTIONS", "/api/whoami", headers=asked)
        assert answer.status == 200
        assert answer.headers["access-control-max-age"] == "9"
        assert answer.headers["access-control-allow-headers"] == "authorization"
        stranger = api("GET", "/api/whoami", headers={"Origin": "http://b.test"})
        assert stranger.headers["access-control-allow-origin"] is None


def test_path_prefix() -> None:
    with Broker(http=True, config={"management.path_prefix": "/mq"}) as broker:
        api = Api(broker.http_url)
        assert api("GET", "/mq/api/whoami").status == 200
        assert api("GET", "/api/whoami").status == 404


@pytest.fixture
def queues(api: Api, vhost: str) -> str:
    for name, count in (("b", 2), ("a", 1), ("c", 0), ("Ax", 3)):
        assert api.put(f"/queues/{vhost}/{name}") == 201
        for _ in range(count):
            body = {"routing_key": name, "payload": "x", "payload_encoding": "string"}
            api.post(f"/exchanges/{vhost}/amq.default/publish", {**body, "properties": {}})
    return vhost


def names(shown: list[dict[str, object]]) -> list[object]:
    return [row["name"] for row in shown]


def test_pages(api: Api, queues: str) -> None:
    page = api.get(f"/queues/{queues}?page=2&page_size=3")
    assert names(page.pop("items")) == ["c"]
    assert page == {
        "filtered_count": 4,
        "item_count": 1,
        "page": 2,
        "page_count": 2,
        "page_size": 3,
        "total_count": 4,
    }
    assert api.refusal("GET", f"/queues/{queues}?page=9&page_size=3")[:2] == (
        400,
        "page_out_of_range",
    )
    for query in ("page=0", "page=x", "page=1&page_size=501", "page=1&page_size=0"):
        assert api.refusal("GET", f"/queues/{queues}?{query}")[:2] == (400, "bad_request")
    assert isinstance(api.get(f"/queues/{queues}?pagination=false"), list)


def test_filters(api: Api, queues: str) -> None:
    found = api.get(f"/queues/{queues}?page=1&name=a")
    assert (names(found["items"]), found["filtered_count"], found["total_count"]) == (
        ["Ax", "a"],
        2,
        4,
    )
    found = api.get(f"/queues/{queues}?page=1&use_regex=true&name=%5E%5Bab%5D%24")
    assert names(found["items"]) == ["a", "b"]
    refused = api.refusal("GET", f"/queues/{queues}?page=1&use_regex=true&name=%5B")
    assert refused[:2] == (400, "bad_request")


def test_sorting_and_columns(api: Api, queues: str) -> None:
    found = api.get(
        f"/queues/{queues}?sort=messages&sort_reverse=true"
        "&columns=name,messages,message_stats.publish_details.rate,nope"
    )
    assert [(row["name"], row["messages"]) for row in found] == [
        ("Ax", 3),
        ("b", 2),
        ("a", 1),
        ("c", 0),
    ]
    assert set(found[0]) == {"name", "messages", "message_stats"}
    assert set(found[0]["message_stats"]) == {"publish_details"}
    page = api.get(f"/queues/{queues}?sort=messages&page=1&page_size=2&columns=name")
    assert page["items"] == [{"name": "c"}, {"name": "a"}]


def test_light_lists(api: Api, queues: str) -> None:
    found = api.get(f"/queues/{queues}?disable_stats=true&enable_queue_totals=true")
    assert "message_stats" not in found[0]
    assert [row["messages"] for row in found] == [3, 1, 2, 0]


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a|a)*$",
        "(a*)*b",
        "((a{1,99})*)",
        "a*a*a*a*a*b",
        r"(a)\1",
        "x" * 300,
        "(?=(a+)+)b",
    ],
)
def test_costly_patterns(pattern: str) -> None:
    assert not is_cheap(pattern)


@pytest.mark.parametrize(
    "pattern", ["^ab", ".*foo.*", "^(a|b)\\.x$", "[a-z]+[.][0-9]{1,5}$", "a?b"]
)
def test_cheap_patterns(pattern: str) -> None:
    assert is_cheap(pattern)


def test_a_costly_filter_is_refused(api: Api) -> None:
    refused = api.refusal("GET", "/queues?page=1&use_regex=true&name=" + q("(a+)+$"))
    assert refused[:2] == (400, "bad_request")


def test_a_fault_of_ours(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_self: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("warren.management.call.Call.visible_vhosts", fail)
    assert api.refusal("GET", "/queues") == (
        500,
        "internal_server_error",
        "a fault of the broker",
    )
    assert api.get("/whoami")["name"] == "guest"
