"""A broker, and warrenctl run in this process against it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from warren.ctl.main import run
from warren.testing.broker import Broker

Ctl = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http=True) as running:
        yield running


@pytest.fixture
def ctl(broker: Broker, capsys: pytest.CaptureFixture[str]) -> Ctl:
    """Runs a command line: (exit status, output, errors)."""
    url = broker.http_url.replace("http://", "http://guest:guest@")

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = run(["--url", url, *words])
        out, err = capsys.readouterr()
        return status, out, err

    return call


@pytest.fixture
def ok(ctl: Ctl) -> Callable[..., str]:
    """Runs a command line that must succeed; its output."""

    def call(*words: str) -> str:
        status, out, err = ctl(*words)
        assert status == 0, (words, out, err)
        return out

    return call
