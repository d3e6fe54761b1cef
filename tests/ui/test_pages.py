"""Every page shows data of a real cluster, without an error, and is open to everybody's senses."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from browser import Browser
from scene import DAMAGED, SALVAGED, SALVAGED_MESSAGES, Api, Scene

from warren.testing import Cluster

#: Where a page is, and what it must show there.
PAGES = {
    "": "3 of 3 nodes running",
    "queues": "orders.new",
    "queues/%2F/orders.new": "Queued messages",
    "queues/%2F/orders.new/messages": "Look into the queue",
    "queues/%2F/mail.outgoing/consumers": "mailer-1",
    "queues/%2F/orders.new/unacked": "basic.get",
    "queues/%2F/orders.new/bindings": "shop.orders",
    "queues/%2F/orders.new/mirrors": "The ring",
    "queues/%2F/invoices.hold": "Its consumers are paused.",
    "shovels": "reports-mover",
    "exchanges": "shop.orders",
    "exchanges/%2F/shop.orders": "order.shipped.#",
    "topology": "shop.events",
    "dead-letters": "rejected by a consumer",
    "connections": "payment worker",
    "channels": "Unconfirmed",
    "cluster": "node2",
    "cluster/matrix": "orders.new",
    "nodes": "metadata leader",
    "nodes/node2@localhost": "Descriptors",
    "log": "authenticated and granted access",
    "salvage": f"{SALVAGED_MESSAGES} messages of orders.new",
    f"salvage/node1@localhost/{SALVAGED}": "Publish again …",
    f"salvage/node1@localhost/{DAMAGED}": "bytes of a log that could not be understood",
    "policies": "temporary",
    "operator-policies": "nobody-beyond",
    "users": "olga",
    "users/olga": "shop.orders",
    "vhosts": "staging",
    "vhosts/staging": "the shop of tomorrow",
    "limits": "max-queues",
    "definitions": "Download",
    "keys": "Overview",
}


def all_places(cluster: Cluster) -> dict[str, str]:
    """Those of the table, and of a client that is connected."""
    rows = Api(cluster.management_url(1)).call("GET", "channels")
    channel = next(row for row in rows if row["consumer_count"])
    client = quote(channel["connection_details"]["name"], safe="")
    return {
        **PAGES,
        f"connections/{client}": "What the client says of itself",
        f"channels/{quote(channel['name'], safe='')}": "Prefetch of a consumer",
    }


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_page(shared_browser: Browser, cluster: Cluster, scene: Scene, dark: bool) -> None:
    """Each shows its data, has no error on its console, and axe-core finds nothing serious."""
    browser = shared_browser
    # Not the same node both times: each of them serves all of it.
    browser.open(cluster.management_url(2 if dark else 1), dark=dark)
    browser.wait("text=Log in")
    faults = {"login": browser.judge()}
    browser.log_in()
    for place, shown in all_places(cluster).items():
        browser.go(place)
        browser.wait(f"main >> text={shown} >> visible=true")
        faults[place] = browser.judge() + browser.troubles()
    browser.go("queues/%2F/orders.new")
    browser.click("button:has-text('Purge')")
    browser.wait("dialog[open]")
    faults["dialog"] = browser.judge()
    browser.press("Escape")
    browser.wait_gone("dialog")
    browser.go("dead-letters")
    browser.click("button:has-text('Example')")
    browser.wait("main >> text=x-death")
    faults["example"] = browser.judge()
    browser.go("queues")
    browser.click("summary:has-text('Columns')")
    browser.wait("text=As they were")
    faults["columns"] = browser.judge() + browser.troubles()
    assert {place: found for place, found in faults.items() if found} == {}


def test_it_fits_a_narrow_screen(shared_browser: Browser, cluster: Cluster, scene: Scene) -> None:
    browser = shared_browser
    browser.open(cluster.management_url(1), width=400, height=800)
    browser.log_in()
    too_wide = {}
    for place in all_places(cluster):
        browser.go(place)
        width = browser.do("evaluate", script="document.documentElement.scrollWidth")
        if width > 400:
            too_wide[place] = width
    assert too_wide == {}
    browser.click("button[aria-label=Menu]")
    browser.click("nav.side >> text=Queues")
    browser.wait("h1:has-text('Queues')")
