"""The TLS contexts of links between nodes: mutual, or none."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from warren.net.peers.settings import PeerTls
from warren.node.errors import StartError

if TYPE_CHECKING:
    from warren.config.settings import LinkTlsSettings


def make_link_tls(settings: LinkTlsSettings) -> PeerTls | None:
    """None where no files are configured. Raises StartError when they cannot be used."""
    if not settings.certfile:
        return None
    try:
        server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=settings.cacertfile)
        client = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=settings.cacertfile)
        for context in (server, client):
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_cert_chain(settings.certfile, settings.keyfile)
    except (OSError, ssl.SSLError) as error:
        raise StartError(f"cluster.tls: the files cannot be used: {error}") from error
    return PeerTls(server, client)
