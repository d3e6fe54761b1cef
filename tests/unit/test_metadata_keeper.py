"""The keeper of durable metadata: what it keeps, when it says so, and what comes back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from warren.auth.directory import Directory
from warren.engine.amqp_queue import AmqpQueue
from warren.engine.engine import Engine
from warren.engine.metadata import MetadataKeeper
from warren.engine.metadata_format import Kind, unpack
from warren.engine.settings import EngineSettings
from warren.management.definitions import DefinitionsError, import_definitions
from warren.model.errors import AmqpError, WireSyntaxError
from warren.model.policy import Policy
from warren.model.queue_arguments import QueueDeclaration
from warren.routing.binding import Binding, DestinationKind
from warren.routing.exchange import Exchange, make_exchange
from warren.wire.tables import TABLE_DEPTH_MAX, encode_table


def make_engine(clock: Any = None, **settings: Any) -> Engine:
    clock = clock or SimpleNamespace(now_ms=lambda: 1000, wall_s=lambda: 0)
    dice: Any = SimpleNamespace(token=lambda: "t")
    log = logging.getLogger("warren.silent")
    return Engine(EngineSettings(**settings), Directory(), clock, dice, log)


class Broker:
    """An engine with a keeper, new or from what another left; verbs that give what they make."""

    def __init__(
        self, records: list[bytes] | None = None, snapshot: bytes | None = None, **settings: Any
    ) -> None:
        self.now_ms = 1000
        clock = SimpleNamespace(now_ms=lambda: self.now_ms, wall_s=lambda: 0)
        self.engine = make_engine(clock, **settings)
        self.records: list[bytes] = []
        #: (what, queue, its number) for each call of the keeper.
        self.told: list[tuple[str, str, int]] = []
        self.keeper = MetadataKeeper(self.engine, self.records.append)
        self.keeper.on_queue, self.keeper.on_queue_gone = self._tell("came"), self._tell("went")
        if snapshot is not None:
            self.keeper.load(snapshot)
        for record in records or []:
            self.keeper.apply(record)
        assert not self.records
        self.keeper.attach()
        if records is None and snapshot is None:
            self.engine.add_vhost("/")

    def _tell(self, what: str) -> Callable[[AmqpQueue], None]:
        return lambda queue: self.told.append((what, queue.name, queue.queue_id))

    @property
    def vhost(self) -> Any:
        return self.engine.vhosts["/"]

    def queue(self, name: str, durable: bool = True, **arguments: Any) -> AmqpQueue:
        declaration = QueueDeclaration(durable, False, False, arguments)
        return self.engine.add_queue(self.vhost, name, declaration, None)

    def exchange(self, name: str, durable: bool = True, **more: Any) -> Exchange:
        return self.engine.add_exchange(
            self.vhost, make_exchange(name, "direct", durable=durable, **more)
        )

    def bind(self, source: str, target: AmqpQueue | Exchange, **arguments: Any) -> Binding:
        kind: DestinationKind = "exchange" if isinstance(target, Exchange) else "queue"
        binding = Binding(source, kind, target.name, b"k", arguments)
        exchange = self.vhost.exchanges[source]
        self.engine.add_binding(self.vhost, exchange, binding, target)
        return binding

    def changes(self) -> list[str]:
        """What was recorded since the last look: a line for each record."""
        lines = []
        for record in self.records:
            _, changes = unpack(record)
            lines.append(
                "; ".join(f"{'delete' if c.value is None else 'put'} {c}" for c in changes)
            )
        self.records.clear()
        return lines


@pytest.fixture
def broker() -> Broker:
    made = Broker()
    made.changes()
    return made


# -- what is kept ----------------------------------------------------------------------------------


def test_transient_and_exclusive_things_are_not_kept(broker: Broker) -> None:
    durable, transient = broker.queue("q"), broker.queue("t", durable=False)
    connection: Any = SimpleNamespace(vhost=broker.vhost, user="u", exclusive_queues=set())
    # Nobody can ask for both; the keeper would not be fooled if somebody could.
    declaration = QueueDeclaration(durable=True, exclusive=True)
    own = broker.engine.add_queue(broker.vhost, "own", declaration, connection)
    passing, kept = broker.exchange("passing", durable=False), broker.exchange("kept")
    assert broker.changes() == ["put queue '/', 'q'", "put exchange '/', 'kept'"]
    assert [queue.queue_id for queue in (durable, transient, own)] == [1, 0, 0]
    assert [queue.durable for queue in (durable, transient, own)] == [True, False, False]
    broker.bind("kept", transient)
    broker.bind("kept", own)
    broker.bind("kept", passing)
    broker.bind("passing", durable)
    binding = broker.bind("passing", kept)
    broker.engine.remove_binding(broker.vhost, passing, binding)
    broker.engine.remove_queue(transient)
    broker.engine.remove_queue(own)
    broker.engine.remove_exchange(broker.vhost, passing)
    assert broker.changes() == []
    assert broker.told == [("came", "q", 1)]


def test_the_default_exchanges_are_as_durable_as_any(broker: Broker) -> None:
    queue = broker.queue("q")
    broker.bind("amq.topic", queue)
    broker.bind("amq.topic", queue)
    assert broker.changes() == [
        "put queue '/', 'q'",
        "put binding '/', 'amq.topic', 'queue', 'q'",
    ]


def test_tracing_ends_with_the_node(broker: Broker) -> None:
    """As in RabbitMQ: the firehose is off after a restart."""
    broker.engine.set_tracing("/", True)
    assert broker.changes() == []


def nested(depth: int) -> dict[str, Any]:
    table: dict[str, Any] = {"x": 1}
    for _ in range(depth - 1):
        table = {"x": table}
    return table


def test_arguments_as_deep_as_a_client_can_send_them_are_kept(broker: Broker) -> None:
    deepest = nested(TABLE_DEPTH_MAX)
    encode_table(deepest)
    broker.bind("amq.headers", broker.queue("q", deep=deepest["x"]), x=deepest["x"])
    broker.exchange("e", arguments=deepest)
    again = Broker(snapshot=broker.keeper.snapshot())
    assert again.vhost.queues["q"].arguments == {"deep": deepest["x"]}
    assert again.vhost.exchanges["e"].arguments == deepest
    assert again.vhost.exchanges["amq.headers"].bindings()[0].arguments == deepest


def test_what_cannot_be_written_is_refused_whole(broker: Broker) -> None:
    """Only definitions can hold such numbers; clients' arguments come from tables."""
    queue, huge = broker.queue("q"), 2**70
    broker.engine.directory.put_user("u", "")
    broker.changes()
    before = broker.keeper.snapshot()
    policy = Policy("/", "p", ".*", {"max-length": huge})
    for attempt in (
        lambda: broker.queue("other", x=huge),
        lambda: broker.exchange("e", arguments={"x": huge}),
        lambda: broker.bind("amq.direct", queue, x=huge),
        lambda: broker.engine.set_policy(policy),
        lambda: broker.engine.directory.set_user_limits("u", {"max-channels": huge}),
        lambda: broker.engine.directory.set_vhost_limits("/", {"max-queues": huge}),
        lambda: broker.engine.describe_vhost("/", "\ud800"),
        lambda: broker.engine.add_vhost("\ud800"),
    ):
        with pytest.raises(WireSyntaxError):
            attempt()
    assert broker.changes() == []
    assert broker.keeper.snapshot() == before
    assert list(broker.vhost.queues) == ["q"]
    assert "e" not in broker.vhost.exchanges
    assert broker.vhost.exchanges["amq.direct"].bindings() == []
    assert broker.vhost.policies == {}
    assert broker.engine.directory.user("u").limits == {}
    assert list(broker.engine.vhosts) == broker.engine.directory.list_vhosts() == ["/"]
    assert broker.queue("next").queue_id == 2


def test_a_log_that_takes_nothing_more_stops_additions(broker: Broker) -> None:
    def fail(_payload: bytes) -> None:
        raise OSError("no space")

    engine = make_engine()
    keeper = MetadataKeeper(engine, fail)
    keeper.load(broker.keeper.snapshot())
    keeper.attach()
    with pytest.raises(OSError, match="no space"):
        engine.add_queue(engine.vhosts["/"], "q", QueueDeclaration(durable=True), None)
    with pytest.raises(OSError, match="no space"):
        engine.directory.put_user("u", "")
    assert not engine.vhosts["/"].queues
    assert not engine.directory.has_user("u")


# -- numbers of queues -----------------------------------------------------------------------------


def test_a_queue_has_its_number_before_anybody_can_find_it(broker: Broker) -> None:
    seen: list[tuple[int, bool, bool]] = []
    broker.keeper.on_queue = lambda queue: seen.append(
        (queue.queue_id, queue.durable, queue.name in broker.vhost.queues)
    )
    broker.queue("a")
    broker.queue("b")
    assert seen == [(1, True, False), (2, True, False)]


def test_a_number_is_never_given_twice() -> None:
    first = Broker()
    for name in "abc":
        first.queue(name)
    first.engine.remove_queue(first.vhost.queues["c"])
    second = Broker(list(first.records))
    assert second.queue("d").queue_id == 4
    second.engine.remove_queue(second.vhost.queues["d"])
    third = Broker(snapshot=second.keeper.snapshot())
    fourth = Broker(snapshot=third.keeper.snapshot())
    assert fourth.queue("e").queue_id == 5
    assert [queue.queue_id for queue in fourth.vhost.queues.values()] == [1, 2, 5]


def test_who_asked_is_told_of_restored_queues() -> None:
    first = Broker()
    for name in "abc":
        first.queue(name)
    first.engine.remove_queue(first.vhost.queues["b"])
    expected = [("came", "a", 1), ("came", "b", 2), ("came", "c", 3), ("went", "b", 2)]
    assert first.told == expected
    assert Broker(list(first.records)).told == expected
    assert Broker(snapshot=first.keeper.snapshot()).told == [expected[0], expected[2]]


# -- what goes together ----------------------------------------------------------------------------


def test_a_queue_goes_with_its_bindings_and_the_exchanges_it_leaves_alone(broker: Broker) -> None:
    queue = broker.queue("q")
    broker.bind("amq.topic", queue)
    broker.exchange("outer", auto_delete=True)
    broker.bind("outer", broker.exchange("inner", auto_delete=True))
    broker.bind("inner", queue)
    broker.changes()
    broker.engine.remove_queue(queue)
    assert broker.changes() == [
        "delete queue '/', 'q'; delete exchange '/', 'inner'; delete exchange '/', 'outer'"
    ]
    assert [change.kind for change in unpack(broker.keeper.snapshot())[1]] == [Kind.VHOST]


def test_an_exchange_lives_on_that_a_transient_queue_holds(broker: Broker) -> None:
    """After a restart that queue is gone; the exchange is not, and later records rest on it."""
    queue = broker.queue("q")
    broker.exchange("e", auto_delete=True)
    broker.bind("e", queue)
    broker.bind("e", broker.queue("t", durable=False))
    broker.engine.remove_queue(queue)
    broker.bind("e", broker.queue("q2"))
    snapshot = broker.keeper.snapshot()
    again = Broker([Broker().records[0], *broker.records])
    assert again.keeper.snapshot() == snapshot
    assert [b.destination for b in again.vhost.exchanges["e"].bindings()] == ["q2"]


def test_unbinding_the_last_takes_the_exchange_along(broker: Broker) -> None:
    exchange, queue = broker.exchange("e", auto_delete=True), broker.queue("q")
    binding = broker.bind("e", queue)
    broker.changes()
    broker.engine.remove_binding(broker.vhost, exchange, binding)
    assert broker.changes() == ["delete binding '/', 'e', 'queue', 'q'; delete exchange '/', 'e'"]


def test_a_virtual_host_is_one_deletion(broker: Broker) -> None:
    broker.bind("amq.topic", broker.queue("a"))
    broker.queue("b")
    broker.queue("t", durable=False)
    broker.bind("e", broker.exchange("e", auto_delete=True))
    broker.engine.directory.put_user("u", "")
    broker.engine.directory.set_permissions("u", "/", "", "", "")
    broker.engine.directory.set_topic_permissions("u", "/", "e", "", "")
    broker.engine.set_policy(Policy("/", "p", ".*", {"max-length": 1}))
    broker.engine.set_policy(Policy("/", "p", ".*", {"max-length": 1}), operator=True)
    broker.changes()
    broker.told.clear()
    broker.engine.delete_vhost("/")
    assert broker.changes() == ["delete vhost '/'"]
    assert broker.told == [("went", "a", 1), ("went", "b", 2)]
    assert [str(change) for change in unpack(broker.keeper.snapshot())[1]] == ["user 'u'"]
    broker.engine.add_vhost("/")
    assert broker.queue("a").queue_id == 3


def test_a_user_goes_with_its_permissions(broker: Broker) -> None:
    directory = broker.engine.directory
    for name in ("u", "w"):
        directory.put_user(name, "")
        directory.set_permissions(name, "/", "", "", "")
        directory.set_topic_permissions(name, "/", "e", "", "")
        directory.set_topic_permissions(name, "/", "f", "", "")
    broker.changes()
    directory.delete_user("u")
    directory.clear_topic_permissions("w", "/")
    directory.clear_topic_permissions("w", "/")
    directory.clear_permissions("w", "/")
    assert broker.changes() == [
        "delete user 'u'",
        "delete topic permission '/', 'w', 'e'; delete topic permission '/', 'w', 'f'",
        "delete permission '/', 'w'",
    ]
    left = [str(change) for change in unpack(broker.keeper.snapshot())[1]]
    assert left == ["vhost '/'", "user 'w'"]


def test_a_queue_that_nobody_uses_goes_by_its_lease(broker: Broker) -> None:
    broker.queue("q", **{"x-expires": 50})
    broker.changes()
    broker.now_ms += 51
    broker.engine.tick()
    assert broker.changes() == ["delete queue '/', 'q'"]


def test_its_messages_go_after_the_queue(broker: Broker) -> None:
    """Else a crash between the two would leave a queue that lost them."""
    queue = broker.queue("q")
    broker.keeper.on_queue_gone = lambda gone: broker.told.append(
        ("recorded" if broker.records else "not yet", gone.name, gone.deleted)
    )
    broker.changes()
    broker.told.clear()
    broker.engine.remove_queue(queue)
    assert broker.told == [("recorded", "q", True)]


def test_changes_before_a_fault_are_recorded_all_the_same(broker: Broker) -> None:
    def fail(event: str, _details: dict[str, Any]) -> None:
        raise RuntimeError(event)

    broker.engine.listeners.append(fail)
    with pytest.raises(RuntimeError):
        broker.engine.add_vhost("v")
    assert broker.changes() == ["put vhost 'v'"]


# -- users and virtual hosts -----------------------------------------------------------------------


def test_every_change_of_a_user_comes_back(broker: Broker) -> None:
    directory = broker.engine.directory
    directory.add_user("u", "one", ["a"])
    for change in (
        lambda: directory.change_password("u", "two"),
        lambda: directory.set_user_tags("u", ["b", "c"]),
        lambda: directory.set_user_limits("u", {"max-connections": 3}),
        lambda: directory.clear_password("u"),
    ):
        change()
        again = Broker(snapshot=broker.keeper.snapshot())
        assert again.engine.directory.user("u") == directory.user("u")
    assert len(broker.changes()) == 5


def test_limits_of_today_are_not_for_virtual_hosts_of_yesterday() -> None:
    first = Broker()
    first.engine.add_vhost("v")
    first.engine.describe_vhost("v", "text", ["t"])
    settings = {"vhost_max": 1, "default_vhost_limits": {"max-queues": 1}}
    again = Broker(list(first.records), **settings).engine
    assert (again.vhosts["v"].description, again.vhosts["v"].tags) == ("text", ["t"])
    assert again.directory.vhost_limits("v") == {}


def test_definitions_imported_again_change_nothing(broker: Broker) -> None:
    document = {
        "vhosts": [{"name": "v", "description": "d", "tags": ["t"], "limits": {"max-queues": 9}}],
        "users": [{"name": "u", "password_hash": "", "tags": "a", "limits": {"max-channels": 1}}],
        "permissions": [
            {"user": "u", "vhost": "v", "configure": "", "write": "", "read": ".*"},
        ],
        "topic_permissions": [
            {"user": "u", "vhost": "v", "exchange": "e", "write": "", "read": ".*"},
        ],
        "policies": [{"vhost": "v", "name": "p", "pattern": "", "definition": {"expires": 99999}}],
        "queues": [{"vhost": "v", "name": "q", "arguments": {"x-max-length": 5}}],
        "exchanges": [{"vhost": "v", "name": "e", "type": "topic"}],
        "bindings": [{"vhost": "v", "source": "e", "destination": "q", "routing_key": "#"}],
    }
    import_definitions(broker.engine, document)
    assert broker.changes() != []
    again = Broker(snapshot=broker.keeper.snapshot())
    import_definitions(again.engine, document)
    assert again.changes() == []
    assert again.keeper.snapshot() == broker.keeper.snapshot()


def test_a_row_that_cannot_be_kept_is_reported(broker: Broker) -> None:
    rows = [{"vhost": "/", "name": "bad", "arguments": {"x": [2**70]}}]
    with pytest.raises(DefinitionsError, match=r"queues\[0\] \('bad'\).*64 bits"):
        import_definitions(broker.engine, {"queues": rows})


# -- misuse ----------------------------------------------------------------------------------------


def test_a_keeper_must_know_everything_in_its_engine() -> None:
    for make in (
        lambda engine: engine.add_vhost("v"),
        lambda engine: engine.directory.put_user("u", ""),
    ):
        engine = make_engine()
        make(engine)
        with pytest.raises(RuntimeError, match="not told of"):
            MetadataKeeper(engine, print).attach()


def test_the_log_is_read_before_work_begins(broker: Broker) -> None:
    snapshot = broker.keeper.snapshot()
    with pytest.raises(RuntimeError):
        broker.keeper.load(snapshot)
    with pytest.raises(RuntimeError):
        broker.keeper.apply(snapshot)


def test_is_empty() -> None:
    broker = Broker()
    assert not broker.keeper.is_empty
    assert MetadataKeeper(broker.engine, print).is_empty
    broker.engine.delete_vhost("/")
    assert broker.keeper.is_empty


def test_refused_by_the_engine_is_not_recorded(broker: Broker) -> None:
    queue = broker.queue("q")
    broker.changes()
    hashed = make_exchange("h", "x-consistent-hash", durable=True)
    broker.engine.add_exchange(broker.vhost, hashed)
    broker.changes()
    with pytest.raises(AmqpError):
        broker.bind("h", queue)
    assert broker.changes() == []
