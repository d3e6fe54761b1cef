"""Direct and fanout exchanges against a list of their bindings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.routing.direct import DirectMatcher
from warren.routing.fanout import FanoutMatcher

KEYS = st.sampled_from([b"", b"a", b"b", b"a.b", b"\xff"])
DESTINATIONS = st.sampled_from(["q1", "q2", "q3"])


@pytest.mark.parametrize("make_matcher", [DirectMatcher, FanoutMatcher])
@given(bindings=st.lists(st.tuples(KEYS, DESTINATIONS), max_size=20), data=st.data())
def test_matcher_equals_list(
    make_matcher: type[DirectMatcher] | type[FanoutMatcher],
    bindings: list[tuple[bytes, str]],
    data: st.DataObject,
) -> None:
    matcher = make_matcher()
    by_key = make_matcher is DirectMatcher
    bound: dict[tuple[bytes, str], int] = {}
    for key, destination in bindings:
        if data.draw(st.booleans(), label="unbind first") and bound:
            victim = data.draw(st.sampled_from(list(bound)), label="victim")
            matcher.unbind(victim[0], {}, victim[1])
            bound[victim] -= 1
            if not bound[victim]:
                del bound[victim]
        matcher.bind(key, {}, destination)
        bound[key, destination] = bound.get((key, destination), 0) + 1
        for wanted in (b"", b"a", b"b", b"zz"):
            found = matcher.match(wanted, None)
            expected = {d: None for k, d in bound if not by_key or k == wanted}
            # A fanout counts by destination alone, so its order may be older than any one key's.
            assert found == list(expected) if by_key else sorted(found) == sorted(expected)
    for (key, destination), count in bound.items():
        for _ in range(count):
            assert not matcher.is_empty
            matcher.unbind(key, {}, destination)
    assert matcher.is_empty
    with pytest.raises(KeyError):
        matcher.unbind(b"a", {}, "q1")
