"""The metrics, read by Prometheus' own parser."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

import pika
import pytest
from prometheus_client.parser import text_string_to_metric_families

from warren.testing.broker import Broker

CAPTURE = Path(__file__).parent / "captures" / "prom_metrics.txt"
#: What the dashboard "RabbitMQ-Overview" (10991) asks for.
DASHBOARD = [
    "build_info",
    "identity_info",
    "channels",
    "channels_opened_total",
    "channels_closed_total",
    "connections",
    "connections_opened_total",
    "connections_closed_total",
    "consumers",
    "queues",
    "queues_created_total",
    "queues_declared_total",
    "queues_deleted_total",
    "queue_messages_ready",
    "queue_messages_unacked",
    "process_open_fds",
    "process_max_fds",
    "process_open_tcp_sockets",
    "process_max_tcp_sockets",
    "process_resident_memory_bytes",
    "resident_memory_limit_bytes",
    "disk_space_available_bytes",
    "global_publishers",
    "global_messages_received_total",
    "global_messages_received_confirm_total",
    "global_messages_routed_total",
    "global_messages_confirmed_total",
    "global_messages_unroutable_returned_total",
    "global_messages_unroutable_dropped_total",
    "global_messages_acknowledged_total",
    "global_messages_redelivered_total",
    "global_messages_get_empty_total",
    "global_messages_delivered_consume_auto_ack_total",
    "global_messages_delivered_consume_manual_ack_total",
    "global_messages_delivered_get_auto_ack_total",
    "global_messages_delivered_get_manual_ack_total",
]

Samples = dict[str, list[tuple[dict[str, str], float]]]


def scrape(broker: Broker, path: str = "/metrics") -> Samples:
    with urllib.request.urlopen(broker.metrics_url + path, timeout=60) as page:
        assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
        text = page.read().decode()
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def one(found: Samples, name: str) -> float:
    ((_, value),) = found[name]
    return value


@pytest.fixture(scope="module")
def busy(broker: Broker) -> Broker:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("m.q")
    channel.queue_declare("m.gone")
    for _ in range(5):
        channel.basic_publish("", "m.q", b"12345")
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("", "nobody", b"", mandatory=True)
    channel.basic_publish("", "nobody", b"")
    channel.basic_publish("", "m.gone", b"")
    channel.basic_get("m.gone", auto_ack=True)
    channel.queue_delete("m.gone")
    method, _, _ = channel.basic_get("m.q")
    channel.basic_ack(method.delivery_tag)
    channel.basic_get("m.q", auto_ack=True)
    connection.close()
    return broker


def test_the_dashboard_finds_all_it_asks_for(busy: Broker) -> None:
    found = scrape(busy)
    assert len(DASHBOARD) == 36
    assert [name for name in DASHBOARD if f"rabbitmq_{name}" not in found] == []
    labels = found["rabbitmq_identity_info"][0][0]
    assert set(labels) == {"rabbitmq_node", "rabbitmq_cluster", "rabbitmq_cluster_permanent_id"}


def test_counts_outlive_what_they_counted(busy: Broker) -> None:
    found = scrape(busy)
    expected = {
        "global_messages_received_total": 8,
        "global_messages_confirmed_total": 8,
        "global_messages_routed_total": 6,
        "global_messages_unroutable_returned_total": 1,
        "global_messages_unroutable_dropped_total": 1,
        "global_messages_delivered_get_manual_ack_total": 1,
        "global_messages_delivered_get_auto_ack_total": 2,
        "global_messages_acknowledged_total": 1,
        "queue_messages_ready": 3,
        "queue_messages_bytes": 15,
        "connections_opened_total": 1,
        "connections_closed_total": 1,
        "channels_closed_total": 1,
        "queues_created_total": 2,
        "queues_deleted_total": 1,
    }
    assert {name: one(found, f"rabbitmq_{name}") for name in expected} == expected


def test_labels_are_those_of_rabbitmq(busy: Broker) -> None:
    """A metric that RabbitMQ has too has its labels, or dashboards could not add them up."""
    theirs: dict[str, set[str]] = {}
    for line in CAPTURE.read_text().splitlines():
        parsed = re.match(r"(rabbitmq_\w+)(?:\{(.*)\})? ", line)
        if parsed is not None:
            labels = set(re.findall(r'(\w+)="', parsed.group(2) or ""))
            theirs.setdefault(parsed.group(1), labels)
    ours = scrape(busy)
    for name in set(theirs) & set(ours) - {"rabbitmq_build_info", "rabbitmq_identity_info"}:
        mine = set(ours[name][0][0])
        if mine != theirs[name]:
            assert theirs[name] - mine <= {"queue_type"}, (name, mine, theirs[name])


def test_objects_only_on_request(busy: Broker) -> None:
    assert scrape(busy)["rabbitmq_queue_messages_ready"][0][0] == {}
    rows = scrape(busy, "/metrics/per-object")["rabbitmq_queue_messages_ready"]
    assert ({"vhost": "/", "queue": "m.q"}, 3.0) in rows
    found = scrape(busy, "/metrics/detailed?family=queue_coarse_metrics&vhost=%2F")
    assert set(found) == {
        "rabbitmq_detailed_queue_messages_ready",
        "rabbitmq_detailed_queue_messages_unacked",
        "rabbitmq_detailed_queue_messages",
    }
    assert scrape(busy, "/metrics/detailed") == {}
    elsewhere = scrape(busy, "/metrics/detailed?family=queue_consumer_count&vhost=none")
    assert elsewhere == {}


def test_every_family_can_be_read(busy: Broker) -> None:
    from warren.management.metrics import FAMILIES

    with pika.BlockingConnection(pika.URLParameters(busy.url)) as connection:
        connection.channel()
        more = ("connection_churn_metrics", "auth_attempt_metrics", "vhost_status")
        for family in (*FAMILIES, *more, "exchange_bindings"):
            assert scrape(busy, f"/metrics/detailed?family={family}"), family


def test_names_with_odd_letters(busy: Broker) -> None:
    name = 'a"b\\c\nd'
    busy.call(lambda node: _declare(node, name))
    rows = scrape(busy, "/metrics/per-object")["rabbitmq_queue_messages_ready"]
    assert name in {labels["queue"] for labels, _ in rows}


def _declare(node: object, name: str) -> None:
    from warren.model.queue_arguments import QueueDeclaration
    from warren.node.node import Node

    assert isinstance(node, Node)
    node.engine.add_queue(node.engine.vhost("/"), name, QueueDeclaration(), None)


def test_mirrors_of_a_node_that_has_none(busy: Broker) -> None:
    for path in ("/metrics", "/metrics/per-object"):
        found = scrape(busy, path)
        assert one(found, "warren_mirrored_queues") == 0
        assert one(found, "warren_queues_without_synchronised_mirror") == 0
        assert one(found, "warren_salvage_files") == 0
        reasons = {labels["reason"] for labels, _ in found["warren_promotions_total"]}
        assert reasons == {"clean", "unclean"}


def test_head(busy: Broker) -> None:
    request = urllib.request.Request(f"{busy.metrics_url}/metrics", method="HEAD")
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 204
