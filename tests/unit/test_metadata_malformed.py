"""Metadata that is not as it must be: always a MetadataError that names what is wrong."""

from __future__ import annotations

import logging
import random
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from warren.auth.directory import Directory
from warren.engine.engine import Engine
from warren.engine.metadata import MetadataError, MetadataKeeper
from warren.engine.metadata_format import FORMAT_VERSION
from warren.engine.settings import EngineSettings
from warren.model.policy import Policy
from warren.model.queue_arguments import QueueDeclaration
from warren.routing.binding import Binding
from warren.routing.exchange import make_exchange
from warren.wire.tables import LongBytes, encode_table

NO_ARGUMENTS = b""
QUEUE = {"id": 1, "auto_delete": False, "arguments": NO_ARGUMENTS}
EXCHANGE = {"type": "topic", "auto_delete": False, "internal": False, "arguments": NO_ARGUMENTS}
USER = {
    "password_hash": "",
    "hashing_algorithm": "rabbit_password_hashing_sha256",
    "tags": [],
    "limits": {},
}
POLICY = {
    "pattern": ".*",
    "definition": encode_table({"max-length": 1}),
    "priority": 0,
    "apply_to": "all",
}
BINDING = ["binding", "/", "amq.topic", "queue", "q", b"k", NO_ARGUMENTS]


def make_keeper() -> MetadataKeeper:
    clock: Any = SimpleNamespace(now_ms=lambda: 1000, wall_s=lambda: 0)
    dice: Any = SimpleNamespace(token=lambda: "t")
    log = logging.getLogger("warren.silent")
    return MetadataKeeper(Engine(EngineSettings(), Directory(), clock, dice, log), lambda _: None)


def record(*changes: object, **head: object) -> bytes:
    return encode_table({"v": FORMAT_VERSION, "changes": list(changes), **head})


def put(*key: object, **value: object) -> dict[str, object]:
    return {"put": list(key), "value": value}


def full_keeper() -> MetadataKeeper:
    """One of everything."""
    keeper = make_keeper()
    engine = keeper._engine
    keeper.attach()
    vhost = engine.add_vhost("/")
    engine.describe_vhost("/", "d", ["t"])
    engine.directory.set_vhost_limits("/", {"max-queues": 100})
    engine.directory.add_user("u", "p", ["administrator"])
    engine.directory.set_permissions("u", "/", ".*", ".*", ".*")
    engine.directory.set_topic_permissions("u", "/", "amq.topic", ".*", ".*")
    engine.set_policy(Policy("/", "p", ".*", {"max-length": 1}))
    engine.set_policy(Policy("/", "p", ".*", {"max-length": 1}), operator=True)
    engine.set_parameter("/", "shovel", "s", {"src": None})
    engine.set_global_parameter("g", [1.5])
    exchange = make_exchange("e", "topic", durable=True, arguments={"alternate-exchange": "x"})
    engine.add_exchange(vhost, exchange)
    declaration = QueueDeclaration(durable=True, arguments={"x-max-priority": 3})
    queue = engine.add_queue(vhost, "q", declaration, None)
    engine.add_binding(vhost, exchange, Binding("e", "queue", "q", b"k", {"x": 1}), queue)
    return keeper


@pytest.fixture
def keeper() -> MetadataKeeper:
    made = make_keeper()
    made.apply(record(put("vhost", "/", description="", tags=[])))
    return made


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (b"\x05", "not a metadata record: malformed field table"),
        (b"", "metadata record: 'v' is no number but None"),
        (record(v="1"), "metadata record: 'v' is no number but '1'"),
        (record(v=2), "metadata record of version 2, not 1"),
        (encode_table({"v": 1}), "'changes' is missing or no array"),
        (encode_table({"v": 1, "changes": {}}), "'changes' is missing or no array"),
        (record(5), "a change is no table but 5"),
        (record({}), "a change puts and deletes nothing"),
        (record({"put": []}), "a change puts and deletes nothing"),
        (record({"put": ["vhost", "v"]}), "neither a put with a value nor a delete"),
        (record({"delete": ["vhost", "v"], "value": {}}), "neither a put with a value"),
        (record({"delete": ["vhost", "v"], "put": ["vhost", "v"], "value": {}}), "neither a put"),
        (record(put("shovel", "x")), "unknown kind of entry 'shovel'"),
        (record(put(["vhost"], "x")), r"unknown kind of entry \['vhost'\]"),
        (record(put("queue", "/")), "a queue with a key of 1 parts"),
        (record(put("queue", "/", 5, **QUEUE)), "a name in the key of a queue is no text but 5"),
        (record(put("queue", "/", b"q", **QUEUE)), "a name in the key of a queue is no text"),
        (record(put(*BINDING[:5], "k", b"")), "routing key or arguments are not bytes"),
        (record(put(*BINDING[:5], LongBytes(b"\xff"), b"")), "routing key or arguments are not"),
        (record(put(*BINDING[:6], b"\x05")), "'q': arguments: malformed field table"),
        (record(put("binding", "/", "e", "user", "q", b"", b"")), "'user' is no kind of dest"),
    ],
)
def test_a_payload_that_cannot_be_read(
    keeper: MetadataKeeper, payload: bytes, problem: str
) -> None:
    before = keeper.snapshot()
    with pytest.raises(MetadataError, match=problem):
        keeper.apply(payload)
    assert keeper.snapshot() == before
    with pytest.raises(MetadataError, match=problem):
        make_keeper().load(payload)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (put("vhost", "v", tags=[]), "vhost 'v': 'description' is no text but None"),
        (put("vhost", "v", description="", tags=[1]), "vhost 'v': one of 'tags' is no text but 1"),
        (put("vhost", "v", description="", tags=""), "vhost 'v': 'tags' is no array but ''"),
        (put("parameter", "no", "c", "n", json=b"1"), "parameter 'no', 'c', 'n': vhost 'no' not"),
        (put("parameter", "/", "c", "n", json="1"), "'json' is no encoded JSON but '1'"),
        (put("parameter", "/", "c", "n", json=b"{"), "'json' is no JSON: "),
        (put("parameter", "/", "c", "n", json=b"[" * 5000), "'json' is no JSON: "),
        (put("global_parameter", "n"), "global parameter 'n': 'json' is no encoded JSON"),
        (put("vhost_limits", "no", limits={}), "vhost limits 'no': vhost 'no' does not exist"),
        (put("vhost_limits", "/", limits=[]), "vhost limits '/': 'limits' is no table but"),
        (put("vhost_limits", "/", limits={"x": 1}), "vhost limits '/': Unrecognised terms"),
        (put("user", "u", **{**USER, "password_hash": "?"}), "user 'u': .* is not a salted hash"),
        (put("user", "u", **{**USER, "hashing_algorithm": "x"}), "unknown hashing algorithm 'x'"),
        (put("permission", "/", "u", configure="", write="", read=""), "user 'u' does not exist"),
        (put("policy", "/", "p", **{**POLICY, "pattern": "("}), "policy '/', 'p': pattern should"),
        (put("policy", "/", "p", **{**POLICY, "priority": True}), "'priority' is no number"),
        (put("policy", "/", "p", **{**POLICY, "apply_to": "x"}), "apply-to 'x' unrecognised"),
        (put("policy", "/", "p", **{**POLICY, "definition": {}}), "is no encoded table"),
        (put("operator_policy", "no", "p", **POLICY), "operator policy 'no', 'p': vhost 'no'"),
        (put("exchange", "/", "e", **{**EXCHANGE, "type": "x"}), "unknown exchange type 'x'"),
        (put("exchange", "/", "e", **{**EXCHANGE, "internal": 1}), "'internal' is no truth value"),
        (put("exchange", "/", "amq.topic", **EXCHANGE), "exchange '/', 'amq.topic' is there alr"),
        (put("queue", "no", "q", **QUEUE), "queue 'no', 'q': vhost 'no' not found"),
        (put("queue", "/", "q", **{**QUEUE, "id": 0}), "queue '/', 'q': 0 is not the number of"),
        (put("queue", "/", "q", **{**QUEUE, "id": 2**32}), "4294967296 is not the number of a q"),
        (put("queue", "/", "q", **{**QUEUE, "arguments": b"\x09"}), "'q': arguments: malformed"),
        (
            put("queue", "/", "q", **{**QUEUE, "arguments": encode_table({"x-max-priority": -1})}),
            "queue '/', 'q': invalid arg 'x-max-priority'",
        ),
        (put(*BINDING), "'amq.topic', 'queue', 'q': no queue 'q' in vhost '/'"),
        ({"delete": ["queue", "/", "q"]}, "queue '/', 'q' is deleted but was not there"),
        ({"delete": ["exchange", "/", "amq.topic"]}, "'amq.topic' is deleted but was not there"),
        ({"delete": ["vhost", "v"]}, "vhost 'v' is deleted but was not there"),
        ({"delete": BINDING}, "is deleted but was not there"),
    ],
)
def test_a_change_that_cannot_be_made(
    keeper: MetadataKeeper, change: dict[str, object], problem: str
) -> None:
    """The others of its record are made; a broker serves what is sound."""
    others = [
        put("vhost", "first", description="", tags=[]),
        put("vhost", "last", description="", tags=[]),
    ]
    with pytest.raises(MetadataError, match=problem):
        keeper.apply(record(others[0], change, others[1]))
    assert list(keeper._engine.vhosts) == ["/", "first", "last"]
    assert not keeper._engine.restoring
    assert not keeper._engine.vhosts["/"].queues
    # What could not be used is not kept either.
    again = make_keeper()
    again.load(keeper.snapshot())
    assert again.snapshot() == keeper.snapshot()


def test_all_problems_are_named(keeper: MetadataKeeper) -> None:
    with pytest.raises(MetadataError) as caught:
        keeper.apply(record({"delete": ["user", "a"]}, {"delete": ["user", "b"]}))
    assert caught.value.problems == (
        "user 'a' is deleted but was not there",
        "user 'b' is deleted but was not there",
    )


def test_numbers_that_were_in_use(keeper: MetadataKeeper) -> None:
    keeper.apply(record(put("queue", "/", "a", **{**QUEUE, "id": 7})))
    for number in (7, 6):
        with pytest.raises(MetadataError, match=f"number {number} was in use before"):
            keeper.apply(record(put("queue", "/", "b", **{**QUEUE, "id": number})))
    keeper.apply(record(put("queue", "/", "b", **{**QUEUE, "id": 9})))


@pytest.mark.parametrize(("last", "ids"), [(1, (1, 1)), (1, (1, 2))])
def test_numbers_in_a_snapshot(last: int, ids: tuple[int, int]) -> None:
    keeper = make_keeper()
    queues = [put("queue", "/", f"q{n}", **{**QUEUE, "id": ids[n]}) for n in (0, 1)]
    vhost = put("vhost", "/", description="", tags=[])
    with pytest.raises(MetadataError, match=f"'q1': number {ids[1]} was never given to it"):
        keeper.load(record(vhost, *queues, last_queue_id=last))
    assert list(keeper._engine.vhosts["/"].queues) == ["q0"]


@pytest.mark.parametrize("last", [-1, 2**32])
def test_a_last_number_that_is_none(last: int) -> None:
    with pytest.raises(MetadataError, match="is not the number of a queue"):
        make_keeper().load(record(last_queue_id=last))


def test_numbers_run_out() -> None:
    keeper = make_keeper()
    vhost = put("vhost", "/", description="", tags=[])
    keeper.load(record(vhost, last_queue_id=2**32 - 2))
    keeper.attach()
    engine = keeper._engine
    declaration = QueueDeclaration(durable=True)
    last = engine.add_queue(engine.vhosts["/"], "a", declaration, None)
    assert last.queue_id == 2**32 - 1
    with pytest.raises(Exception, match="all numbers for durable queues have been given out"):
        engine.add_queue(engine.vhosts["/"], "b", declaration, None)
    assert list(engine.vhosts["/"].queues) == ["a"]


def test_damage_anywhere_is_an_error_or_harmless() -> None:
    """The log's checksums find damage first; whatever comes through must not crash the start."""
    whole = full_keeper().snapshot()
    for end in range(len(whole)):
        with pytest.raises(MetadataError):
            make_keeper().load(whole[:end])
    dice = random.Random(20)
    for _ in range(1500):
        damaged = bytearray(whole)
        for _ in range(dice.choice((1, 1, 2, 5))):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        keeper = make_keeper()
        with suppress(MetadataError):
            keeper.load(bytes(damaged))
        again = make_keeper()
        again.load(keeper.snapshot())
        assert again.snapshot() == keeper.snapshot()
