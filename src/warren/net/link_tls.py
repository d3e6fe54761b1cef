"""TLS of the links between nodes, from `cluster.tls`: mutual, and never below version 1.2."""

from __future__ import annotations

import ssl

from warren.config.settings import LinkTlsSettings


def link_contexts(settings: LinkTlsSettings) -> tuple[ssl.SSLContext, ssl.SSLContext] | None:
    """The contexts of the side that is called and of the one that calls; None without TLS.

    Both sides show a certificate that the other's CA vouches for, and the caller wants to find
    the host that it called in it. Raises ValueError, saying which file is wrong.
    """
    if not settings.is_on:
        return None
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        _load(context, settings)
    return server, client


def _load(context: ssl.SSLContext, settings: LinkTlsSettings) -> None:
    certfile, keyfile, cacertfile = settings.certfile, settings.keyfile, settings.cacertfile
    if certfile is None or keyfile is None or cacertfile is None:
        raise ValueError("cluster.tls needs cacertfile, certfile and keyfile")
    try:
        # A key with a password would ask for it at the terminal, where there is none.
        context.load_cert_chain(certfile, keyfile, password="")
    except (OSError, ssl.SSLError) as error:
        raise ValueError(
            f"cannot use cluster.tls.certfile {certfile} with cluster.tls.keyfile {keyfile}: "
            f"{error}"
        ) from error
    try:
        context.load_verify_locations(cacertfile)
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"cannot use cluster.tls.cacertfile {cacertfile}: {error}") from error
