"""What the web UI asks of the server: its files, sessions, the log, previews, dead letters."""

from __future__ import annotations

import gzip
import json
import logging
from pathlib import Path

import pika
import pytest

from management.api import Api
from warren.auth.directory import Directory
from warren.management.log_tail import LINES_KEPT_MAX, LogTail
from warren.management.sessions import Sessions, TokenRefused, derive_key
from warren.management.web_ui import FOLDER
from warren.testing.broker import Broker

#: All of it together, compressed, as a browser gets it.
BYTES_MAX = 80 * 1024
BUILT = pytest.mark.skipif(not (FOLDER / "index.html").exists(), reason="run 'make webui' first")


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


# -- files -----------------------------------------------------------------------------------------


@BUILT
def test_the_page_is_open_and_safe(api: Api) -> None:
    answer = api.as_user(None)("GET", "/")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert b"<style" not in answer.body
    assert b"<script>" not in answer.body


@BUILT
def test_files_are_kept_by_browsers_and_come_compressed(api: Api) -> None:
    name = next((FOLDER / "assets").glob("*.js")).name
    answer = api.as_user(None)("GET", f"/assets/{name}", None, {"Accept-Encoding": "gzip"})
    assert "immutable" in answer.headers["cache-control"]
    assert gzip.decompress(answer.body) == (FOLDER / "assets" / name).read_bytes()
    again = {"If-None-Match": answer.headers["etag"]}
    assert api.as_user(None)("GET", f"/assets/{name}", None, again).status == 304


@BUILT
def test_all_of_it_is_small() -> None:
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    assert sum(len(gzip.compress(path.read_bytes(), 9)) for path in files) < BYTES_MAX


@pytest.mark.parametrize("path", ["/assets/none.js", "/none.html", "/assets/..%2f..%2fserver.py"])
def test_there_are_no_other_files(api: Api, path: str) -> None:
    assert api.as_user(None)("GET", path).status == 404


def test_without_the_files_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warren.management.web_ui.WebUi.__init__.__defaults__", (tmp_path,))
    with Broker(http=True) as broker:
        answer = Api(broker.http_url)("GET", "/")
    assert answer.status == 404
    assert b"make webui" in answer.body


# -- sessions --------------------------------------------------------------------------------------


def test_a_token_stands_for_name_and_password(api: Api, broker: Broker) -> None:
    broker.add_user("tess", "pw", ["management"])
    begun = api.as_user("tess")("POST", "/api/warren/session").json
    assert (begun["name"], begun["tags"]) == ("tess", ["management"])
    nobody = api.as_user(None)
    assert nobody("GET", "/api/whoami", None, bearer(begun["token"])).json["name"] == "tess"
    # Other rights than the user's it has not.
    assert nobody("GET", "/api/users", None, bearer(begun["token"])).status == 401
    # It cannot make its own life longer.
    assert nobody("POST", "/api/warren/session", None, bearer(begun["token"])).status == 400


def test_a_new_password_ends_sessions(api: Api, broker: Broker) -> None:
    broker.add_user("vera", "pw", ["management"])
    token = api.as_user("vera")("POST", "/api/warren/session").json["token"]
    api.put("/users/vera", {"password": "another", "tags": "management"})
    assert api.as_user(None)("GET", "/api/whoami", None, bearer(token)).status == 401


def test_tokens_are_checked() -> None:
    directory = Directory()
    user = directory.add_user("ann", "pw")
    now_s = [1000.0]
    sessions = Sessions(derive_key(b"secret"), 60, lambda: now_s[0])
    token, ends_s = sessions.begin(user)
    assert ends_s == 1060
    assert sessions.user(token, directory) == user
    claims, _, seal = token.partition(".")
    for wrong in (
        "",
        ".",
        claims,
        f"{claims}.",
        f"{claims}.{seal[:-2]}AA",
        "x" * 5000,
        f"é.{seal}",
    ):
        with pytest.raises(TokenRefused):
            sessions.user(wrong, directory)
    with pytest.raises(TokenRefused):
        Sessions(derive_key(b"other"), 60, lambda: now_s[0]).user(token, directory)
    now_s[0] = 1060
    with pytest.raises(TokenRefused):
        sessions.user(token, directory)
    now_s[0] = 1000
    directory.delete_user("ann")
    with pytest.raises(TokenRefused):
        sessions.user(token, directory)


# -- other sites -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 201),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://any"}, 201),
        ({"Sec-Fetch-Site": "none"}, 201),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "http://evil.example"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:3000"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_other_sites_cannot_make_a_browser_act(
    api: Api, vhost: str, headers: dict[str, str], status: int
) -> None:
    answer = api("PUT", f"/api/queues/{vhost}/q", {}, headers)
    assert answer.status == status


# -- the log ---------------------------------------------------------------------------------------


def test_the_log_is_told_without_secrets(api: Api) -> None:
    node = api.get("/overview")["node"]
    logging.getLogger("warren.queue").warning(
        "fetched from amqp://u:hidden@host/", extra={"fields": {"password": "hidden"}}
    )
    told = api.get(f"/warren/log/{node}?level=warning&category=queue")
    line = told["lines"][-1]
    assert (line["level"], line["domain"]) == ("warning", "queue")
    assert "hidden" not in json.dumps(told)
    assert api.get(f"/warren/log/{node}?since={told['last']}")["lines"] == []
    assert api("GET", "/api/warren/log/nobody@here").status == 404
    assert api("GET", f"/api/warren/log/{node}?level=loud").status == 400


def test_only_so_many_lines_are_kept() -> None:
    tail = LogTail()
    record = logging.LogRecord("warren.store", logging.INFO, "", 0, "%s", ("x",), None)
    for _ in range(LINES_KEPT_MAX + 10):
        tail.handle(record)
    assert len(tail.since(0)) == LINES_KEPT_MAX
    assert tail.since(0)[-1].number == tail.last_number == LINES_KEPT_MAX + 10


# -- previews --------------------------------------------------------------------------------------


def preview(api: Api, vhost: str, **body: object) -> dict[str, object]:
    answer = api("POST", f"/api/warren/policies/{vhost}/preview", body)
    assert answer.status == 200
    found: dict[str, object] = answer.json
    return found


def test_a_preview_tells_what_a_policy_would_govern(api: Api, vhost: str) -> None:
    for name in ("ha.1", "ha.2", "other"):
        api.put(f"/queues/{vhost}/{name}", {})
    strong = {"pattern": "^ha.1$", "definition": {"expires": 1000000}, "priority": 9}
    api.put(f"/policies/{vhost}/strong", strong)
    body = {"name": "new", "pattern": "^ha", "definition": {"message-ttl": 1}, "apply-to": "queues"}
    found = preview(api, vhost, **body)
    assert (found["valid"], found["matched"], found["governed"], found["queues"]) == (True, 2, 1, 3)
    assert found["examples"] == [
        {"kind": "queue", "name": "ha.1", "now": "strong", "after": "strong"},
        {"kind": "queue", "name": "ha.2", "now": None, "after": "new"},
    ]
    # Nothing was set.
    assert [policy["name"] for policy in api.get(f"/policies/{vhost}")] == ["strong"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"pattern": "(", "definition": {"expires": 1}}, "regular expression"),
        ({"pattern": "x", "definition": {"nonsense": 1}}, "not recognised"),
        ({"pattern": "x", "definition": {}}, "no policy provided"),
    ],
)
def test_a_preview_tells_what_is_wrong(
    api: Api, vhost: str, body: dict[str, object], reason: str
) -> None:
    found = preview(api, vhost, **body)
    assert found["valid"] is False
    assert reason in str(found["error"])


def test_a_pattern_that_could_take_for_ever_is_not_tried(api: Api, vhost: str) -> None:
    api.put(f"/queues/{vhost}/{'a' * 60}", {})
    found = preview(api, vhost, pattern="^(a+)+$", definition={"expires": 1})
    assert found["matched"] == 0


# -- dead letters, salvage -------------------------------------------------------------------------


def test_queues_of_dead_letters_are_found(
    api: Api, channel: pika.adapters.blocking_connection.BlockingChannel
) -> None:
    channel.exchange_declare("dl.first", "fanout")
    channel.exchange_declare("dl.second", "fanout")
    channel.exchange_bind("dl.second", "dl.first")
    channel.queue_declare("dl.grave")
    channel.queue_bind("dl.grave", "dl.second")
    channel.queue_declare("dl.source", arguments={"x-dead-letter-exchange": "dl.first"})
    direct = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dl.grave"}
    channel.queue_declare("dl.direct", arguments=direct)
    rows = [row for row in api.get("/warren/dead-letters") if row["name"] == "dl.grave"]
    assert [row["sources"] for row in rows] == [["dl.direct", "dl.source"]]
    for name in ("dl.grave", "dl.source", "dl.direct"):
        channel.queue_delete(name)


def test_salvage_is_listed(tmp_path: Path) -> None:
    folder = tmp_path / "salvage"
    with Broker(http=True, data_dir=tmp_path) as broker:
        api = Api(broker.http_url)
        assert api.get("/warren/salvage") == []
        folder.mkdir(exist_ok=True)
        note = {"file": "1-2.bin", "segment": "1", "offset": 2, "bytes": 3, "reason": "a gap"}
        (folder / "salvage.jsonl").write_text(json.dumps(note) + "\nbroken\n")
        (row,) = api.get("/warren/salvage")
    assert (row["file"], row["reason"], row["folder"]) == ("1-2.bin", "a gap", str(folder))


def test_events_can_be_chosen_by_name(api: Api, vhost: str) -> None:
    api.put(f"/policies/{vhost}/named", {"pattern": "x", "definition": {"expires": 1}})
    names = {row["event"] for row in api.get("/cluster/events?names=policy.,node.")}
    assert names == {"policy.set"}
