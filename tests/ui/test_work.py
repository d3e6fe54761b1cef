"""What people do with the web UI: log in, find, change, and see what happens to the cluster."""

from __future__ import annotations

import pytest
from browser import Browser
from scene import Api, Scene

from warren.testing import Cluster


@pytest.fixture
def api(cluster: Cluster) -> Api:
    return Api(cluster.management_url(1))


def test_a_wrong_password_is_told(shared_browser: Browser, cluster: Cluster) -> None:
    shared_browser.open(cluster.management_url(1))
    shared_browser.fill("input[name=username]", "guest")
    shared_browser.fill("input[name=password]", "wrong")
    shared_browser.click("button:has-text('Log in')")
    shared_browser.wait("text=do not fit")


def test_roles_are_honoured(shared_browser: Browser, cluster: Cluster, scene: Scene) -> None:
    shared_browser.open(cluster.management_url(1))
    shared_browser.log_in("paul", "a long one")
    shared_browser.wait("nav.side >> text=Queues")
    shown = shared_browser.texts("nav.side li")
    assert "Users" not in shown
    assert "Nodes" not in shown
    assert "Log" not in shown
    shared_browser.do("hash", hash="#/users")
    shared_browser.wait("text=Your tags do not open this page")
    shared_browser.go("policies")
    assert shared_browser.amount("text=Add / update a policy") == 0
    assert shared_browser.troubles() == []


def test_a_session_outlives_a_reload_and_ends_with_logging_out(browser: Browser) -> None:
    browser.go("queues")
    browser.do("reload")
    browser.wait("main >> text=orders.new")
    assert (
        browser.do("evaluate", script="localStorage.getItem('warren.session')").count("guest:") == 0
    )
    browser.click("button:has-text('Log out')")
    browser.wait("input[name=password]")
    assert browser.do("evaluate", script="localStorage.getItem('warren.session')") is None


def test_keys_lead_to_pages_and_filters(browser: Browser) -> None:
    browser.wait("main h1")
    browser.press("g")
    browser.press("q")
    browser.wait("main >> text=orders.new")
    browser.press("/")
    for letter in "paid":
        browser.press(letter)
    browser.wait("text=1 of")
    assert browser.texts("tbody td a[href^='#/queues/']") == ["orders.paid"]


def test_a_policy_is_previewed_and_mirrors_a_queue(browser: Browser, api: Api) -> None:
    api.call("PUT", "queues/%2F/ha.tickets", {"durable": True})
    browser.go("policies?add=1")
    browser.fill("input[name=policy-name]", "ha-all")
    browser.fill("input[name=policy-pattern]", "^ha\\.")
    browser.click("button:has-text('Mirror everywhere')")
    browser.wait(".preview >> text=Matches 1 name")
    browser.wait(".preview >> text=ha.tickets")
    browser.click("button:has-text('Save policy')")
    browser.wait("tbody >> text=ha-all")
    browser.go("queues/%2F/ha.tickets/mirrors")
    browser.until(lambda: browser.amount(".ring .spot.in-sync") == 3, "three copies in sync")
    assert browser.amount(".ring .hop") == 3
    browser.wait(".explain >> text=dies now")
    assert browser.troubles() == []


def test_a_wrong_policy_is_refused_while_it_is_typed(browser: Browser) -> None:
    browser.go("policies?add=1")
    browser.fill("input[name=policy-name]", "bad")
    browser.fill("input[name=policy-pattern]", "^x")
    browser.fill(".pair input >> nth=0", "no-such-key")
    browser.fill(".pair input >> nth=1", "1")
    browser.wait(".preview >> text=not recognised policy settings")
    assert browser.do("disabled", selector="button:has-text('Save policy')")


def test_purging_says_what_it_will_do_and_wants_the_name(browser: Browser, api: Api) -> None:
    api.call("PUT", "queues/%2F/to.purge", {"durable": True})
    for _ in range(3):
        message = {"routing_key": "to.purge", "payload": "x", "payload_encoding": "string"}
        api.call("POST", "exchanges/%2F/amq.default/publish", {**message, "properties": {}})
    browser.go("queues/%2F/to.purge")
    browser.until(lambda: "3" in browser.text(".tile"), "three messages")
    browser.click("button:has-text('Purge')")
    browser.wait("dialog >> text=3 waiting messages will be dropped for good")
    assert browser.do("disabled", selector="dialog button.danger")
    browser.confirm("to.purge")
    browser.wait("text=1 queue purged")
    assert api.call("GET", "queues/%2F/to.purge")["messages"] == 0


def test_several_queues_are_deleted_at_once(browser: Browser, api: Api) -> None:
    for number in range(3):
        api.call("PUT", f"queues/%2F/bulk.{number}", {"durable": True})
    browser.go("queues?name=bulk.")
    browser.until(lambda: browser.amount("tbody tr") == 3, "three rows")
    browser.click("input[aria-label='Mark all on this page']")
    browser.click(".bulk button:has-text('Delete')")
    browser.confirm("delete 3")
    browser.wait("text=Nothing matches the filter")
    assert not [row for row in api.call("GET", "queues") if row["name"].startswith("bulk.")]
