"""What makes a hash consistent: fair shares, little movement, the same answer everywhere."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from warren.routing.consistent_hash import ConsistentHashMatcher

KEYS_COUNT = 4000
KEYS = [b"key-%d" % number for number in range(KEYS_COUNT)]
#: Six standard deviations of a share of KEYS_COUNT draws, at its widest.
TOLERANCE = 6 * 0.5 / KEYS_COUNT**0.5

WEIGHTS = st.lists(st.integers(1, 50), min_size=1, max_size=8)


def matcher_of(weights: dict[str, int]) -> ConsistentHashMatcher:
    matcher = ConsistentHashMatcher()
    for name, weight in weights.items():
        matcher.bind(b"%d" % weight, {}, name)
    return matcher


def routes(matcher: ConsistentHashMatcher) -> list[str]:
    found = [matcher.match(key, None) for key in KEYS]
    assert all(len(destinations) == 1 for destinations in found)
    return [destinations[0] for destinations in found]


@settings(max_examples=25)
@given(weights=WEIGHTS, salt=st.integers(0, 10**6))
def test_shares_follow_weights(weights: list[int], salt: int) -> None:
    named = {f"q{salt}-{number}": weight for number, weight in enumerate(weights)}
    counts = Counter(routes(matcher_of(named)))
    for name, weight in named.items():
        assert abs(counts[name] / KEYS_COUNT - weight / sum(weights)) < TOLERANCE


@settings(max_examples=25)
@given(weights=WEIGHTS, newcomer=st.integers(1, 50), salt=st.integers(0, 10**6))
def test_a_newcomer_takes_only_its_share(weights: list[int], newcomer: int, salt: int) -> None:
    named = {f"q{salt}-{number}": weight for number, weight in enumerate(weights)}
    matcher = matcher_of(named)
    before = routes(matcher)
    matcher.bind(b"%d" % newcomer, {}, "new")
    after = routes(matcher)
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) <= {"new"}
    assert abs(len(moved) / KEYS_COUNT - newcomer / (sum(weights) + newcomer)) < TOLERANCE
    matcher.unbind(b"%d" % newcomer, {}, "new")
    assert routes(matcher) == before


@settings(max_examples=10)
@given(weights=WEIGHTS, data=st.data())
def test_order_of_binding_does_not_count(weights: list[int], data: st.DataObject) -> None:
    named = {f"q{number}": weight for number, weight in enumerate(weights)}
    shuffled = dict(data.draw(st.permutations(list(named.items()))))
    assert routes(matcher_of(named)) == routes(matcher_of(shuffled))
