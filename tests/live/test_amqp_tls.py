"""TLS: certificates both ways, and logging in by certificate."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
import trustme
from live_broker import LiveNode
from raw_client import Closed, RawConnection, SocketClosedError


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def secure_node(
    authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveNode]:
    """A broker that wants a certificate from its clients and takes its common name as the user."""
    directory = tmp_path_factory.mktemp("tls")
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(str(directory / "key.pem"))
    for part in certificate.cert_chain_pems:
        part.write_to_path(str(directory / "cert.pem"), append=True)
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    live = LiveNode(
        {
            "listeners.ssl.default": "127.0.0.1:0",
            "ssl_options.cacertfile": str(directory / "ca.pem"),
            "ssl_options.certfile": str(directory / "cert.pem"),
            "ssl_options.keyfile": str(directory / "key.pem"),
            "ssl_options.verify": "verify_peer",
            "ssl_options.fail_if_no_peer_cert": "true",
            "auth_mechanisms.1": "PLAIN",
            "auth_mechanisms.2": "EXTERNAL",
            "ssl_cert_login_from": "common_name",
        }
    )
    yield live
    live.stop()


def client_context(
    authority: trustme.CA, issuer: trustme.CA | None, name: str, path: Path
) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if issuer is not None:
        certificate = issuer.issue_cert(f"{name}@test", common_name=name)
        pem = path / "client.pem"
        certificate.private_key_and_cert_chain_pem.write_to_path(str(pem))
        context.load_cert_chain(pem)
    return context


def test_external_login(secure_node: LiveNode, authority: trustme.CA, tmp_path: Path) -> None:
    secure_node.operator.add_user("carol", "", [])
    secure_node.operator.permit("carol", "/", ".*", ".*", ".*")
    context = client_context(authority, authority, "carol", tmp_path)
    connection = RawConnection(secure_node.host, secure_node.tls_port, context)
    start = connection.greet()
    assert start.mechanisms == b"PLAIN EXTERNAL"
    connection.drop()
    connection = RawConnection(secure_node.host, secure_node.tls_port, context)
    connection.handshake(mechanism="EXTERNAL", response=b"")
    channel = connection.channel()
    channel.declare("q")
    body = bytes(range(256)) * 4000
    channel.publish("q", body, user_id="carol")
    assert channel.wait_get("q").body == body
    channel.call("queue.delete", queue="q")
    connection.close()


def test_external_login_of_nobody(
    secure_node: LiveNode, authority: trustme.CA, tmp_path: Path
) -> None:
    context = client_context(authority, authority, "nobody", tmp_path)
    connection = RawConnection(secure_node.host, secure_node.tls_port, context)
    connection.greet()
    connection.start_ok(mechanism="EXTERNAL", response=b"")
    assert connection.closed() == Closed(
        "connection",
        403,
        "ACCESS_REFUSED - Login was refused using authentication mechanism EXTERNAL. "
        "For details see the broker logfile.",
    )


def test_external_without_tls(secure_node: LiveNode) -> None:
    connection = RawConnection(secure_node.host, secure_node.port)
    connection.greet()
    connection.start_ok(mechanism="EXTERNAL", response=b"")
    assert connection.closed().code == 403


@pytest.mark.parametrize("kind", ["none", "of another authority"])
def test_certificate_is_required(
    secure_node: LiveNode, authority: trustme.CA, tmp_path: Path, kind: str
) -> None:
    issuer = None if kind == "none" else trustme.CA()
    context = client_context(authority, issuer, "mallory", tmp_path)
    # In TLS 1.3 the client is refused only after its own handshake is over.
    with pytest.raises((OSError, SocketClosedError)):  # noqa: PT012
        connection = RawConnection(secure_node.host, secure_node.tls_port, context)
        connection.greet()
    # The listener goes on.
    good = client_context(authority, authority, "carl", tmp_path)
    RawConnection(secure_node.host, secure_node.tls_port, good).greet()


def test_plain_text_on_the_tls_port(secure_node: LiveNode) -> None:
    connection = RawConnection(secure_node.host, secure_node.tls_port)
    with pytest.raises(SocketClosedError):
        connection.greet()


def test_pika_over_tls(secure_node: LiveNode, authority: trustme.CA, tmp_path: Path) -> None:
    context = client_context(authority, authority, "guest", tmp_path)
    parameters = pika.ConnectionParameters(
        secure_node.host,
        secure_node.tls_port,
        ssl_options=pika.SSLOptions(context, secure_node.host),
        credentials=pika.credentials.ExternalCredentials(),
    )
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.basic_publish("", queue, b"hello")
    _, _, body = channel.basic_get(queue, auto_ack=True)
    assert body == b"hello"
    connection.close()
