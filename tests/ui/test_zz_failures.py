"""Nodes killed from the page, and a promotion whose cost is known later. Last: it hurts."""

from __future__ import annotations

import pika
from browser import Browser
from scene import Api

from warren.testing import Cluster

MESSAGES = 25


def test_a_node_of_a_try_out_is_killed_from_the_page(browser: Browser, cluster: Cluster) -> None:
    browser.go("cluster")
    browser.wait(".try-out >> text=started to try things out")
    browser.do("choose", selector="[aria-label='Node to kill']", value="node3@localhost")
    browser.click("button:has-text('Kill this node')")
    # What will happen, what it is called, and the way back.
    browser.wait("dialog >> text=ended at once, as by a crash")
    browser.wait("dialog >> text=get another one")
    browser.wait("dialog >> text=warren cluster start node3")
    browser.wait("dialog >> text=warren cluster kill node3")
    assert browser.do("disabled", selector="dialog button.danger")
    browser.confirm("node3")
    try:
        browser.wait(".events >> text=node3@localhost is down")
        browser.wait(".tile.down >> text=node3")
        browser.wait(".try-out >> text=Start node3 again:")
        browser.wait(".try-out .command >> text=warren cluster start node3")
        assert browser.judge() == []
    finally:
        if 3 not in cluster.running:
            cluster.start(3)
    browser.until(lambda: browser.amount(".tile.down") == 0, "all nodes running")
    browser.until(lambda: browser.amount(".try-out .command") == 0, "nothing to start")
    assert browser.troubles() == []


def test_nothing_is_killed_that_is_no_try_out(browser: Browser, cluster: Cluster) -> None:
    status = Api(cluster.management_url(1)).call("GET", "warren/cluster/status")
    browser.do(
        "pretend", path="warren/cluster/status", status=200, body={**status, "try_out": None}
    )
    browser.go("cluster")
    browser.wait(".tile >> text=node3")
    assert browser.amount(".try-out") == 0
    browser.do("pretend_no_more")
    browser.wait(".try-out")
    # Nor by who may not.
    browser.open(cluster.management_url(1))
    browser.log_in("olga", "a long one")
    browser.go("cluster")
    browser.wait(".tile >> text=node3")
    assert browser.amount(".try-out") == 0


def test_what_an_unclean_promotion_dropped_is_told_when_it_is_known(
    browser: Browser, cluster: Cluster
) -> None:
    api = Api(cluster.management_url(1))
    connection = pika.BlockingConnection(pika.URLParameters(cluster.url(2)))
    channel = connection.channel()
    channel.queue_declare("risky.one", durable=True)
    channel.confirm_delivery()
    for _ in range(MESSAGES):
        channel.basic_publish("", "risky.one", b"x", pika.BasicProperties(delivery_mode=2))
    connection.close()
    # A mirror that is never filled, and may take over all the same.
    definition = {
        "ha-mode": "nodes",
        "ha-params": [cluster.nodes[1], cluster.nodes[2]],
        "ha-sync-mode": "manual",
        "ha-promote-on-failure": "always",
    }
    policy = {"pattern": "^risky\\.", "definition": definition, "apply-to": "queues"}
    api.call("PUT", "policies/%2F/risky", policy)
    browser.go("queues/%2F/risky.one/mirrors")
    browser.wait(".ring .spot.behind")
    browser.wait(".explain >> text=node2@localhost dies now")
    browser.go("cluster")
    browser.wait("text=live")
    cluster.kill(2)
    promoted = ".events summary:has-text('queue risky.one in /: node2 → node3')"
    try:
        browser.wait(f"{promoted} >> text=not known until node2 is back")
    finally:
        cluster.start(2)
    browser.wait(f"{promoted} >> text={MESSAGES} messages dropped, put aside on node2")
    browser.wait(".events >> text=messages that others do not have were put aside")
    api.call("DELETE", "policies/%2F/risky")
    api.call("DELETE", "queues/%2F/risky.one")
    assert browser.troubles() == []
