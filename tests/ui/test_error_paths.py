"""What pages show when something is wrong, or larger or stranger than usual."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from browser import Browser
from scene import Api

from warren.testing import Cluster

NAMES = {
    "slash": "a/b%2Fc%",
    "script": "<script>alert('x')</script>",
    "emoji": "\N{RABBIT}\N{CARROT} rabbits & carrots",
    "right to left": "\N{HEBREW LETTER SHIN}\N{HEBREW LETTER LAMED}.1",
    "long": "x" * 255,
    "quotes": 'it\'s "quoted" `so`',
}


def nodes(amount: int) -> list[dict[str, Any]]:
    return [
        {
            "name": f"node{number:03}@host{number:03}",
            "running": number != 7,
            "type": "disc",
            "role": "leader" if number == 1 else "follower",
            "version": "1",
        }
        for number in range(1, amount + 1)
    ]


def pretend(browser: Browser, path: str, status: int, body: object = None) -> None:
    browser.do("pretend", path=path, status=status, body=body)


@pytest.fixture
def pretending(browser: Browser) -> Browser:
    """A page whose API is told what to answer; what the browser says of that is no trouble."""
    return browser


@pytest.mark.parametrize(
    ("status", "reason", "told"),
    [
        (401, "User not authorised to access virtual host", "do not allow that"),
        (403, "Forbidden", "do not allow that"),
        (404, "Not Found", "There is no such thing."),
        (503, "node n2 does not answer", "there is no majority"),
        (500, "Internal Server Error", "its log says why"),
    ],
)
def test_refusals_are_explained(pretending: Browser, status: int, reason: str, told: str) -> None:
    browser = pretending
    pretend(browser, "queues/%2F/orders.paid", status, {"error": "x", "reason": reason})
    browser.do("hash", hash="#/queues/%2F/orders.paid")
    browser.wait(f".notice.bad:has-text('{told}')")
    # Still the page of the queue, with the way back.
    browser.wait("h1:has-text('orders.paid')")
    browser.wait(".trail >> text=Queues")
    pretend(browser, "queues", status, {"error": "x", "reason": reason})
    browser.do("hash", hash="#/queues")
    browser.wait(f".notice.bad:has-text('{told}')")
    browser.do("pretend_no_more")
    # It is asked again, and the page is as if nothing had been.
    browser.wait("main >> text=orders.shipped")
    assert browser.amount(".notice.bad") == 0


def test_a_session_that_ends_leads_back_to_where_one_was(pretending: Browser) -> None:
    browser = pretending
    browser.go("queues?name=orders")
    pretend(browser, "queues", 401, {"error": "not_authorized", "reason": "Login failed"})
    browser.wait("text=Your session has ended")
    browser.do("pretend_no_more")
    browser.fill("input[name=username]", "guest")
    browser.fill("input[name=password]", "guest")
    browser.click("button:has-text('Log in')")
    browser.wait("main >> text=orders.shipped")
    assert browser.do("evaluate", script="location.hash") == "#/queues?name=orders"


def test_a_node_that_is_gone_is_told_and_what_was_known_stays(pretending: Browser) -> None:
    browser = pretending
    browser.go("queues")
    browser.wait("main >> text=orders.shipped")
    pretend(browser, ".*", 0)
    browser.wait(".notice.bad:has-text('The node does not answer')")
    assert browser.amount("tbody tr") > 5
    browser.do("pretend_no_more")
    browser.until(lambda: browser.amount(".notice.bad") == 0, "the node is back")


def test_strange_names(browser: Browser, cluster: Cluster) -> None:
    api = Api(cluster.management_url(1))
    for name in NAMES.values():
        api.call("PUT", f"queues/%2F/{quote(name, safe='')}", {"durable": True})
    try:
        for kind, name in NAMES.items():
            browser.go(f"queues/%2F/{quote(name, safe='')}")
            browser.wait("text=Queued messages")
            assert browser.text("h1") == name, kind
            width = browser.do("evaluate", script="document.documentElement.scrollWidth")
            assert width <= 1280, kind
            browser.go(f"queues?name={quote(name[:40], safe='')}")
            browser.until(lambda: browser.amount("tbody tr") >= 1, f"found: {kind}")
            browser.click("tbody td a")
            browser.wait("text=Queued messages")
            assert browser.text("h1") == name, kind
            for tab in ("messages", "bindings", "mirrors"):
                browser.go(f"queues/%2F/{quote(name, safe='')}/{tab}")
                assert browser.amount(".notice.bad") == 0, (kind, tab)
        # The dialog wants the very name, and the command is one that a shell takes.
        browser.go(f"queues/%2F/{quote(NAMES['quotes'], safe='')}")
        browser.click("button:has-text('Delete')")
        assert "'it'\\''s \"quoted\" `so`'" in browser.text("dialog .command")
        browser.confirm(NAMES["quotes"])
        browser.wait("h1:has-text('Queues')")
        assert browser.troubles() == []
    finally:
        for name in NAMES.values():
            if name != NAMES["quotes"]:
                api.call("DELETE", f"queues/%2F/{quote(name, safe='')}")


def test_two_hundred_nodes(pretending: Browser) -> None:
    browser = pretending
    all_nodes = nodes(200)
    body = {
        "node": "node001@host001",
        "cluster_name": "large",
        "app_running": True,
        "nodes": all_nodes,
        "partitions": {},
        "try_out": None,
    }
    pretend(browser, "warren/cluster/status", 200, body)
    names = [str(row["name"]) for row in all_nodes]
    rows = [
        {
            "name": f"q{number:03}",
            "vhost": "/",
            "node": names[number],
            "state": "running",
            "slave_nodes": [names[(number + 1) % 200], names[(number + 2) % 200]],
            "synchronised_slave_nodes": [names[(number + 1) % 200]],
        }
        for number in range(50)
    ]
    page = {"items": rows, "page": 1, "page_count": 4, "filtered_count": 200, "total_count": 200}
    pretend(browser, "queues", 200, page)
    browser.do("hash", hash="#/cluster/matrix")
    browser.wait("td >> text=q049")
    assert browser.amount(".matrix thead th") == 202
    assert browser.amount(".tile.down") == 1
    width = browser.do("evaluate", script="document.documentElement.scrollWidth")
    assert width <= 1280
    # The name of the queue stays where it is while nodes are gone through.
    script = """
    (() => {
      const box = document.querySelector('.matrix .scroll');
      box.scrollLeft = 3000;
      return document.querySelector('.matrix td').getBoundingClientRect().left
        - box.getBoundingClientRect().left;
    })()
    """
    assert abs(browser.do("evaluate", script=script)) < 2
    browser.do("hash", hash="#/cluster")
    browser.wait("text=that nothing happened to in this time are left out")
    assert browser.amount(".lane-name") < 20
    assert browser.judge() == []
    browser.do("pretend_no_more")


def test_a_ring_of_five_with_one_that_lags(pretending: Browser) -> None:
    browser = pretending
    replicas = [
        {
            "node": f"node{number}@localhost",
            "role": "master" if number == 1 else "mirror",
            "synchronised": number != 4,
            "online": number != 5,
            "applied": 1000,
            "position": 1000,
            "lag_messages": 250 if number == 3 else 0,
            "lag_bytes": 262_144 if number == 3 else 0,
            "lag_seconds": 1.5 if number == 3 else 0,
        }
        for number in range(1, 6)
    ]
    body = {"state": "running", "master": "node1@localhost", "commit": 12_345, "replicas": replicas}
    pretend(browser, "queues/%2F/audit.all/mirrors", 200, body)
    browser.go("queues/%2F/audit.all/mirrors")
    browser.wait(".ring .spot")
    assert browser.amount(".ring .spot") == 5
    assert browser.amount(".ring .spot.behind") == 1
    assert browser.amount(".ring .spot.down") == 1
    browser.wait(".ring .hop-label >> text=256 KiB")
    # No word of it is on another, or out of the picture.
    script = """
    (() => {
      const ring = document.querySelector('.ring').getBoundingClientRect();
      const texts = [...document.querySelectorAll('.ring text')];
      const boxes = texts.map((it) => it.getBoundingClientRect());
      const out = boxes.filter((it) => it.left < ring.left - 1 || it.right > ring.right + 1
        || it.top < ring.top - 1 || it.bottom > ring.bottom + 1).length;
      let over = 0;
      for (const a of boxes) for (const b of boxes) {
        const isOver = a !== b && a.left < b.right - 2 && b.left < a.right - 2
          && a.top < b.bottom - 4 && b.top < a.bottom - 4;
        if (isOver) over += 1;
      }
      return [out, over];
    })()
    """
    assert browser.do("evaluate", script=script) == [0, 0]
    browser.do("pretend_no_more")
