"""Copies to mirrors, failovers and restarts as the pages show them. Last: it hurts the nodes."""

from __future__ import annotations

import pika
import pytest
from browser import Browser
from scene import Api

from warren.testing import Cluster

#: Ten seconds of a copy at what the cluster of these tests allows.
MESSAGES, BYTES = 30, 100_000


@pytest.fixture
def api(cluster: Cluster) -> Api:
    return Api(cluster.management_url(1))


def progress(browser: Browser) -> int:
    """What the bar of a copy says; 0 when there is none."""
    if browser.amount(".sync [role=progressbar]") == 0:
        return 0
    shown = browser.do("attribute", selector=".sync [role=progressbar]", name="aria-valuenow")
    return int(shown)


def test_a_copy_to_a_mirror_moves_can_be_stopped_and_is_in_the_timeline(
    browser: Browser, cluster: Cluster, api: Api
) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(cluster.url(1)))
    channel = connection.channel()
    channel.queue_declare("big.one", durable=True)
    channel.confirm_delivery()
    for _ in range(MESSAGES):
        channel.basic_publish("", "big.one", b"x" * BYTES)
    connection.close()
    # Without a policy until here: what was there before is to be copied.
    nodes = {"ha-mode": "nodes", "ha-params": list(cluster.nodes[:2]), "ha-sync-mode": "manual"}
    definition = {**nodes, "ha-sync-batch-size": 1}
    policy = {"pattern": "^big\\.", "definition": definition, "apply-to": "queues"}
    api.call("PUT", "policies/%2F/big", policy)
    browser.go("queues/%2F/big.one/mirrors")
    browser.wait(".ring .spot.behind")
    browser.wait(".explain >> text=/lacks [0-9]+ messages/")
    browser.click("button:has-text('Synchronise')")
    browser.wait("dialog >> text=goes on serving")
    browser.click("dialog button.primary")
    browser.until(lambda: progress(browser) > 0, "the copy has begun")
    before = progress(browser)
    browser.wait(".sync >> text=to go")
    browser.wait(".ring >> text=% copied")
    browser.until(lambda: progress(browser) > before, "the copy goes on")
    browser.click("button:has-text('Cancel synchronisation')")
    browser.wait("dialog >> text=What was copied so far stays")
    browser.confirm()
    browser.until(lambda: browser.amount(".sync [role=progressbar]") == 0, "the copy has stopped")
    browser.wait(".ring .spot.behind")
    browser.click("button:has-text('Synchronise')")
    browser.click("dialog button.primary")
    browser.until(lambda: browser.amount(".ring .spot.in-sync") == 2, "two copies in sync")
    browser.go("cluster")
    browser.wait(".events >> text=the copy to node2@localhost was cancelled")
    browser.wait(".events >> text=the copy to node2@localhost is complete")
    browser.until(lambda: browser.amount(".lane-copy.done") >= 1, "a bar of the copy")
    assert browser.amount(".lane-copy.cancelled") == 1
    api.call("DELETE", "policies/%2F/big")
    api.call("DELETE", "queues/%2F/big.one")
    assert browser.troubles() == []


def test_a_killed_node_is_in_the_timeline_and_the_ring_is_drawn_anew(
    browser: Browser, cluster: Cluster, api: Api
) -> None:
    api.call("PUT", "queues/%2F/ha.watched", {"durable": True})
    definition = {"ha-mode": "all", "ha-sync-mode": "automatic"}
    policy = {"pattern": "^ha\\.", "definition": definition, "apply-to": "queues"}
    api.call("PUT", "policies/%2F/ha-all", policy)
    # One of its own: its master goes with it.
    Api(cluster.management_url(3)).call("PUT", "queues/%2F/ha.led", {"durable": True})
    browser.go("queues/%2F/ha.led/mirrors")
    browser.until(lambda: browser.amount(".ring .spot.in-sync") == 3, "three copies in sync")
    browser.go("queues/%2F/ha.watched/mirrors")
    browser.until(lambda: browser.amount(".ring .spot.in-sync") == 3, "three copies in sync")
    browser.go("cluster")
    browser.wait("text=live")
    cluster.kill(3)
    try:
        browser.wait(".events >> text=node3@localhost is down")
        browser.wait(".tile.down >> text=node3")
        browser.wait(".events >> text=/queue ha.led in .: node3 → node[12], failover, took [0-9]+/")
        browser.wait(".events >> text=/0 messages dropped, 0 redelivered/")
        # A click on a point of a lane opens its event.
        assert browser.amount(".events details[open]") == 0
        click = "new MouseEvent('click', { bubbles: true })"
        mark = "document.querySelector('.lane-mark.warn')"
        browser.do("evaluate", script=f"{mark}.dispatchEvent({click})")
        browser.wait(".events details[open] .event-json")
        browser.wait(".events details[open] >> text=/The log of node[123] about it/")
        browser.go("queues/%2F/ha.watched/mirrors")
        browser.until(lambda: browser.amount(".ring .spot.in-sync") == 2, "two copies in sync")
        browser.go("")
        browser.wait(".health.bad >> text=node3 is down")
        browser.wait(".health >> text=ha.watched")
    finally:
        cluster.start(3)
    browser.go("cluster")
    browser.until(lambda: browser.amount(".tile.down") == 0, "all nodes running")
    browser.wait(".events >> text=node3@localhost has started")
    browser.go("queues/%2F/ha.watched/mirrors")
    browser.until(lambda: browser.amount(".ring .spot.in-sync") == 3, "three copies again")


def test_the_timeline_outlives_the_node_that_shows_it(
    shared_browser: Browser, browser: Browser, cluster: Cluster
) -> None:
    """What the first node saw before it was killed is there when it is back."""
    browser.go("cluster")
    browser.wait(".events >> text=node3@localhost is down")
    downs = browser.amount(".lane-down")
    assert downs >= 1
    cluster.kill(1)
    cluster.start(1)
    cluster.wait_until_ready()
    shared_browser.open(cluster.management_url(1))
    shared_browser.log_in()
    shared_browser.go("cluster")
    shared_browser.wait(".events >> text=node3@localhost is down")
    shared_browser.wait(".events >> text=the copy to node2@localhost was cancelled")
    shared_browser.until(lambda: shared_browser.amount(".lane-down") >= downs, "its lanes")
    assert shared_browser.amount(".lane-copy.cancelled") == 1
    assert shared_browser.troubles() == []
