"""Throw-away certificates: one authority, one broker, one client, and a client nobody trusts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True, slots=True)
class Certificates:
    """Paths of the PEM files; the broken pair comes from an authority the broker does not know."""

    ca: Path
    server_certificate: Path
    server_key: Path
    client_certificate: Path
    client_key: Path
    broken_client_certificate: Path
    broken_client_key: Path


def make_certificates(directory: Path) -> Certificates:
    """Write a fresh set into `directory`, replacing what was there."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = Certificates(
        ca=directory / "ca.pem",
        server_certificate=directory / "server.pem",
        server_key=directory / "server.key",
        client_certificate=directory / "client.pem",
        client_key=directory / "client.key",
        broken_client_certificate=directory / "client_broken.pem",
        broken_client_key=directory / "client_broken.key",
    )
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(paths.ca))
    server = authority.issue_cert("localhost", "127.0.0.1", common_name="localhost")
    _write(server, paths.server_certificate, paths.server_key)
    client = authority.issue_cert("client@localhost", common_name="guest")
    _write(client, paths.client_certificate, paths.client_key)
    stranger = trustme.CA().issue_cert("client@localhost", common_name="guest")
    _write(stranger, paths.broken_client_certificate, paths.broken_client_key)
    return paths


def _write(leaf: trustme.LeafCert, certificate: Path, key: Path) -> None:
    certificate.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    leaf.private_key_pem.write_to_path(str(key))
