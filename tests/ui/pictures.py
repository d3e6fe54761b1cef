"""Takes the pictures of docs/web-ui.md: `make pictures`."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from urllib.parse import quote

import pika
from browser import HOW_TO_INSTALL, Browser, find_chromium
from scene import SALVAGED, Api, Scene

from warren.testing.cluster import Cluster

FOLDER = Path(__file__).parents[2] / "docs" / "ui"
#: Name of the picture, and where in the UI it is taken.
PAGES = {
    "overview": "?span=1m",
    "queues": "queues",
    "queue": "queues/%2F/orders.busy?span=1m",
    "queue-messages": "queues/%2F/dead.letters/messages",
    "queue-consumers": "queues/%2F/mail.outgoing/consumers",
    "queue-unacked": "queues/%2F/orders.new/unacked",
    "queue-bindings": "queues/%2F/orders.new/bindings",
    "queue-paused": "queues/%2F/invoices.hold?span=1m",
    "shovels": "shovels",
    "mirrors": "queues/%2F/audit.all/mirrors",
    "mirrors-copy": "queues/%2F/reports.yearly/mirrors",
    "exchanges": "exchanges",
    "exchange": "exchanges/%2F/shop.orders",
    "topology": "topology",
    "dead-letters": "dead-letters",
    "connections": "connections",
    "channels": "channels",
    "cluster": "cluster",
    "matrix": "cluster/matrix",
    "nodes": "nodes",
    "node": "nodes/node2@localhost?span=1m",
    "log": "log",
    "salvage": "salvage",
    "salvage-piece": f"salvage/node1@localhost/{SALVAGED}",
    "policies": "policies?add=1&pattern=%5Eorders&definition=%7B%22ha-mode%22%3A%22all%22%7D",
    "operator-policies": "operator-policies",
    "users": "users",
    "user": "users/olga",
    "vhosts": "vhosts",
    "vhost": "vhosts/%2F",
    "limits": "limits",
    "definitions": "definitions",
    "keys": "keys",
}
#: Taken at the width of a phone, too.
NARROW = ("overview", "queues", "mirrors", "cluster", "policies", "shovels")
CONFIG = {
    "collect_statistics_interval": 1000,
    "mirroring_sync_max_throughput": "300KB",
    "cluster.try_out": "warren cluster start {node}",
}
COPIED_MESSAGES = 1000
#: A history for the charts.
BUSY_S = 60


def keep_busy(url: str, is_over: threading.Event) -> None:
    """Messages in and out, so that charts have something to draw."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_declare("orders.busy", durable=True)
    channel.basic_consume("orders.busy", lambda ch, how, *_: ch.basic_ack(how.delivery_tag))
    turn = 0
    while not is_over.is_set():
        turn += 1
        for _ in range(20 + 15 * (turn // 20 % 3)):
            channel.basic_publish("", "orders.busy", b"x" * 200)
        connection.process_data_events(0.1)
    connection.close()


def lag_behind(cluster: Cluster) -> None:
    """A queue with a large backlog and a mirror that is to be filled; some copies that were."""
    api = Api(cluster.management_url(1))
    connection = pika.BlockingConnection(pika.URLParameters(cluster.url(1)))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("reports.yearly", durable=True)
    for _ in range(COPIED_MESSAGES):
        channel.basic_publish("", "reports.yearly", b"x" * 20_000)
    connection.close()
    definition = {"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "manual"}
    policy = {"pattern": "^reports", "definition": definition, "apply-to": "queues"}
    api.call("PUT", "policies/%2F/reports", policy)
    time.sleep(3)
    act = {"action": "sync"}
    api.call("POST", "queues/%2F/reports.yearly/actions", act)
    time.sleep(5)
    api.call("POST", "queues/%2F/reports.yearly/actions", {"action": "cancel_sync"})


def begin_copy(browser: Browser, cluster: Cluster) -> None:
    api = Api(cluster.management_url(1))
    api.call("POST", "queues/%2F/reports.yearly/actions", {"action": "sync"})
    browser.wait(".ring >> text=% copied")
    time.sleep(2)


def end_copy(cluster: Cluster) -> None:
    api = Api(cluster.management_url(1))
    api.call("POST", "queues/%2F/reports.yearly/actions", {"action": "cancel_sync"})


BEFORE = {"mirrors-copy": begin_copy}


def client_pages(cluster: Cluster) -> dict[str, str]:
    """Those of a client that is connected: their addresses hold its port."""
    rows = Api(cluster.management_url(1)).call("GET", "channels")
    channel = next(row for row in rows if row["consumer_count"])
    client = quote(channel["connection_details"]["name"], safe="")
    return {
        "connection": f"connections/{client}?span=1m",
        "channel": f"channels/{quote(channel['name'], safe='')}?span=1m",
    }


def open_dialogs(browser: Browser, dark: bool) -> None:
    """What asks before it acts, and what copies."""
    browser.go("queues/%2F/orders.new")
    browser.click("button:has-text('Purge')")
    browser.wait("dialog[open]")
    take(browser, "dialog-purge", dark)
    browser.press("Escape")
    browser.go("cluster")
    browser.click("button:has-text('Kill this node')")
    browser.wait("dialog[open]")
    take(browser, "dialog-kill", dark)
    browser.press("Escape")
    browser.go("queues")
    browser.click("button[aria-label='Copy the table queues']")
    browser.wait(".menu-box:popover-open")
    take(browser, "copy", dark)
    browser.press("Escape")


def take(browser: Browser, name: str, dark: bool) -> None:
    tone = "dark" if dark else "light"
    time.sleep(0.8)
    browser.picture(FOLDER / f"{name}-{tone}.png")
    troubles = browser.troubles()
    print(name, tone, troubles or "", flush=True)


def main() -> int:
    chromium = find_chromium()
    if chromium is None:
        print(HOW_TO_INSTALL)
        return 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    only = set(sys.argv[1:])
    with Cluster(3, config=CONFIG) as cluster, Browser(chromium) as browser:
        cluster.kill(3)
        time.sleep(4)
        cluster.start(3)
        scene = Scene(cluster)
        scene.build()
        is_over = threading.Event()
        busy = threading.Thread(target=keep_busy, args=(cluster.url(1), is_over))
        busy.start()
        began_s = time.monotonic()
        lag_behind(cluster)
        time.sleep(max(0.0, began_s + BUSY_S - time.monotonic()))
        for dark in (False, True):
            browser.open(cluster.management_url(1), dark=dark)
            browser.wait("text=Log in")
            if not only or "login" in only:
                take(browser, "login", dark)
            browser.log_in()
            for name, place in {**PAGES, **client_pages(cluster)}.items():
                if only and name not in only:
                    continue
                browser.go(place)
                if name == "queue-messages":
                    browser.click("button:has-text('Look')")
                if name == "dead-letters":
                    browser.wait("text=rejected by a consumer")
                if name in BEFORE:
                    BEFORE[name](browser, cluster)
                take(browser, name, dark)
                if name == "mirrors-copy":
                    end_copy(cluster)
            if not only or "dialogs" in only:
                open_dialogs(browser, dark)
        if not only or "failover" in only:
            # A node is down, and the ring shows it.
            browser.open(cluster.management_url(1))
            browser.log_in()
            cluster.kill(2)
            browser.go(PAGES["mirrors"])
            time.sleep(8)
            take(browser, "failover-mirrors", False)
            browser.go("cluster")
            take(browser, "failover-cluster", False)
            cluster.start(2)
        for name in NARROW:
            if only and f"{name}-narrow" not in only:
                continue
            browser.open(cluster.management_url(1), width=400, height=800)
            browser.log_in()
            browser.go(PAGES[name])
            take(browser, f"{name}-narrow", False)
        is_over.set()
        busy.join()
        scene.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
