"""Lists: columns that are chosen, things done to many rows at once, all of it without a mouse."""

from __future__ import annotations

import pika
import pytest
from browser import Browser
from scene import Api

from warren.testing import Cluster


@pytest.fixture
def api(cluster: Cluster) -> Api:
    return Api(cluster.management_url(1))


def heads(browser: Browser) -> list[str]:
    return [text for text in browser.texts("thead th") if text]


def focused(browser: Browser) -> str:
    script = "document.activeElement.innerText || document.activeElement.className"
    return str(browser.do("evaluate", script=script))


def tab_to(browser: Browser, text: str) -> None:
    """Press Tab until what has the focus says so; a person gives up after a hundred times."""
    for _ in range(100):
        if focused(browser) == text:
            return
        browser.press("Tab")
    raise AssertionError(f"Tab never comes to {text}")


def test_columns_are_chosen_and_remembered(browser: Browser) -> None:
    browser.go("queues?name=orders.")
    browser.wait("main >> text=orders.new")
    before = heads(browser)
    assert "Memory" not in before
    assert "Acked" in before
    browser.click("summary:has-text('Columns')")
    browser.click(".columns-box label:has-text('Memory')")
    browser.click(".columns-box label:text-is('Acked')")
    browser.wait("thead >> text=Memory")
    browser.until(lambda: "KiB" in browser.text("tbody tr"), "how much memory the queue takes")
    chosen = heads(browser)
    assert "Acked" not in chosen
    # The list is ordered by it as by any other.
    browser.press("Escape")
    browser.click("thead >> text=Memory")
    browser.wait("th[aria-sort=descending]")
    browser.do("reload")
    browser.wait("main >> text=orders.new")
    assert [head.rstrip(" ▾") for head in heads(browser)] == chosen
    # Other lists have their own.
    browser.go("connections")
    browser.wait("main >> text=payment worker")
    browser.go("queues?name=orders.")
    browser.wait("main >> text=orders.new")
    browser.click("summary:has-text('Columns')")
    browser.click("button:has-text('As they were')")
    browser.wait_gone("thead >> text=Memory")
    assert heads(browser) == before
    assert browser.troubles() == []


def test_several_queues_are_purged_at_once(browser: Browser, api: Api) -> None:
    message = {"payload": "x", "payload_encoding": "string", "properties": {}}
    for number in range(4):
        api.call("PUT", f"queues/%2F/purged.{number}", {"durable": True})
        for _ in range(number):
            body = {**message, "routing_key": f"purged.{number}"}
            api.call("POST", "exchanges/%2F/amq.default/publish", body)
    browser.go("queues?name=purged.")
    browser.until(lambda: browser.amount("tbody tr") == 4, "four rows")
    browser.until(lambda: "3" in browser.texts("tbody tr")[3], "their messages")
    for number in (1, 3):
        browser.click(f"input[aria-label='Mark / purged.{number}']")
    browser.wait(".bulk >> text=2 marked")
    browser.click(".bulk button:has-text('Purge')")
    browser.wait("dialog >> text=4 waiting messages will be dropped for good")
    browser.wait("dialog >> text=warrenctl purge_queue -p / purged.3")
    assert browser.do("disabled", selector="dialog button.danger")
    browser.confirm("purge 2")
    browser.wait("text=2 queues purged")
    left = [api.call("GET", f"queues/%2F/purged.{number}")["messages"] for number in range(4)]
    assert left == [0, 0, 2, 0]
    for number in range(4):
        api.call("DELETE", f"queues/%2F/purged.{number}")
    assert browser.troubles() == []


def test_several_connections_are_closed_at_once(
    browser: Browser, cluster: Cluster, api: Api
) -> None:
    """Of clients on different nodes, whichever node is asked."""
    clients = []
    for node in (1, 2, 3):
        parameters = pika.URLParameters(cluster.url(node))
        parameters.client_properties = {"connection_name": f"to be closed {node}"}
        clients.append(pika.BlockingConnection(parameters))
    stays = clients[2]
    browser.go("connections")
    for node in (1, 2):
        browser.wait(f"main >> text=to be closed {node}")
        browser.click(f"tr:has-text('to be closed {node}') input[type=checkbox]")
    browser.click(".bulk button:has-text('Close')")
    browser.wait("dialog >> text=sent away")
    browser.confirm()
    browser.wait("text=2 connections closed")
    browser.wait_gone("main >> text=to be closed 1")
    for client in clients[:2]:
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="operator"):
            client.process_data_events(5)
    stays.process_data_events(0.1)
    assert stays.is_open
    stays.close()
    assert browser.troubles() == []


def test_all_of_it_goes_without_a_mouse(browser: Browser, api: Api) -> None:
    api.call("PUT", "queues/%2F/by.keyboard", {"durable": True})
    browser.wait("main h1")
    # Past the navigation at once.
    browser.press("Tab")
    assert focused(browser) == "Skip to the page"
    browser.press("Enter")
    browser.press("g")
    browser.press("q")
    browser.wait("h1:has-text('Queues')")
    browser.press("/")
    for letter in "by.key":
        browser.press(letter)
    browser.wait("text=1 of")
    browser.press("Escape")
    tab_to(browser, "Columns")
    browser.press("Enter")
    browser.wait("text=As they were")
    browser.press("Escape")
    browser.until(lambda: browser.amount("details.columns[open]") == 0, "the choice is closed")
    assert focused(browser) == "Columns"
    tab_to(browser, "by.keyboard")
    browser.press("Enter")
    browser.wait("h1:has-text('by.keyboard')")
    tab_to(browser, "Delete …")
    browser.press("Enter")
    browser.wait("dialog[open]")
    # The dialog keeps the focus, and gives it back.
    browser.press("Escape")
    browser.wait_gone("dialog")
    assert focused(browser) == "Delete …"
    browser.press("Enter")
    browser.wait("dialog[open]")
    for letter in "by.keyboard":
        browser.press(letter)
    browser.press("Enter")
    browser.wait("text=1 queue deleted")
    assert browser.troubles() == []


def test_a_refresh_takes_nothing_away(browser: Browser) -> None:
    """What was typed, chosen, marked and scrolled to outlives new data."""
    browser.go("queues?name=orders&sort=name")
    browser.wait("main >> text=orders.shipped")
    browser.click("button:has-text('Add a queue')")
    browser.wait(".drawer[open] input")
    browser.fill(".drawer .form input", "half a na")
    browser.click("tbody input[type=checkbox]")
    before = browser.do("evaluate", script="performance.getEntriesByType('resource').length")
    browser.do("evaluate", script="scrollTo(0, 120)")
    where = browser.do("evaluate", script="scrollY")
    asked = "performance.getEntriesByType('resource').length"
    browser.until(lambda: browser.do("evaluate", script=asked) > before + 2, "it asks again")
    values = browser.do("evaluate", script="document.querySelector('.drawer .form input').value")
    assert values == "half a na"
    assert browser.do("evaluate", script="scrollY") == where
    assert browser.amount("tr.marked") == 1
    assert browser.do("evaluate", script="location.hash") == "#/queues?name=orders&sort=name"
