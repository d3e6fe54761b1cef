"""A cluster with something to look at, and a browser to look with."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from browser import HOW_TO_INSTALL, ROOT, Browser, find_chromium
from scene import Scene

from warren.testing import Cluster

#: Copies to mirrors are slow enough to be looked at.
CONFIG = {
    "collect_statistics_interval": 500,
    "mirroring_sync_max_throughput": "300KB",
    # As `warren cluster up` has it: nodes may be killed from the page.
    "cluster.try_out": "warren cluster start {node}",
}
BUILT = ROOT / "src" / "warren" / "management" / "ui" / "index.html"


@pytest.fixture(scope="session")
def chromium() -> str:
    """The program; without it these tests are left out, and say so loudly."""
    found = find_chromium()
    if found is None:
        sys.stderr.write(f"\n*** THE WEB UI IS NOT TESTED: {HOW_TO_INSTALL} ***\n")
        pytest.skip(HOW_TO_INSTALL)
    if shutil.which("node") is None and not (ROOT / ".venv" / "bin" / "node").exists():
        pytest.fail("the tests of the web UI need Node.js: 'make webui' gets it")
    assert BUILT.exists(), "the web UI is not built: run 'make webui'"
    return found


@pytest.fixture(scope="session")
def cluster(chromium: str) -> Iterator[Cluster]:
    """Three nodes for all tests; those that hurt them leave them whole."""
    with Cluster(3, config=CONFIG) as nodes:
        yield nodes


@pytest.fixture(scope="session")
def scene(cluster: Cluster) -> Iterator[Scene]:
    made = Scene(cluster)
    made.build()
    yield made
    made.close()


@pytest.fixture(scope="session")
def shared_browser(chromium: str) -> Iterator[Browser]:
    with Browser(chromium) as running:
        yield running


@pytest.fixture
def browser(shared_browser: Browser, cluster: Cluster, scene: Scene) -> Browser:
    """A new page of somebody who has logged in."""
    shared_browser.open(cluster.management_url(1))
    shared_browser.log_in()
    return shared_browser
