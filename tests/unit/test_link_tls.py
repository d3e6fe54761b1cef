"""TLS between nodes: both sides are asked for a certificate, and wrong files are named."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

import pytest
import trustme

from warren.config.settings import LinkTlsSettings
from warren.net.link_tls import link_contexts


def files(folder: Path, ca: trustme.CA, host: str, name: str) -> LinkTlsSettings:
    made = ca.issue_cert(host)
    paths = [str(folder / f"{name}.{kind}") for kind in ("ca", "cert", "key")]
    ca.cert_pem.write_to_path(paths[0])
    made.cert_chain_pems[0].write_to_path(paths[1])
    made.private_key_pem.write_to_path(paths[2])
    return LinkTlsSettings(*paths)


def contexts(settings: LinkTlsSettings) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    both = link_contexts(settings)
    assert both is not None
    return both


def shake_hands(
    server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost"
) -> list[Exception]:
    """What went wrong on either side."""
    wrong: list[Exception] = []
    ends = socket.socketpair()

    def run(context: ssl.SSLContext, end: socket.socket, is_server: bool) -> None:
        name = None if is_server else host
        try:
            end.settimeout(10)
            with context.wrap_socket(end, is_server, server_hostname=name) as link:
                link.sendall(b"x")
                assert link.recv(1) == b"x"
        except (OSError, AssertionError) as error:
            wrong.append(error)

    thread = threading.Thread(target=run, args=(server, ends[0], True))
    thread.start()
    run(client, ends[1], False)
    thread.join()
    return wrong


def test_nodes_of_one_ca_reach_each_other(tmp_path: Path) -> None:
    ca = trustme.CA()
    one, other = (files(tmp_path, ca, "localhost", name) for name in "ab")
    assert shake_hands(contexts(one)[0], contexts(other)[1]) == []
    assert link_contexts(LinkTlsSettings()) is None


def test_strangers_are_refused(tmp_path: Path) -> None:
    ours = files(tmp_path, trustme.CA(), "localhost", "ours")
    theirs = files(tmp_path, trustme.CA(), "localhost", "theirs")
    assert shake_hands(contexts(ours)[0], contexts(theirs)[1])
    # One who takes whatever the other shows, and shows nothing.
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.check_hostname, bare.verify_mode = False, ssl.CERT_NONE
    assert shake_hands(contexts(ours)[0], bare)


def test_another_host_is_refused(tmp_path: Path) -> None:
    ca = trustme.CA()
    server = contexts(files(tmp_path, ca, "host1", "a"))[0]
    client = contexts(files(tmp_path, ca, "host2", "b"))[1]
    assert shake_hands(server, client, "host1") == []
    assert shake_hands(server, client, "host2")


def test_wrong_files_are_named(tmp_path: Path) -> None:
    good = files(tmp_path, trustme.CA(), "localhost", "a")
    (tmp_path / "bad").write_text("no certificate")
    bad = str(tmp_path / "bad")
    with pytest.raises(ValueError, match=r"cluster\.tls\.certfile .*bad"):
        link_contexts(LinkTlsSettings(good.cacertfile, bad, good.keyfile))
    with pytest.raises(ValueError, match=r"cluster\.tls\.keyfile .*missing"):
        link_contexts(LinkTlsSettings(good.cacertfile, good.certfile, f"{tmp_path}/missing"))
    with pytest.raises(ValueError, match=r"cluster\.tls\.cacertfile .*bad"):
        link_contexts(LinkTlsSettings(bad, good.certfile, good.keyfile))
