"""The keeper through random lives of a broker: what is rebuilt is what was durable."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from warren.auth.directory import Directory
from warren.engine.amqp_queue import AmqpQueue
from warren.engine.engine import Engine
from warren.engine.metadata import MetadataKeeper
from warren.engine.settings import EngineSettings
from warren.engine.vhost import DEFAULT_EXCHANGES
from warren.model.policy import Policy
from warren.model.queue_arguments import QueueDeclaration
from warren.routing.field_value import canonical_table
from warren.wire.tables import LongBytes, Timestamp

VHOSTS = ["/", "v\udcff"]
USERS = ["guest", "anna"]
EXCHANGES = ["e1", "e2", "e\udcfe", "amq.topic"]
QUEUES = ["q1", "q2", "q3", "q\udc80"]
KEYS = ["", "a", "a.\udcff"]
ARGUMENTS: list[dict[str, Any]] = [
    {},
    {"x": 1},
    {"x": True},
    {"x": 1.0, "k\udcff": None},
    {"t": Timestamp(5), "b": b"\xff", "s": LongBytes(b"\xff"), "deep": [{"x": [2**40]}]},
]
#: Which of the choices an operation makes; each takes those it needs.
CHOICE = st.integers(0, 59)


class StillClock:
    """Nothing here waits for time but a lease, which a step rings."""

    def __init__(self) -> None:
        self.ms = 1000

    def now_ms(self) -> int:
        return self.ms

    def wall_s(self) -> int:
        return self.ms // 1000


def make_engine() -> Engine:
    log = logging.getLogger("warren.silent")
    dice: Any = SimpleNamespace(token=lambda: "t")
    # Limits of a virtual host that is restored are its own, not those that new ones get.
    defaults = {"max-connections": 7}
    return Engine(
        EngineSettings(default_vhost_limits=defaults), Directory(), StillClock(), dice, log
    )


def durable_part(engine: Engine) -> dict[str, Any]:
    """All that must come back, taken from the engine itself, the order of bindings included."""
    directory, defaults = engine.directory, {name for name, _ in DEFAULT_EXCHANGES}
    found: dict[str, Any] = {
        "users": directory.list_users(),
        "permissions": directory.list_permissions(),
        "topic permissions": directory.list_topic_permissions(),
        "parameters": (engine.parameters, engine.global_parameters),
    }
    for vhost in engine.vhosts.values():
        queues = {q.name: q for q in vhost.queues.values() if q.declaration.durable}
        exchanges = {e.name: e for e in vhost.exchanges.values() if e.durable}
        ends = {"queue": queues, "exchange": exchanges}
        found[vhost.name] = {
            "is": (vhost.description, vhost.tags, directory.vhost_limits(vhost.name)),
            "policies": (vhost.policies, vhost.operator_policies),
            "queues": {
                q.name: [q.queue_id, q.durable, q.declaration, q.effective] for q in queues.values()
            },
            "queue arguments": {q.name: canonical_table(q.arguments) for q in queues.values()},
            "exchanges": {
                e.name: [e.type, e.auto_delete, e.internal, e.alternate]
                for e in exchanges.values()
                if e.name not in defaults
            },
            "exchange arguments": {
                e.name: canonical_table(e.arguments) for e in exchanges.values()
            },
            "bindings": {
                name: [
                    binding.identity
                    for binding in exchange.bindings()
                    if binding.destination in ends[binding.destination_kind]
                ]
                for name, exchange in exchanges.items()
            },
            "sources": {q.name: {s for s in q.sources if s in exchanges} for q in queues.values()},
        }
    return found


class Life:
    """A broker, its log, and operations that may be done to it in any order."""

    def __init__(self) -> None:
        self.engine = make_engine()
        self.records: list[bytes] = []
        self.keeper = MetadataKeeper(self.engine, self.records.append)
        self.numbered: list[int] = []
        self.gone: list[int] = []
        self.keeper.on_queue = lambda queue: self.numbered.append(queue.queue_id)
        self.keeper.on_queue_gone = lambda queue: self.gone.append(queue.queue_id)
        self.keeper.attach()
        self.engine.add_vhost("/")
        self.engine.directory.add_user("guest", "guest")
        self.engine.directory.set_permissions("guest", "/", ".*", ".*", ".*")

    def connection(self, vhost: str) -> Any:
        return SimpleNamespace(
            vhost=self.engine.vhosts[vhost],
            user="guest",
            exclusive_queues=set(),
            errand=None,
        )

    def do(self, operation: str, n: int) -> None:
        act: Callable[[int], None] = getattr(self, operation)
        vhost = VHOSTS[n >= 50]
        if operation != "make_vhost" and vhost not in self.engine.vhosts:
            return
        self.vhost = vhost
        act(n)
        self.engine.run_effects()

    # -- queues ------------------------------------------------------------------------------------

    def declare(self, n: int) -> None:
        name, arguments = QUEUES[n % 4], dict(ARGUMENTS[n % 5])
        if n % 3 == 0:
            arguments["x-expires"] = 100
        if name not in self.engine.vhosts[self.vhost].queues:
            connection = self.connection(self.vhost)
            is_own = n % 7 == 0
            self.engine.directory.set_permissions("guest", self.vhost, ".*", ".*", ".*")
            self.engine.declare_queue(connection, name, n % 4 != 1, is_own, n % 11 == 0, arguments)

    def delete(self, n: int) -> None:
        queue = self.engine.vhosts[self.vhost].queues.get(QUEUES[n % 4])
        if queue is not None:
            self.engine.remove_queue(queue)

    def let_leases_end(self, n: int) -> None:
        clock: Any = self.engine.clock
        clock.ms += 60
        self.engine.tick()

    # -- exchanges and bindings --------------------------------------------------------------------

    def declare_exchange(self, n: int) -> None:
        name = EXCHANGES[n % 3]
        if name not in self.engine.vhosts[self.vhost].exchanges:
            self.engine.directory.set_permissions("guest", self.vhost, ".*", ".*", ".*")
            arguments = dict(ARGUMENTS[n % 5])
            if n % 2:
                arguments["alternate-exchange"] = "amq.fanout"
            kind = ["direct", "topic", "fanout", "headers"][n % 4]
            self.engine.declare_exchange(
                self.connection(self.vhost),
                name,
                kind,
                n % 5 != 1,
                n % 2 == 0,
                n % 7 == 0,
                arguments,
            )

    def delete_exchange(self, n: int) -> None:
        vhost = self.engine.vhosts[self.vhost]
        if EXCHANGES[n % 3] in vhost.exchanges:
            self.engine.remove_exchange(vhost, vhost.exchanges[EXCHANGES[n % 3]])

    def _ends(self, n: int) -> tuple[Any, ...]:
        kind, names = ("exchange", EXCHANGES) if n % 3 == 0 else ("queue", QUEUES)
        source, destination = EXCHANGES[n % 4], names[n // 4 % 4]
        return kind, destination, source, KEYS[n % 3], dict(ARGUMENTS[n % 5])

    def bind(self, n: int) -> None:
        kind, destination, source, key, arguments = self._ends(n)
        vhost = self.engine.vhosts[self.vhost]
        targets = vhost.exchanges if kind == "exchange" else vhost.queues
        if source in vhost.exchanges and destination in targets:
            target = targets[destination]
            connection = self.connection(self.vhost)
            if isinstance(target, AmqpQueue) and target.owner is not None:
                connection = target.owner
            self.engine.directory.set_permissions("guest", self.vhost, ".*", ".*", ".*")
            self.engine.bind(connection, kind, destination, source, key, arguments)

    def unbind(self, n: int) -> None:
        vhost = self.engine.vhosts[self.vhost]
        bindings = [b for e in vhost.exchanges.values() for b in e.bindings()]
        if not bindings:
            return
        binding = bindings[n % len(bindings)]
        kind, destination = binding.destination_kind, binding.destination
        owner = vhost.queues[destination].owner if kind == "queue" else None
        self.engine.directory.set_permissions("guest", self.vhost, ".*", ".*", ".*")
        self.engine.unbind(
            owner or self.connection(self.vhost),
            kind,
            destination,
            binding.source,
            binding.routing_key.decode("utf-8", "surrogateescape"),
            binding.arguments,
        )

    # -- policies ----------------------------------------------------------------------------------

    def set_policy(self, n: int) -> None:
        definition: dict[str, Any] = {"max-length": n, "expires": 100 + n}
        if n % 2:
            definition["alternate-exchange"] = "amq.direct"
        policy = Policy(self.vhost, f"p{n % 3}", "^q|^e", definition, n % 2)
        if n % 4 == 0:
            policy = Policy(self.vhost, f"p{n % 3}", "1$", {"max-length": n}, 1, "queues")
        self.engine.set_policy(policy, operator=n % 4 == 0)

    def clear_policy(self, n: int) -> None:
        self.engine.clear_policy(self.vhost, f"p{n % 3}", operator=n % 4 == 0)

    # -- virtual hosts and users -------------------------------------------------------------------

    def make_vhost(self, n: int) -> None:
        self.engine.add_vhost(VHOSTS[n % 2])

    def describe_vhost(self, n: int) -> None:
        self.engine.describe_vhost(self.vhost, f"d{n}", [f"t{n}"] if n % 2 else None)
        self.engine.directory.set_vhost_limits(self.vhost, {"max-queues": n + 10} if n % 3 else {})

    def delete_vhost(self, n: int) -> None:
        if n % 8 == 0:
            self.engine.delete_vhost(self.vhost)

    def change_parameter(self, n: int) -> None:
        # The name of a global one may be that of a virtual host.
        name = VHOSTS[n % 2]
        if n % 5 == 0:
            self.engine.clear_parameter(self.vhost, "shovel", name)
            self.engine.clear_global_parameter(name)
        elif n % 5 < 3:
            self.engine.set_parameter(self.vhost, "shovel", name, {"n": [n, None, n / 2]})
        else:
            self.engine.set_global_parameter(name, n)

    def change_user(self, n: int) -> None:
        directory, name = self.engine.directory, "anna"
        if not directory.has_user(name):
            directory.put_user(name, "", tags=["t\udcff"])
        elif n % 6 == 0:
            directory.delete_user(name)
        elif n % 6 == 1:
            directory.set_user_tags(name, [f"t{n}"])
        elif n % 6 == 2:
            directory.set_user_limits(name, {"max-channels": n})
        elif n % 6 == 3:
            directory.clear_password(name)
        else:
            directory.change_password(name, f"secret{n}")

    def change_permissions(self, n: int) -> None:
        directory, user = self.engine.directory, USERS[n % 2]
        if not directory.has_user(user):
            return
        if n % 5 == 0:
            directory.clear_permissions(user, self.vhost)
        elif n % 5 == 1:
            directory.clear_topic_permissions(user, self.vhost, None if n % 2 else "e1")
        elif n % 5 == 2:
            directory.set_permissions(user, self.vhost, f"^{n}", ".*", "")
        else:
            directory.set_topic_permissions(user, self.vhost, EXCHANGES[n % 3], f"^{n}", ".*")


#: Each with how often it comes: what makes something more often than what takes it away.
OPERATIONS = [
    *["declare", "bind"] * 5,
    *["declare_exchange", "make_vhost", "change_user", "change_permissions"] * 3,
    *["unbind", "set_policy", "change_parameter"] * 2,
    *["delete", "let_leases_end", "delete_exchange", "clear_policy"],
    *["describe_vhost", "delete_vhost"],
]
STEPS = st.lists(st.tuples(st.sampled_from(OPERATIONS), CHOICE), min_size=30, max_size=120)


def rebuild(snapshot: bytes | None, records: list[bytes]) -> tuple[Engine, MetadataKeeper]:
    engine = make_engine()
    appended: list[bytes] = []
    keeper = MetadataKeeper(engine, appended.append)
    events: list[str] = []
    engine.listeners.append(lambda name, _: events.append(name))
    numbered: dict[int, str] = {}
    keeper.on_queue = lambda queue: numbered.update({queue.queue_id: queue.name})
    keeper.on_queue_gone = lambda queue: numbered.__delitem__(queue.queue_id)
    if snapshot is not None:
        keeper.load(snapshot)
    for record in records:
        keeper.apply(record)
    assert appended == []
    assert events == []
    queues = [queue for vhost in engine.vhosts.values() for queue in vhost.queues.values()]
    assert numbered == {queue.queue_id: queue.name for queue in queues}
    return engine, keeper


@settings(deadline=None, max_examples=150)
@given(steps=STEPS, moment=st.integers(0, 60))
def test_what_is_rebuilt_is_what_was_durable(steps: list[tuple[str, int]], moment: int) -> None:
    life = Life()
    snapshot, after = life.keeper.snapshot(), len(life.records)
    for number, (operation, n) in enumerate(steps):
        life.do(operation, n)
        if number == moment:
            snapshot, after = life.keeper.snapshot(), len(life.records)
    expected, at_end = durable_part(life.engine), life.keeper.snapshot()

    for engine, keeper in (rebuild(None, life.records), rebuild(snapshot, life.records[after:])):
        assert durable_part(engine) == expected
        assert keeper.snapshot() == at_end
        keeper.attach()
        vhost = engine.add_vhost("new")
        queue = engine.add_queue(vhost, "new", QueueDeclaration(durable=True), None)
        assert queue.queue_id == len(life.numbered) + 1
    engine, keeper = rebuild(at_end, [])
    assert durable_part(engine) == expected
    assert keeper.snapshot() == at_end

    # Numbers grow by one, each is told once when it is given and once when it is given back.
    assert life.numbered == list(range(1, len(life.numbered) + 1))
    live = {q.queue_id for v in life.engine.vhosts.values() for q in v.queues.values()} - {0}
    assert sorted(life.gone) == sorted(set(life.numbered) - live)


@settings(deadline=None, max_examples=50)
@given(steps=STEPS)
def test_a_log_cut_anywhere_can_be_read(steps: list[tuple[str, int]]) -> None:
    """Each record leaves everything whole: no binding, permission or policy without its ends."""
    life = Life()
    for operation, n in steps:
        life.do(operation, n)
    engine = make_engine()
    keeper = MetadataKeeper(engine, lambda payload: None)
    for record in life.records:
        keeper.apply(record)
        for vhost in engine.vhosts.values():
            for exchange in vhost.exchanges.values():
                for binding in exchange.bindings():
                    of_kind = {"queue": vhost.queues, "exchange": vhost.exchanges}
                    assert binding.destination in of_kind[binding.destination_kind]
        assert rebuild(keeper.snapshot(), [])[1].snapshot() == keeper.snapshot()
