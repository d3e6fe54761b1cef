"""What is done on pages is done: each form and each button, looked at from behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from browser import Browser
from scene import Api

from warren.testing import Cluster


@pytest.fixture
def api(cluster: Cluster) -> Api:
    return Api(cluster.management_url(1))


def field(label: str, kind: str = "input") -> str:
    return f".drawer[open] label.field:has(> span:text-is('{label}')) {kind}"


def opened(browser: Browser, title: str) -> None:
    browser.click(f"summary:has-text('{title}')")
    browser.wait(".drawer[open] .drawer-body")


def told(browser: Browser, text: str) -> None:
    browser.wait(f".message:has-text('{text}')")


def is_gone(api: Api, path: str) -> bool:
    try:
        api.call("GET", path)
    except HTTPError as error:
        return error.code == 404
    return False


def peek(api: Api, queue: str) -> list[dict[str, Any]]:
    body = {"count": 50, "encoding": "auto"}
    found: list[dict[str, Any]] = api.call("POST", f"queues/%2F/{queue}/peek", body)
    return found


def test_messages_are_published_looked_at_taken_and_moved(browser: Browser, api: Api) -> None:
    browser.go("queues")
    browser.click("button:has-text('Add a queue')")
    # The form is where the keyboard is.
    browser.fill(field("Name"), "deeds.one")
    browser.click("button:has-text('Add queue')")
    told(browser, "Queue deeds.one is there")
    api.call("PUT", "queues/%2F/deeds.two", {"durable": True})
    browser.go("queues/%2F/deeds.one/messages")
    opened(browser, "Publish a message to this queue")
    browser.fill(".drawer[open] textarea", '{"first": 1}')
    browser.click(".drawer[open] button:has-text('Publish')")
    told(browser, "Published")
    browser.fill(".drawer[open] textarea", "second")
    browser.click(".drawer[open] button:has-text('Publish')")
    browser.until(lambda: len(peek(api, "deeds.one")) == 2, "both are there")
    browser.click("summary:has-text('Publish a message to this queue')")
    browser.click("button:has-text('Look')")
    browser.wait(".message-view pre:has-text('first')")
    assert [row["redelivered"] for row in peek(api, "deeds.one")] == [False, False]
    opened(browser, "Take messages out")
    browser.do("choose", selector=field("And then", "select"), value="ack_requeue_false")
    browser.click("button:has-text('Take …')")
    browser.wait("dialog >> text=gone from the queue for good")
    browser.confirm("deeds.one")
    browser.until(lambda: len(peek(api, "deeds.one")) == 1, "one was taken")
    browser.click("summary:has-text('Take messages out')")
    opened(browser, "Move messages to another queue")
    browser.fill(field("To queue"), "deeds.two")
    browser.click("button:has-text('Move …')")
    browser.wait("dialog >> text=before it leaves")
    browser.click("dialog button:has-text('Move')")
    told(browser, "1 message moved")
    assert [row["payload"] for row in peek(api, "deeds.two")] == ["second"]
    browser.go("queues/%2F/deeds.one")
    browser.click("button:has-text('Delete')")
    browser.confirm("deeds.one")
    browser.wait("h1:has-text('Queues')")
    assert is_gone(api, "queues/%2F/deeds.one")
    api.call("DELETE", "queues/%2F/deeds.two")
    assert browser.troubles() == []


def test_exchanges_and_bindings_come_and_go(browser: Browser, api: Api) -> None:
    api.call("PUT", "queues/%2F/deeds.bound", {"durable": True})
    browser.go("exchanges")
    browser.click("button:has-text('Add an exchange')")
    browser.fill(field("Name"), "deeds.x")
    browser.do("choose", selector=field("Type", "select"), value="topic")
    browser.click("button:has-text('Add exchange')")
    told(browser, "Exchange deeds.x is there")
    browser.go("exchanges/%2F/deeds.x")
    opened(browser, "Bind something to it")
    browser.fill(field("Its name"), "deeds.bound")
    browser.fill(field("Routing key"), "a.#")
    browser.click(".drawer[open] button:has-text('Bind')")
    told(browser, "deeds.x now leads to deeds.bound")
    browser.wait("[aria-label='Bindings from here'] >> text=a.#")
    browser.click("button:has-text('Unbind')")
    browser.wait("dialog >> text=will no longer reach")
    browser.confirm()
    told(browser, "The binding is gone")
    browser.wait("text=Nothing is bound")
    browser.click("button:has-text('Delete')")
    browser.wait("dialog >> text=gets an error")
    browser.confirm("deeds.x")
    browser.wait("h1:has-text('Exchanges')")
    assert is_gone(api, "exchanges/%2F/deeds.x")
    api.call("DELETE", "queues/%2F/deeds.bound")
    assert browser.troubles() == []


def test_users_hosts_permissions_and_limits(browser: Browser, api: Api) -> None:
    browser.go("vhosts")
    browser.click("button:has-text('Add a virtual host')")
    browser.fill(field("Name"), "deeds")
    browser.click(".drawer[open] button.primary")
    browser.wait("td >> text=deeds")
    browser.go("users")
    browser.click("button:has-text('Add a user')")
    browser.fill(field("Name"), "dora")
    browser.fill(field("Password"), "one of hers")
    browser.fill(field("Once more"), "another one")
    browser.wait("text=The two differ.")
    assert browser.do("disabled", selector="button:has-text('Add user')")
    browser.fill(field("Once more"), "one of hers")
    browser.click("label.check:has-text('monitoring')")
    browser.click("button:has-text('Add user')")
    told(browser, "User dora is there")
    assert "monitoring" in str(api.call("GET", "users/dora")["tags"])
    browser.go("users/dora")
    browser.wait("text=No access to any virtual host.")
    opened(browser, "Set permissions")
    browser.do("choose", selector=field("Virtual host", "select"), value="deeds")
    browser.fill(field("configure"), "")
    browser.click(".drawer[open] button:has-text('Set')")
    told(browser, "dora may enter deeds")
    kept = api.call("GET", "permissions/deeds/dora")
    assert (kept["configure"], kept["write"], kept["read"]) == ("", ".*", ".*")
    browser.go("limits")
    opened(browser, "Set a limit of a user")
    browser.fill(field("User"), "dora")
    browser.fill(field("Value"), "3")
    browser.click(".drawer[open] button:has-text('Set')")
    told(browser, "The limit holds")
    assert api.call("GET", "user-limits/dora")[0]["value"] == {"max-connections": 3}
    browser.click("tr:has-text('dora') >> button:has-text('Lift')")
    browser.confirm()
    told(browser, "dora has no max-connections any more")
    browser.go("users/dora")
    browser.click("button:has-text('Take away')")
    browser.wait("dialog >> text=refused from now on")
    browser.confirm()
    browser.wait("text=No access to any virtual host.")
    browser.click(".page-head button:has-text('Delete')")
    browser.confirm("dora")
    browser.wait("h1:has-text('Users')")
    assert is_gone(api, "users/dora")
    browser.go("vhosts/deeds")
    browser.click(".page-head button:has-text('Delete')")
    browser.confirm("deeds")
    browser.wait("h1:has-text('Virtual hosts')")
    assert is_gone(api, "vhosts/deeds")
    assert browser.troubles() == []


def test_an_operator_policy_holds_and_goes(browser: Browser, api: Api) -> None:
    browser.go("operator-policies")
    browser.click(".page-head button:has-text('Add / update')")
    browser.fill("input[name=policy-name]", "deeds-limit")
    browser.fill("input[name=policy-pattern]", "^deeds")
    browser.click("button:has-text('Expire messages')")
    browser.click("button:has-text('Save policy')")
    told(browser, "Policy deeds-limit holds")
    kept = api.call("GET", "operator-policies/%2F/deeds-limit")
    assert kept["definition"] == {"message-ttl": 3_600_000}
    browser.click("tr:has-text('deeds-limit') >> button:has-text('Remove')")
    browser.confirm("deeds-limit")
    browser.until(lambda: is_gone(api, "operator-policies/%2F/deeds-limit"), "it is gone")
    assert browser.troubles() == []


def test_definitions_go_down_and_up(browser: Browser, api: Api, tmp_path: Path) -> None:
    browser.go("definitions")
    text = browser.do("download", selector="button:has-text('Download')")
    definitions = json.loads(text)
    assert "orders.new" in {row["name"] for row in definitions["queues"]}
    assert {"users", "vhosts", "permissions", "policies", "exchanges", "bindings"} <= set(
        definitions
    )
    queue = {"name": "deeds.up", "vhost": "/", "durable": True, "auto_delete": False}
    file = tmp_path / "some.json"
    file.write_text(json.dumps({"queues": [{**queue, "arguments": {}}]}))
    browser.do("upload", selector="input[type=file]", path=str(file))
    browser.wait("main >> text=1 queue")
    browser.click("button:has-text('Import …')")
    browser.wait("dialog >> text=What is in both is overwritten")
    browser.click("dialog button:has-text('Import')")
    told(browser, "The definitions are in force")
    assert api.call("GET", "queues/%2F/deeds.up")["durable"]
    api.call("DELETE", "queues/%2F/deeds.up")
    (tmp_path / "wrong.json").write_text("no json")
    browser.do("upload", selector="input[type=file]", path=str(tmp_path / "wrong.json"))
    browser.wait(".field .wrong")
    assert browser.troubles() == []
