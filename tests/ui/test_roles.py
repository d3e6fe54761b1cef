"""Each kind of user sees what it may, and no button that would be refused for its tags."""

from __future__ import annotations

import pytest
from browser import Browser
from scene import Scene

from warren.testing import Cluster

EVERYBODY = (
    "Overview",
    "Queues",
    "Exchanges",
    "Topology",
    "Dead letters",
    "Connections",
    "Channels",
)
LOOKING = ("Policies", "Operator policies", "Virtual hosts", "Limits")
#: By user: the pages of its navigation, and whether it may make policies.
USERS: dict[str, tuple[set[str], bool]] = {
    "paul": ({*EVERYBODY, *LOOKING}, False),
    "petra": ({*EVERYBODY, *LOOKING, "Definitions"}, True),
    "olga": ({*EVERYBODY, *LOOKING, "Cluster", "Nodes", "Log", "Shovels"}, False),
}
STEPS = {
    "Overview": "",
    "Dead letters": "dead-letters",
    "Operator policies": "operator-policies",
    "Virtual hosts": "vhosts",
}


@pytest.mark.parametrize("name", USERS)
def test_pages_of(shared_browser: Browser, cluster: Cluster, scene: Scene, name: str) -> None:
    browser = shared_browser
    pages, makes_policies = USERS[name]
    browser.open(cluster.management_url(2))
    browser.log_in(name, "a long one")
    browser.wait("nav.side >> text=Queues")
    assert set(browser.texts("nav.side li")) == pages
    for page in sorted(pages):
        # None of them is refused anything that it shows.
        browser.go(STEPS.get(page, page.lower()))
        assert browser.amount(".notice.bad") == 0, page
        assert browser.troubles() == [], page
    for closed in ({"Users", "Salvage", "Cluster", "Log"}) - pages:
        browser.do("hash", hash=f"#/{closed.lower()}")
        browser.wait("text=Your tags do not open this page")
    browser.go("policies")
    browser.wait("main >> text=temporary")
    assert browser.amount("summary:has-text('Add / update a policy')") == int(makes_policies)
    browser.go("operator-policies")
    assert browser.amount("text=Add / update an operator policy") == 0
    browser.go("vhosts")
    assert browser.amount("text=Add a virtual host") == 0
    if name == "olga":
        # It sees the connections of all, and closes its own only.
        browser.go("connections")
        browser.click("tbody input[type=checkbox]")
        assert browser.do("disabled", selector=".bulk button:has-text('Close')")
    browser.go("queues/%2F/audit.all/mirrors")
    browser.wait("main >> text=The ring")
    assert browser.amount("text=Make it the master") == int(makes_policies)
    assert browser.troubles() == []
