"""How old messages are and how far a mirror lags, as pages show it. Late: it suspends a node."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import pika
import pytest
from browser import Browser
from scene import Api

from warren.testing import Cluster

TILE = ".tile:has-text('Oldest message')"
DETAIL = ".ring .hop-label tspan"


@pytest.fixture
def channel(cluster: Cluster) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    parameters = pika.URLParameters(cluster.url(1))
    parameters.heartbeat = 0
    connection = pika.BlockingConnection(parameters)
    yield connection.channel()
    with contextlib.suppress(pika.exceptions.AMQPError):
        connection.close()


def test_the_age_of_the_oldest_message_is_shown(
    browser: Browser, channel: pika.adapters.blocking_connection.BlockingChannel
) -> None:
    channel.queue_declare("aging.one", durable=True)
    browser.go("queues/%2F/aging.one")
    browser.until(lambda: "–" in browser.text(TILE), "an empty queue has no age")
    channel.basic_publish("", "aging.one", b"no timestamp")
    browser.until(lambda: bool(re.search(r"\d s", browser.text(TILE))), "an age")
    browser.wait("dl >> text=Oldest message came")
    assert "ago" in browser.text("dl") or "now" in browser.text("dl")
    browser.go("queues?name=aging")
    browser.wait("th:has-text('Oldest')")
    browser.until(lambda: bool(re.search(r"\d s", browser.text("tbody tr"))), "an age in the list")
    channel.queue_delete("aging.one")
    assert browser.troubles() == []


def test_the_ring_tells_the_lag_of_a_mirror(
    browser: Browser,
    cluster: Cluster,
    channel: pika.adapters.blocking_connection.BlockingChannel,
) -> None:
    api = Api(cluster.management_url(1))
    definition = {"ha-mode": "all", "ha-sync-mode": "automatic", "ha-max-lag": 60_000}
    policy = {"pattern": "^lagging\\.", "definition": definition, "apply-to": "queues"}
    api.call("PUT", "policies/%2F/lagging", policy)
    channel.queue_declare("lagging.one", durable=True)
    browser.go("queues/%2F/lagging.one/mirrors")
    browser.until(lambda: browser.amount(".ring .spot.in-sync") == 3, "three copies in sync")
    browser.until(lambda: browser.amount(DETAIL) == 0, "no lag")
    heads = [text.lower() for text in browser.texts("[aria-label='Copies of the queue'] th")]
    for title in (
        "Applied",
        "On disk",
        "Operations behind",
        "Bytes behind",
        "Time behind",
        "Since",
    ):
        assert title.lower() in heads
    cluster.pause(3)
    try:
        for _ in range(20):
            channel.basic_publish("", "lagging.one", b"x" * 1000)
        channel.connection.process_data_events(0.1)
        # Before the node counts as dead.
        browser.wait(".ring .hop-label >> text=KiB, ")
        browser.wait("[aria-label='Copies of the queue'] td >> text=KiB")
    finally:
        cluster.resume(3)
    browser.until(lambda: browser.amount(DETAIL) == 0, "the lag is over")
    api.call("DELETE", "policies/%2F/lagging")
    api.call("DELETE", "queues/%2F/lagging.one")
    assert browser.troubles() == []
