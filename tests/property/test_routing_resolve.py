"""Resolving a message's queues against a naive walk over random graphs of exchanges."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from warren.routing.binding import Binding
from warren.routing.exchange import Exchange, make_exchange
from warren.routing.resolve import resolve

EXCHANGES = ["e0", "e1", "e2", "e3", "e4"]
KEYS = [b"a", b"b", b""]


@dataclass(eq=False)
class Queue:
    """A destination that is no exchange."""

    name: str


@dataclass
class Plan:
    """A topology by names."""

    types: dict[str, str]
    #: (source, destination, key); destinations that begin with q are queues
    bindings: list[tuple[str, str, bytes]]
    alternates: dict[str, str] = field(default_factory=dict)


PLANS = st.builds(
    Plan,
    st.fixed_dictionaries({name: st.sampled_from(["direct", "fanout"]) for name in EXCHANGES}),
    st.lists(
        st.tuples(
            st.sampled_from(EXCHANGES),
            st.sampled_from([*EXCHANGES, "q0", "q1", "q2"]),
            st.sampled_from(KEYS),
        ),
        max_size=15,
    ),
    st.dictionaries(st.sampled_from(EXCHANGES), st.sampled_from([*EXCHANGES, "missing"])),
)


def build(plan: Plan) -> dict[str, Exchange]:
    exchanges = {name: make_exchange(name, kind) for name, kind in plan.types.items()}
    queues = {name: Queue(name) for name in ("q0", "q1", "q2")}
    for source, destination, key in plan.bindings:
        if destination in exchanges:
            binding = Binding(source, "exchange", destination, key, {})
            exchanges[source].bind(binding, exchanges[destination])
        else:
            exchanges[source].bind(
                Binding(source, "queue", destination, key, {}), queues[destination]
            )
    for name, alternate in plan.alternates.items():
        exchanges[name].alternate = alternate
    return exchanges


def step(plan: Plan, name: str, keys: list[bytes]) -> set[str]:
    """Everything one exchange leads to directly."""
    found = {
        destination
        for source, destination, key in plan.bindings
        if source == name and (plan.types[name] == "fanout" or key in keys)
    }
    if not found and plan.alternates.get(name) in plan.types:
        found = {plan.alternates[name]}
    return found


def reachable(plan: Plan, start: str, keys: list[bytes]) -> set[str]:
    reached = {start}
    while True:
        wider = reached.union(*(step(plan, name, keys) for name in reached if name in plan.types))
        if wider == reached:
            return {name for name in reached if name not in plan.types}
        reached = wider


@given(plan=PLANS, keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=3))
def test_resolve_equals_reachability(plan: Plan, keys: list[bytes]) -> None:
    exchanges = build(plan)
    for name in EXCHANGES:
        queues = resolve(exchanges[name], keys, None, None, exchanges.get)
        names = [queue.name for queue in queues]
        assert len(names) == len(set(names))
        assert set(names) == reachable(plan, name, keys)


@given(plan=PLANS)
def test_unbinding_a_destination_removes_every_way_to_it(plan: Plan) -> None:
    exchanges = build(plan)
    for exchange in exchanges.values():
        removed = exchange.unbind_destination("queue", "q0")
        assert all(binding.destination == "q0" for binding in removed)
        assert exchange.bindings_to("queue", "q0") == []
    for exchange in exchanges.values():
        for keys in ([b"a"], [b"b"], [b""]):
            names = [q.name for q in resolve(exchange, keys, None, None, exchanges.get)]
            assert "q0" not in names
