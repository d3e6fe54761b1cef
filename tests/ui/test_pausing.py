"""Pausing queues and shovels in the browser, and what many queues at once come to."""

from __future__ import annotations

import contextlib
import urllib.error

import pytest
from browser import Browser
from scene import Api

from warren.testing import Cluster


@pytest.fixture
def api(cluster: Cluster) -> Api:
    return Api(cluster.management_url(3))


def test_consumers_of_a_queue_are_paused(browser: Browser, api: Api) -> None:
    browser.go("queues/%2F/orders.shipped")
    browser.click("button:has-text('Pause consumers')")
    browser.wait("dialog >> text=1 consumer will be given nothing more")
    browser.wait("dialog >> text=warrenctl pause_queue -p / orders.shipped")
    browser.click("dialog button:has-text('Pause')")
    browser.wait("text=Its consumers are paused.")
    browser.wait("text=By guest")
    assert api.call("GET", "queues/%2F/orders.shipped")["state"] == "paused"
    browser.go("queues?name=orders.shipped")
    browser.wait("tbody .badge.warn:has-text('paused')")
    browser.go("cluster")
    browser.wait(".events >> text=the consumers of queue orders.shipped in / were paused by guest")
    assert browser.judge() == []
    browser.go("queues/%2F/orders.shipped")
    browser.click("button:has-text('Resume consumers')")
    browser.click("dialog button:has-text('Resume')")
    browser.wait_gone("text=Its consumers are paused.")
    assert api.call("GET", "queues/%2F/orders.shipped")["state"] == "running"
    assert browser.troubles() == []


def test_several_queues_are_paused(browser: Browser, api: Api) -> None:
    for number in range(3):
        api.call("PUT", f"queues/%2F/rest.{number}", {"durable": True})
    browser.go("queues?name=rest.")
    browser.until(lambda: browser.amount("tbody tr") == 3, "three rows")
    browser.click("input[aria-label='Mark all on this page']")
    browser.click(".bulk button:has-text('Pause')")
    browser.wait("dialog >> text=warrenctl pause_queue -p / rest.2")
    browser.click("dialog button:has-text('Pause')")
    browser.wait("text=3 queues paused")
    browser.until(lambda: browser.amount("tbody .badge:has-text('paused')") == 3, "three paused")
    states = {api.call("GET", f"queues/%2F/rest.{number}")["state"] for number in range(3)}
    assert states == {"paused"}
    for number in range(3):
        api.call("DELETE", f"queues/%2F/rest.{number}")
    assert browser.troubles() == []


def test_what_fails_in_the_middle_is_told(browser: Browser, api: Api) -> None:
    """Each of them is named, with the reason; what can be done is done."""
    for number in range(3):
        api.call("PUT", f"queues/%2F/middle.{number}", {"durable": True})
    browser.go("queues?name=middle.")
    browser.until(lambda: browser.amount("tbody tr") == 3, "three rows")
    # The page does not look again meanwhile, and somebody else deletes one.
    browser.click("button:has-text('live')")
    browser.click("input[aria-label='Mark all on this page']")
    api.call("DELETE", "queues/%2F/middle.1")
    browser.click(".bulk button:has-text('Delete')")
    browser.confirm("delete 3")
    browser.wait("dialog >> text=2 of 3 queues deleted, 1 not.")
    browser.wait("dialog >> text=no queue 'middle.1' in vhost '/'")
    assert browser.amount("dialog .outcomes li.good") == 2
    assert browser.judge() == []
    browser.click("dialog button:has-text('Close')")
    browser.wait_gone("dialog")
    assert not [row for row in api.call("GET", "queues") if row["name"].startswith("middle.")]
    browser.click("button:has-text('paused')")


def test_a_shovel_from_its_beginning_to_its_end(browser: Browser, api: Api) -> None:
    with contextlib.suppress(urllib.error.HTTPError):
        api.call("DELETE", "parameters/shovel/%2F/mover")
    api.call("PUT", "queues/%2F/shovel.from", {"durable": True})
    message = {"routing_key": "shovel.from", "payload": "x", "payload_encoding": "string"}
    for _ in range(5):
        api.call("POST", "exchanges/%2F/amq.default/publish", {**message, "properties": {}})
    browser.go("shovels")
    browser.click("summary:has-text('Add a shovel')")
    browser.fill("input[name=shovel-name]", "mover")
    browser.fill("input[name=shovel-src]", "shovel.from")
    browser.fill("input[name=shovel-dest]", "shovel.to")
    browser.wait(".same >> text=warrenctl set_parameter -p / shovel mover")
    browser.click("button:has-text('Add shovel')")
    browser.wait("tr:has-text('mover') .badge:has-text('running')")
    browser.wait("tr:has-text('mover') >> text=queue shovel.to")
    browser.until(
        lambda: "5" in browser.texts("tr:has-text('mover') td.num")[0], "five messages moved"
    )
    assert browser.judge() == []
    browser.click("tr:has-text('mover') button:has-text('Pause')")
    browser.wait("dialog >> text=warrenctl pause_shovel -p / mover")
    browser.click("dialog button:has-text('Pause')")
    browser.wait("tr:has-text('mover') .badge:has-text('paused')")
    browser.wait("tr:has-text('mover') >> text=by guest")
    browser.click("tr:has-text('mover') button:has-text('Resume')")
    browser.click("dialog button:has-text('Resume')")
    browser.wait("tr:has-text('mover') .badge:has-text('running')")
    browser.click("tr:has-text('mover') button:has-text('Delete')")
    assert browser.do("disabled", selector="dialog button.danger")
    browser.confirm("mover")
    browser.wait_gone("tr:has-text('mover')")
    for name in ("shovel.from", "shovel.to"):
        api.call("DELETE", f"queues/%2F/{name}")
    assert browser.troubles() == []
