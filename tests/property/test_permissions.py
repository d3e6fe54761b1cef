"""Permission checks against a table written out by hand, and against plain string operations."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.auth.directory import Directory
from warren.auth.permissions import Access, Permission, ResourceKind, expand_variables
from warren.model.errors import AccessRefused

names = st.text(
    alphabet=st.characters(blacklist_categories=["Cs"], blacklist_characters="\n"), max_size=12
)
accesses = st.sampled_from(["configure", "write", "read"])
kinds = st.sampled_from(["queue", "exchange"])

#: pattern, kind, name, allowed
TABLE = [
    ("", "queue", "q", False),
    ("", "queue", "", True),
    ("", "exchange", "", False),
    ("^$", "queue", "q", False),
    ("^$", "queue", "", True),
    ("^$", "exchange", "", False),
    (".*", "queue", "q", True),
    (".*", "exchange", "", True),
    ("^amq\\.default$", "exchange", "", True),
    ("^amq\\.default$", "queue", "", False),
    ("^amq\\.", "exchange", "amq.direct", True),
    ("a", "queue", "bab", True),
    ("^a", "queue", "bab", False),
    ("b$", "queue", "bab", True),
    ("^(one|two)$", "queue", "two", True),
    ("^(one|two)$", "queue", "twofold", False),
    ("A", "queue", "a", False),
]


@pytest.mark.parametrize("access", ["configure", "write", "read"])
@pytest.mark.parametrize(("pattern", "kind", "name", "allowed"), TABLE)
def test_table(access: Access, pattern: str, kind: ResourceKind, name: str, allowed: bool) -> None:
    # The other two say the opposite, so that a mixed-up column shows.
    other = "" if allowed else ".*"
    patterns = {"configure": other, "write": other, "read": other, access: pattern}
    assert Permission("u", "/", **patterns).allows(access, kind, name) is allowed


@given(names, names, accesses, kinds)
def test_patterns_are_searched(part: str, name: str, access: Access, kind: ResourceKind) -> None:
    quoted = re.escape(part)
    checked = "amq.default" if kind == "exchange" and not name else name
    searched = Permission("u", "/", quoted, quoted, quoted).allows(access, kind, name)
    assert searched == (part in checked if part else checked == "")
    prefix = f"^{quoted}"
    assert Permission("u", "/", prefix, prefix, prefix).allows(access, kind, name) == (
        checked.startswith(part)
    )


@given(st.lists(st.tuples(names, accesses, kinds), max_size=5), st.sets(accesses))
def test_directory_agrees_with_the_permission(
    requests: list[tuple[str, Access, ResourceKind]], granted: set[Access]
) -> None:
    directory = Directory()
    directory.add_vhost("v")
    directory.add_user("u", "pw")
    patterns = [".*" if access in granted else "" for access in ("configure", "write", "read")]
    directory.set_permissions("u", "v", *patterns)
    for name, access, kind in requests:
        if access in granted or (kind == "queue" and not name):
            directory.check_access("u", "v", kind, name, access)
        else:
            with pytest.raises(AccessRefused):
                directory.check_access("u", "v", kind, name, access)


@given(names, names)
def test_variables_match_literally(username: str, vhost: str) -> None:
    pattern = expand_variables("^{username}-{vhost}$", {"username": username, "vhost": vhost})
    assert re.search(pattern, f"{username}-{vhost}")
    assert not re.search(pattern, f"{username}-{vhost}x")
    assert expand_variables("{client_id}", {}) == "{client_id}"
