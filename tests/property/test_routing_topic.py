"""The topic trie against the rule of the specification, written down as it reads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from warren.routing.topic import TopicMatcher

WORDS = st.sampled_from([b"", b"a", b"b", b"ab", b"*", b"#"])
KEYS = st.lists(WORDS, max_size=6).map(b".".join) | st.text("ab.#*", max_size=8).map(str.encode)
DESTINATIONS = st.sampled_from(["q1", "q2", "q3", "q4"])
BINDINGS = st.lists(st.tuples(KEYS, DESTINATIONS), max_size=25)


def words_of(key: bytes) -> list[bytes]:
    return key.split(b".") if key else []


def matches(pattern: list[bytes], words: list[bytes]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == b"#":
        return matches(pattern[1:], words) or (bool(words) and matches(pattern, words[1:]))
    if not words:
        return False
    return pattern[0] in (b"*", words[0]) and matches(pattern[1:], words[1:])


def expected(bound: dict[tuple[bytes, str], int], key: bytes) -> list[str]:
    found = {
        destination: None
        for pattern, destination in bound
        if matches(words_of(pattern), words_of(key))
    }
    return list(found)


@given(bindings=BINDINGS, keys=st.lists(KEYS, min_size=1, max_size=10), data=st.data())
def test_trie_equals_naive_rule(
    bindings: list[tuple[bytes, str]], keys: list[bytes], data: st.DataObject
) -> None:
    matcher = TopicMatcher()
    # Insertion order is the order of first binding, as the matcher promises.
    bound: dict[tuple[bytes, str], int] = {}
    for pattern, destination in bindings:
        if data.draw(st.booleans(), label="unbind first") and bound:
            victim = data.draw(st.sampled_from(list(bound)), label="victim")
            matcher.unbind(victim[0], {}, victim[1])
            bound[victim] -= 1
            if not bound[victim]:
                del bound[victim]
        matcher.bind(pattern, {}, destination)
        bound[pattern, destination] = bound.get((pattern, destination), 0) + 1
        for key in keys:
            assert matcher.match(key, None) == expected(bound, key)
    for (pattern, destination), count in bound.items():
        for _ in range(count):
            assert not matcher.is_empty
            matcher.unbind(pattern, {}, destination)
    assert matcher.is_empty
    assert all(matcher.match(key, None) == [] for key in keys)


@given(hashes=st.integers(1, 200), words=st.integers(0, 120))
def test_many_hashes_cost_no_explosion(hashes: int, words: int) -> None:
    matcher = TopicMatcher()
    matcher.bind(b".".join([b"#"] * hashes + [b"end"]), {}, "q")
    assert matcher.match(b".".join([b"w"] * words + [b"end"]), None) == ["q"]
    assert matcher.match(b".".join([b"w"] * (words + 1)), None) == []
