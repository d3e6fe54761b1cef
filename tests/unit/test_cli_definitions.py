"""Definitions: what an import makes, what it keeps, and what it says about bad rows."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from warren.auth.directory import Directory
from warren.auth.password import hash_password
from warren.base.system import SystemClock, SystemDice
from warren.engine.engine import Engine
from warren.engine.settings import EngineSettings
from warren.management.definitions import DefinitionsError, import_definitions, load_definitions

#: In the shape of a whole export of RabbitMQ 3.10, with one row of every kind.
EXPORT: dict[str, Any] = {
    "rabbit_version": "3.10.8",
    "rabbitmq_version": "3.10.8",
    "product_name": "RabbitMQ",
    "product_version": "3.10.8",
    "users": [
        {
            "name": "shop",
            "password_hash": hash_password("open sesame"),
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": ["monitoring", "policymaker"],
            "limits": {"max-connections": 5},
        },
        {"name": "old", "password_hash": "", "tags": "administrator,management"},
    ],
    "vhosts": [{"name": "/"}, {"name": "shop", "metadata": {"description": "d", "tags": ["t"]}}],
    "permissions": [
        {"user": "shop", "vhost": "shop", "configure": "^s", "write": ".*", "read": ".*"}
    ],
    "topic_permissions": [
        {"user": "shop", "vhost": "shop", "exchange": "ev", "write": "^o", "read": ".*"}
    ],
    "parameters": [
        {
            "vhost": "shop",
            "component": "vhost-limits",
            "name": "limits",
            "value": {"max-queues": 40},
        },
        {
            "vhost": "shop",
            "component": "operator_policy",
            "name": "cap",
            "value": {
                "pattern": ".*",
                "definition": {"max-length": 10},
                "priority": 1,
                "apply-to": "queues",
            },
        },
        {"vhost": "/", "component": "shovel", "name": "s", "value": {"src-queue": "q"}},
    ],
    "global_parameters": [
        {"name": "cluster_name", "value": "shops"},
        {"name": "internal_cluster_id", "value": "rabbitmq-cluster-id-x"},
    ],
    "policies": [
        {
            "vhost": "shop",
            "name": "two",
            "pattern": "^orders$",
            "apply-to": "queues",
            "definition": {"ha-mode": "exactly", "ha-params": 2, "message-ttl": 1000},
            "priority": 3,
        }
    ],
    "queues": [
        {
            "name": "orders",
            "vhost": "shop",
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-max-length": 100000},
        },
        {"name": "typed", "vhost": "shop", "durable": True, "type": "classic", "arguments": {}},
    ],
    "exchanges": [
        {
            "name": "ev",
            "vhost": "shop",
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {},
        }
    ],
    "bindings": [
        {
            "source": "ev",
            "vhost": "shop",
            "destination": "orders",
            "destination_type": "queue",
            "routing_key": "o.#",
            "arguments": {"k": "v"},
        },
        {
            "source": "ev",
            "vhost": "shop",
            "destination": "amq.fanout",
            "destination_type": "exchange",
            "routing_key": "#",
            "arguments": {},
        },
        {"source": "", "vhost": "shop", "destination": "orders", "destination_type": "queue"},
    ],
}


@pytest.fixture
def engine() -> Engine:
    log = logging.getLogger("warren.connection")
    return Engine(EngineSettings(), Directory(), SystemClock(), SystemDice(), log)


def import_one(engine: Engine, kind: str, **row: Any) -> None:
    import_definitions(engine, {kind: [row]})


def problems(engine: Engine, document: Any) -> tuple[str, ...]:
    with pytest.raises(DefinitionsError) as caught:
        import_definitions(engine, document)
    return caught.value.problems


def test_an_export_is_imported_whole(engine: Engine) -> None:
    done = import_definitions(engine, json.dumps(EXPORT))
    assert done == {
        "users": 2,
        "vhosts": 2,
        "permissions": 1,
        "topic_permissions": 1,
        "parameters": 3,
        "global_parameters": 2,
        "policies": 1,
        "queues": 2,
        "exchanges": 1,
        "bindings": 3,
    }
    directory = engine.directory
    assert directory.authenticate("shop", "open sesame", False).tags == (
        "monitoring",
        "policymaker",
    )
    assert directory.user("shop").limit("max-connections") == 5
    assert directory.user("old").tags == ("administrator", "management")
    assert directory.list_permissions("shop", "shop")[0].configure == "^s"
    assert directory.list_topic_permissions("shop", "shop")[0].write == "^o"
    assert directory.vhost_limits("shop") == {"max-queues": 40}
    assert engine.cluster_name == "shops"


def test_the_topology_of_an_export(engine: Engine) -> None:
    import_definitions(engine, EXPORT)
    vhost = engine.vhost("shop")
    assert (vhost.description, vhost.tags) == ("d", ["t"])
    queue = vhost.queue("orders")
    assert queue.policy is not None
    assert queue.operator_policy is not None
    assert (queue.policy.name, queue.operator_policy.name) == ("two", "cap")
    assert (queue.effective.max_length, queue.effective.message_ttl_ms) == (10, 1000)
    assert queue.declaration.durable
    found = {(b.destination_kind, b.destination) for b in vhost.exchange("ev").bindings()}
    assert found == {("queue", "orders"), ("exchange", "amq.fanout")}


def test_twice_is_once(engine: Engine) -> None:
    import_definitions(engine, EXPORT)
    queue = engine.vhost("shop").queue("orders")
    import_definitions(engine, EXPORT)
    assert engine.vhost("shop").queue("orders") is queue
    assert len(list(engine.vhost("shop").exchange("ev").bindings())) == 2


def test_merges_and_deletes_nothing(engine: Engine) -> None:
    import_definitions(engine, EXPORT)
    changed = {
        "users": [{"name": "shop", "password": "new", "tags": []}],
        "policies": [
            {"vhost": "shop", "name": "two", "pattern": ".*", "definition": {"message-ttl": 5}}
        ],
        "queues": [{"vhost": "shop", "name": "orders", "arguments": {"x-max-length": 1}}],
        "exchanges": [{"vhost": "shop", "name": "ev", "type": "fanout"}],
    }
    import_definitions(engine, changed)
    vhost = engine.vhost("shop")
    assert engine.directory.authenticate("shop", "new", True).tags == ()
    assert vhost.queue("orders").effective.message_ttl_ms == 5
    assert vhost.queue("orders").arguments == {"x-max-length": 100000}
    assert vhost.exchange("ev").type == "topic"
    assert "typed" in vhost.queues
    assert engine.directory.has_user("old")


def test_a_single_vhosts_export_names_no_vhost(engine: Engine) -> None:
    engine.add_vhost("here")
    document = {"queues": [{"name": "q", "durable": True}], "exchanges": [{"name": "e"}]}
    import_definitions(engine, document, vhost="here")
    assert set(engine.vhost("here").queues) == {"q"}
    assert problems(engine, document) == (
        "queues[0] ('q'): 'vhost' is missing",
        "exchanges[0] ('e'): 'vhost' is missing",
    )


def test_bad_rows_are_told_together_and_good_ones_applied(engine: Engine) -> None:
    engine.add_vhost("/")
    document = {
        "users": [{"name": "u", "password_hash": "x"}, {"name": "good", "password": "p"}],
        "permissions": [{"user": "nobody", "vhost": "/", "configure": "", "write": "", "read": ""}],
        "policies": [{"vhost": "/", "name": "p", "pattern": "(", "definition": {"expires": 1}}],
        "queues": [
            {"vhost": "/", "name": "q", "arguments": {"x-max-length": -1}},
            {"vhost": "/", "name": "fine"},
            {"vhost": "gone", "name": "q"},
        ],
        "exchanges": [{"vhost": "/", "name": "e", "type": "nope"}],
        "bindings": [
            {"vhost": "/", "source": "amq.direct", "destination": "missing"},
            {"vhost": "/", "source": "amq.direct", "destination": "x", "destination_type": "y"},
        ],
    }
    told = problems(engine, document)
    assert [problem.partition(":")[0] for problem in told] == [
        "users[0] ('u')",
        "permissions[0]",
        "policies[0] ('p')",
        "queues[0] ('q')",
        "queues[2] ('q')",
        "exchanges[0] ('e')",
        "bindings[0]",
        "bindings[1]",
    ]
    assert engine.directory.has_user("good")
    assert set(engine.vhost("/").queues) == {"fine"}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (b"{", "not a definitions file"),
        (b"\xff", "not a definitions file"),
        (b"[]", "Expected `object`, got `array`"),
        (b'{"users": [{"name": 1}]}', "Expected `str`, got `int` - at `$.users[0].name`"),
        (b'{"queues": [{}]}', "missing required field `name` - at `$.queues[0]`"),
    ],
)
def test_what_is_no_definitions_file(engine: Engine, document: bytes, expected: str) -> None:
    assert expected in problems(engine, document)[0]


def test_bad_parameter_values_are_told(engine: Engine) -> None:
    engine.add_vhost("/")
    with pytest.raises(DefinitionsError, match=r"parameters\[0\] \('limits'\): Expected `int`"):
        import_one(
            engine,
            "parameters",
            vhost="/",
            component="vhost-limits",
            name="limits",
            value={"max-queues": "many"},
        )


def test_a_directory_of_files(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(json.dumps({"queues": [{"vhost": "v", "name": "q"}]}))
    (tmp_path / "a.json").write_text(json.dumps({"vhosts": [{"name": "v"}]}))
    (tmp_path / "README").write_text("not read")
    assert load_definitions(engine, tmp_path) == {"vhosts": 1, "queues": 1}
    (tmp_path / "c.json").write_text("{")
    with pytest.raises(DefinitionsError, match=r"c\.json: not a definitions file"):
        load_definitions(engine, tmp_path)
    with pytest.raises(DefinitionsError, match=r"none\.json: cannot be read"):
        load_definitions(engine, tmp_path / "none.json")


def test_a_configured_cluster_name_stays(engine: Engine) -> None:
    engine.settings = EngineSettings(cluster_name="mine")
    import_definitions(engine, {"global_parameters": [{"name": "cluster_name", "value": "x"}]})
    assert engine.settings.cluster_name == "mine"
