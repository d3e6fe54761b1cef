"""Dead letters and what was put aside: looked at, sent back, brought back, thrown away."""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pytest
from browser import Browser
from scene import Api, put_aside

from warren.store.salvage import SalvageDirectory
from warren.testing import Cluster

REJECTED, PUSHED_OUT = 350, 60


@pytest.fixture
def api(cluster: Cluster) -> Api:
    return Api(cluster.management_url(1))


@pytest.fixture
def grave(cluster: Cluster, api: Api) -> Iterator[str]:
    """More dead letters than a page shows messages; asked for through another node than theirs."""
    connection = pika.BlockingConnection(pika.URLParameters(cluster.url(2)))
    channel = connection.channel()
    channel.confirm_delivery()
    to_grave = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "ui.grave"}
    channel.queue_declare("ui.grave", durable=True)
    channel.queue_declare("ui.work[*]", durable=True, arguments=to_grave)
    channel.queue_declare("ui.full", durable=True, arguments={**to_grave, "x-max-length": 5})
    for number in range(REJECTED):
        channel.basic_publish("", "ui.work[*]", b'{"order": %d}' % number)
    for number in range(PUSHED_OUT + 5):
        channel.basic_publish("", "ui.full", b"%d" % number)
    for _ in range(REJECTED):
        how, _, _ = channel.basic_get("ui.work[*]")
        channel.basic_reject(how.delivery_tag, requeue=False)
    connection.close()
    yield "ui.grave"
    for name in ("ui.grave", "ui.work%5B%2A%5D", "ui.full"):
        api.call("DELETE", f"queues/%2F/{name}")


def test_one_cause_is_sent_back(browser: Browser, api: Api, grave: str) -> None:
    browser.go("dead-letters")
    panel = f"section:has(h2:has-text('{grave}'))"
    browser.wait(f"{panel} >> text=rejected by a consumer")
    browser.wait(f"{panel} >> text={REJECTED + PUSHED_OUT} messages")
    rows = browser.texts(f"{panel} >> tbody tr")
    # All of them are counted, the most first.
    assert str(REJECTED) in rows[0]
    assert "ui.work[*]" in rows[0]
    assert str(PUSHED_OUT) in rows[1]
    browser.click(f"{panel} >> button:has-text('Example')")
    browser.wait(f'{panel} >> text="order": 0')
    browser.click(f"{panel} >> tr:has-text('rejected') >> button:has-text('Send back')")
    # What it will do, counted before it is done.
    browser.wait(f"dialog >> text={REJECTED} messages")
    browser.wait(f"dialog >> text={REJECTED} to ui.work[*]")
    browser.wait(f"dialog >> text={PUSHED_OUT} messages of other causes will not be touched")
    browser.wait("dialog >> text=--match 'queue=ui.work[[][*]]'")
    browser.click("dialog button:has-text('Send back')")
    browser.wait(f"text={REJECTED} messages sent back, 0 stayed")
    browser.wait_gone(f"{panel} >> text=rejected by a consumer")
    browser.wait(f"{panel} >> text=pushed out")
    ready = [
        api.call("GET", f"queues/%2F/{name}")["messages_ready"]
        for name in ("ui.work%5B%2A%5D", "ui.grave")
    ]
    assert ready == [REJECTED, PUSHED_OUT]
    assert browser.troubles() == []


def test_what_cannot_go_back_is_told_before(browser: Browser, api: Api, grave: str) -> None:
    """Their queue is gone: they would stay, and the dialog says so."""
    api.call("DELETE", "queues/%2F/ui.full")
    try:
        browser.go("dead-letters")
        panel = f"section:has(h2:has-text('{grave}'))"
        browser.click(f"{panel} >> tr:has-text('pushed out') >> button:has-text('Send back')")
        browser.wait("dialog >> text=No message can be sent back")
        browser.wait(f"dialog >> text={PUSHED_OUT} messages will stay")
    finally:
        api.call("PUT", "queues/%2F/ui.full", {"durable": True})


# -- salvage ---------------------------------------------------------------------------------------


@pytest.fixture
def folder(cluster: Cluster) -> SalvageDirectory:
    """Of the third node, while the browser asks the first."""
    return SalvageDirectory(str(cluster.data_dir(3) / "salvage"))


def test_salvaged_messages_are_looked_at_and_brought_back(
    browser: Browser, api: Api, folder: SalvageDirectory
) -> None:
    api.call("PUT", "queues/%2F/ui.saved", {"durable": True})
    put_aside(folder, "queue-1-1", 25, "ui.saved")
    browser.go("salvage")
    browser.click("a:has-text('25 messages of ui.saved')")
    browser.wait("main >> text=1 to 10 of 25")
    browser.wait('main >> text="order": 2000')
    browser.click("button:has-text('Later')")
    browser.wait("main >> text=11 to 20 of 25")
    browser.wait('main >> text="order": 2010')
    browser.click("button:has-text('Export')")
    browser.wait("text=25 messages exported")
    browser.click("button:has-text('Publish again')")
    browser.wait("dialog >> text=a second time")
    browser.wait("dialog >> text=warrenctl salvage republish queue-1-1.messages")
    browser.click("dialog button:has-text('Publish again')")
    browser.wait("text=25 messages are in ui.saved again")
    assert api.call("GET", "queues/%2F/ui.saved")["messages_ready"] == 25
    (first,) = api.call("POST", "queues/%2F/ui.saved/peek", {"count": 1})
    assert first["properties"]["headers"]["x-salvaged"] == "queue-1-1.messages"
    assert folder.find("queue-1-1.messages") is None
    api.call("DELETE", "queues/%2F/ui.saved")
    assert browser.troubles() == []


def test_a_piece_is_thrown_away_by_its_name_only(
    browser: Browser, cluster: Cluster, folder: SalvageDirectory
) -> None:
    put_aside(folder, "queue-2-2", 3, "gone")
    browser.go(f"salvage/{cluster.nodes[2]}/queue-2-2.messages")
    browser.click("button:has-text('Throw away')")
    browser.wait("dialog >> text=the only copy there is")
    assert browser.do("disabled", selector="dialog button.danger")
    browser.confirm("queue-2-2.messages")
    browser.wait("h1:has-text('Salvage')")
    assert folder.find("queue-2-2.messages") is None
    browser.wait_gone("main >> text=3 messages of gone")
    assert browser.troubles() == []


def test_headers_of_dead_letters_are_columns(browser: Browser, cluster: Cluster, api: Api) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(cluster.url(1)))
    channel = connection.channel()
    to_grave = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "ui.tenants"}
    channel.queue_declare("ui.tenants", durable=True)
    channel.queue_declare("ui.short", durable=True, arguments={**to_grave, "x-message-ttl": 1})
    for tenant in ("berlin", "lisbon"):
        headers = {"tenant": tenant, "try": 1}
        channel.basic_publish("", "ui.short", b"x", pika.BasicProperties(headers=headers))
    connection.close()
    try:
        browser.go("queues/%2F/ui.tenants/messages")
        browser.wait("text=Look into the queue")
        browser.click("button:has-text('As a table')")
        for _ in range(50):
            browser.click("button.primary:has-text('Look')")
            rows = browser.texts("main table tbody tr")
            if len(rows) == 2:
                break
        assert [("berlin" in row, "lisbon" in row) for row in rows] == [
            (True, False),
            (False, True),
        ]
        assert all("ui.short" in row for row in rows)
        browser.click("label:has-text('tenant')")
        assert not any("berlin" in row for row in browser.texts("main table tbody tr"))
        assert browser.troubles() == []
    finally:
        for name in ("ui.tenants", "ui.short"):
            api.call("DELETE", f"queues/%2F/{name}")
