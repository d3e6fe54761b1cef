"""The headers exchange: a binding's arguments are compared with the message's headers.

`x-match` says how: `all` (also without it) or `any` of the arguments, where names that begin with
`x-` do not count; `all-with-x` and `any-with-x` count them too, `x-match` itself never. A void
argument asks only that the header is there. `all` of nothing matches, `any` of nothing does not.

Each argument is a term: a name with a value, or a name alone. A binding of the `any` kind is found
under each of its terms. One of the `all` kind is found under a single term, the one that the fewest
bindings use, and then checked for the rest; so a message touches hardly any binding it does not
match, even where thousands share a popular term.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any, Final, TypeVar

from warren.model.errors import PreconditionFailed
from warren.model.queue_arguments import amqp_type_name
from warren.routing.field_value import canonical, erlang_binary, text_of
from warren.routing.matcher import Table

MATCH_KINDS: Final = ("all", "any", "all-with-x", "any-with-x")


class _Anything:
    """The value of a term that asks only for the header's presence."""


_ANYTHING: Final = _Anything()
_Term = tuple[str, Hashable]
_Identity = tuple[bool, frozenset[_Term], Hashable]
_Key = TypeVar("_Key", bound=Hashable)


class _Rule:
    """One pattern of arguments together with its destination."""

    __slots__ = ("count", "destination", "places", "rest", "sequence")

    def __init__(self, sequence: int, destination: Hashable) -> None:
        self.sequence = sequence
        self.destination = destination
        #: How many bindings are this rule.
        self.count = 1
        #: The terms the rule is found under.
        self.places: frozenset[_Term] = frozenset()
        #: The terms to check when it is found.
        self.rest: frozenset[_Term] = frozenset()


class HeadersMatcher:
    """Bindings indexed by the terms of their arguments."""

    caches_by_key = False

    def __init__(self) -> None:
        self._rules: dict[_Identity, _Rule] = {}
        #: term -> rules found there
        self._index: dict[_Term, dict[_Rule, None]] = {}
        #: The rules that ask for nothing and match everything.
        self._always: dict[_Rule, None] = {}
        #: How many rules have a term, found under it or not.
        self._uses: Counter[_Term] = Counter()
        #: How many of those terms have a name; a header of any other name is passed over.
        self._names: Counter[str] = Counter()
        self._sequence = 0

    @property
    def is_empty(self) -> bool:
        return not self._rules

    def validate(self, routing_key: bytes, arguments: Table) -> None:  # noqa: ARG002
        """Refuse an unknown `x-match`. Raises: PreconditionFailed."""
        if "x-match" not in arguments:
            return
        value = arguments["x-match"]
        kind = text_of(value)
        if kind is None:
            raise PreconditionFailed(
                f"Invalid x-match field type {amqp_type_name(value)} (value {value}); "
                "expected longstr"
            )
        if kind not in MATCH_KINDS:
            raise PreconditionFailed(
                f"Invalid x-match field value {erlang_binary(kind)}; "
                "expected all, any, all-with-x, or any-with-x"
            )

    def bind(self, routing_key: bytes, arguments: Table, destination: Hashable) -> None:  # noqa: ARG002
        matches_any, terms = _parse(arguments)
        identity = (matches_any, terms, destination)
        if identity in self._rules:
            self._rules[identity].count += 1
            return
        rule = self._rules[identity] = _Rule(self._sequence, destination)
        self._sequence += 1
        for term in terms:
            self._uses[term] += 1
            self._names[term[0]] += 1
        if matches_any:
            rule.places = terms
        elif terms:
            rule.places = frozenset((min(terms, key=self._rarity),))
            rule.rest = terms - rule.places
        else:
            self._always[rule] = None
        for term in rule.places:
            self._index.setdefault(term, {})[rule] = None

    def unbind(self, routing_key: bytes, arguments: Table, destination: Hashable) -> None:  # noqa: ARG002
        matches_any, terms = _parse(arguments)
        identity = (matches_any, terms, destination)
        rule = self._rules[identity]
        rule.count -= 1
        if rule.count:
            return
        del self._rules[identity]
        self._always.pop(rule, None)
        for term in rule.places:
            rules = self._index[term]
            del rules[rule]
            if not rules:
                del self._index[term]
        for term in terms:
            _count_down(self._uses, term)
            _count_down(self._names, term[0])

    def match(
        self,
        routing_key: bytes,  # noqa: ARG002
        headers: Table | None,
        properties: Table | None = None,  # noqa: ARG002
    ) -> list[Any]:
        found = list(self._always)
        if headers:
            terms = self._terms_of(headers)
            for term in terms:
                rules = self._index.get(term)
                if rules is not None:
                    found += [rule for rule in rules if rule.rest <= terms]
        if len(found) <= 1:
            return [rule.destination for rule in found]
        found.sort(key=_sequence_of)
        return list(dict.fromkeys([rule.destination for rule in found]))

    def _terms_of(self, headers: Table) -> set[_Term]:
        """Every term that the headers fulfil, as far as any binding may ask for it."""
        terms: set[_Term] = set()
        for name, value in headers.items():
            if name in self._names:
                terms.add((name, canonical(value)))
                terms.add((name, _ANYTHING))
        return terms

    def _rarity(self, term: _Term) -> tuple[int, bool, str]:
        # A value says more than mere presence; the name makes the choice the same in every process.
        return self._uses[term], term[1] is _ANYTHING, term[0]


def _sequence_of(rule: _Rule) -> int:
    return rule.sequence


def _count_down(counts: Counter[_Key], key: _Key) -> None:
    if counts[key] > 1:
        counts[key] -= 1
    else:
        del counts[key]


def _parse(arguments: Table) -> tuple[bool, frozenset[_Term]]:
    """Whether any term is enough, and the terms."""
    kind = text_of(arguments.get("x-match")) or "all"
    with_x = kind.endswith("-with-x")
    terms = frozenset(
        (name, _ANYTHING if value is None else canonical(value))
        for name, value in arguments.items()
        if name != "x-match" and (with_x or not name.startswith("x-"))
    )
    return kind.startswith("any"), terms
