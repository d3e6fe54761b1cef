"""Where the API and the metrics listen: as configured, over TLS, and what a taken port means."""

from __future__ import annotations

import asyncio
import socket
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from warren.config.load import load_settings
from warren.node.errors import StartError
from warren.node.node import Node
from warren.testing.broker import Broker


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def files(authority: trustme.CA, tmp_path: Path) -> dict[str, str]:
    certificate = authority.issue_cert("127.0.0.1")
    key, chain = tmp_path / "key.pem", tmp_path / "cert.pem"
    certificate.private_key_pem.write_to_path(key)
    certificate.cert_chain_pems[0].write_to_path(chain)
    return {"certfile": str(chain), "keyfile": str(key)}


def test_tls(authority: trustme.CA, files: dict[str, str]) -> None:
    config: dict[str, object] = {"management.ssl.port": 0, "prometheus.ssl.port": 0}
    for part in ("management", "prometheus"):
        config |= {f"{part}.ssl.{name}": path for name, path in files.items()}
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with Broker(http=True, config=config) as broker:
        operating = broker.call(lambda node: node.operating)
        assert operating is not None
        for protocol, path in (("https", "/api/auth"), ("https/prometheus", "/metrics")):
            url = operating.url(protocol)
            assert url is not None
            with urllib.request.urlopen(url + path, timeout=60, context=trusting) as answer:
                assert answer.status == 200


def test_a_certificate_that_ends_soon(files: dict[str, str]) -> None:
    from warren.management.certificates import days_left

    left = days_left(files["certfile"])
    assert left is not None
    assert left > 30
    assert days_left(files["keyfile"]) is None
    assert days_left("/no/such/file") is None


def start(config: dict[str, object]) -> list[str]:
    """Starts and stops a node; what it notes."""

    async def run() -> list[str]:
        listener = {"listeners.tcp.default": "127.0.0.1:0"}
        node = Node(load_settings(None, {}, {**listener, **config}), watch_memory=False)
        node.start()
        try:
            return list(node.start_operating().notes)
        finally:
            await node.stop(0)

    return asyncio.run(run())


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


FREE: dict[str, object] = {
    "management.tcp.ip": "127.0.0.1",
    "management.tcp.port": 0,
    "prometheus.tcp.ip": "127.0.0.1",
    "prometheus.tcp.port": 0,
}


def test_a_port_that_was_asked_for_and_is_taken(taken: int) -> None:
    for part in ("management", "prometheus"):
        with pytest.raises(StartError, match=f"port {taken} is taken .* {part}.tcp.port"):
            start({**FREE, f"{part}.tcp.port": taken})


def test_a_certificate_that_cannot_be_used() -> None:
    wrong = {
        "management.ssl.port": 0,
        "management.ssl.certfile": "/no",
        "management.ssl.keyfile": "/n",
    }
    with pytest.raises(StartError, match="cannot use"):
        start({**FREE, **wrong})


def test_a_default_port_that_is_taken_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    from warren.node import operating

    def listen(ip: str | None, port: int) -> socket.socket:
        raise OSError(98, "Address already in use")

    monkeypatch.setattr(operating, "_listen", listen)
    notes = start({})
    assert [note.partition(" is taken")[0] for note in notes] == ["port 15672", "port 15692"]


def test_all_addresses_by_default() -> None:
    from warren.node.operating import _listen

    with _listen(None, 0) as listening:
        port = listening.getsockname()[1]
        socket.create_connection(("127.0.0.1", port), 5).close()


def test_warrenctl_over_tls(
    files: dict[str, str],
    authority: trustme.CA,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from warren.ctl.main import run

    config: dict[str, object] = {"management.ssl.port": 0}
    config |= {f"management.ssl.{name}": path for name, path in files.items()}
    with Broker(http=True, config=config) as broker:
        url = next(
            f"https://guest:guest@127.0.0.1:{listener.port}"
            for listener in broker.call(lambda node: list(node.operating.context.http_listeners))
            if listener.protocol == "https"
        )
        # A certificate that nobody vouches for is refused.
        assert run(["--url", url, "ping"]) == 69
        assert "certificate" in capsys.readouterr().err
        trusted = tmp_path / "authority.pem"
        authority.cert_pem.write_to_path(str(trusted))
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        assert run(["--url", url, "ping"]) == 0
