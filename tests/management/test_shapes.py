"""The JSON of every captured route of a real RabbitMQ: the same keys, values of the same types.

The captures are of a mirrored cluster of 3.10; what belongs to Erlang's insides may hold other
keys, and what Warren does not count is listed here by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from management.api import Api, q
from warren.testing.broker import Broker

CAPTURES = Path(__file__).parent / "captures"
#: Keys of a capture that Warren does not have, by path; `[]` is any element of a list.
LACKING = {
    # Mirrors come with the cluster.
    "queues.json": {"[].slave_nodes", "[].synchronised_slave_nodes"},
    "queues_paged.json": {"items[].slave_nodes", "items[].synchronised_slave_nodes"},
    "queue_mirrored.json": {"slave_nodes", "synchronised_slave_nodes"},
    "queue_two.json": {"slave_nodes", "synchronised_slave_nodes"},
    # The extensions are scripts of RabbitMQ's own pages, the flags are those of its releases.
    "extensions.json": {"[].javascript"},
    "feature_flags.json": {
        f"[].{name}" for name in ("name", "desc", "doc_url", "state", "stability", "provided_by")
    },
}
#: Objects whose keys are data, or belong to the inside of RabbitMQ's queues.
OPEN = {
    "arguments",
    "client_properties",
    "definition",
    "effective_policy_definition",
    "cluster_state",
    "backing_queue_status",
    "socket_opts",
    "value",
    "cluster_links",
    "applications",
    "exchange_types",
    "contexts",
}
#: Keys that are there only in some states.
SOMETIMES = {"idle_since", "user_provided_name", "description"}


def kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return type(value).__name__


def merged(values: list[Any]) -> dict[str, list[Any]]:
    """Every key of some objects, with all its values."""
    keys: dict[str, list[Any]] = {}
    for value in values:
        for key, inner in value.items():
            keys.setdefault(key, []).append(inner)
    return keys


def differences(theirs: list[Any], ours: list[Any], path: str) -> Iterator[str]:
    """Where values of ours are not shaped as theirs."""
    theirs = [value for value in theirs if value is not None]
    ours = [value for value in ours if value is not None]
    if not theirs or not ours:
        return
    if {kind(value) for value in ours} - {kind(value) for value in theirs}:
        yield f"{path}: {kind(ours[0])} in place of {kind(theirs[0])}"
    elif isinstance(theirs[0], dict):
        mine = merged(ours)
        for key, values in merged(theirs).items():
            place = f"{path}.{key}" if path else key
            if key in SOMETIMES:
                continue
            if key not in mine:
                yield f"{place}: missing"
            elif key not in OPEN:
                yield from differences(values, mine[key], place)
    elif isinstance(theirs[0], list):
        inside = [item for value in theirs for item in value]
        mine_inside = [item for value in ours for item in value]
        yield from differences(inside, mine_inside, f"{path}[]")


@pytest.fixture(scope="module")
def busy(broker: Broker) -> Iterator[Broker]:
    """Traffic like that of the captured cluster: confirms, a consumer, a backlog, a policy."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("ha.orders", durable=True)
    channel.queue_declare("two.billing", durable=True)
    channel.queue_declare("plain", durable=True, arguments={"x-max-length": 100000})
    channel.exchange_declare("ev", "topic", durable=True)
    channel.queue_bind("ha.orders", "ev", "o.#", arguments={"k": "v"})
    for _ in range(20):
        channel.basic_publish("ev", "o.1", b"x" * 8, pika.BasicProperties(delivery_mode=2))
        channel.basic_publish("", "plain", b"hi")
    consuming = connection.channel()
    consuming.basic_qos(prefetch_count=10)
    consuming.basic_consume("ha.orders", lambda *_: None, consumer_tag="ctag1")
    connection.process_data_events(0.1)
    api = Api(broker.http_url)
    assert api.put(
        "/policies/%2F/ha-all",
        {"pattern": "^ha\\.", "apply-to": "queues", "definition": {"ha-mode": "all"}},
    ) in {201, 204}
    yield broker
    connection.close()


def first_name(api: Api, path: str) -> str:
    return q(api.get(path)[0]["name"])


ROUTES = {
    "aliveness.json": "/aliveness-test/%2F",
    "bindings.json": "/bindings",
    "channels.json": "/channels",
    "cluster_name.json": "/cluster-name",
    "connections.json": "/connections",
    "consumers.json": "/consumers",
    "definitions.json": "/definitions",
    "definitions_vhost.json": "/definitions/%2F",
    "exchange.json": "/exchanges/%2F/ev",
    "exchanges.json": "/exchanges/%2F",
    "extensions.json": "/extensions",
    "feature_flags.json": "/feature-flags",
    "global_parameters.json": "/global-parameters",
    "healthcheck_node.json": "/healthchecks/node",
    "nodes.json": "/nodes",
    "overview.json": "/overview",
    "overview_samples.json": "/overview?lengths_age=60&lengths_incr=5"
    "&msg_rates_age=60&msg_rates_incr=5",
    "parameters.json": "/parameters",
    "permissions.json": "/permissions",
    "policies.json": "/policies",
    "queue_mirrored.json": "/queues/%2F/ha.orders",
    "queue_plain.json": "/queues/%2F/plain",
    "queue_two.json": "/queues/%2F/two.billing",
    "queues.json": "/queues",
    "queues_paged.json": "/queues?page=1&page_size=2&name=orders",
    "topic_permissions.json": "/topic-permissions",
    "users.json": "/users",
    "vhost_limits.json": "/vhost-limits",
    "vhosts.json": "/vhosts",
    "whoami.json": "/whoami",
}


def test_every_capture_has_its_route() -> None:
    detail = {"channel_detail.json", "connection_detail.json", "node.json", "node_memory.json"}
    assert {path.name for path in CAPTURES.glob("*.json")} == {*ROUTES, *detail}


def check(name: str, ours: Any) -> None:
    theirs = json.loads((CAPTURES / name).read_text())
    found = set(differences([theirs], [ours], ""))
    expected = {f"{path}: missing" for path in LACKING.get(name, ())}
    if not ours:
        expected = set()
    assert found == expected


@pytest.mark.parametrize("name", sorted(ROUTES))
def test_shape(busy: Broker, name: str) -> None:
    check(name, Api(busy.http_url).get(ROUTES[name]))


def test_shapes_of_single_objects(busy: Broker) -> None:
    api = Api(busy.http_url)
    connection = api.get(f"/connections/{first_name(api, '/connections')}")
    # The capture holds empty texts where a connection without TLS has nothing to say.
    check("connection_detail.json", connection)
    check("channel_detail.json", api.get(f"/channels/{first_name(api, '/channels')}"))
    node = first_name(api, "/nodes")
    check("node.json", api.get(f"/nodes/{node}"))
    check("node_memory.json", api.get(f"/nodes/{node}/memory"))
