"""The TLS context of a listener, from the `ssl_options` of the configuration."""

from __future__ import annotations

import ssl

from warren.config.settings import TlsSettings

VERSIONS = {
    "tlsv1": ssl.TLSVersion.TLSv1,
    "tlsv1.1": ssl.TLSVersion.TLSv1_1,
    "tlsv1.2": ssl.TLSVersion.TLSv1_2,
    "tlsv1.3": ssl.TLSVersion.TLSv1_3,
}


def make_context(settings: TlsSettings) -> ssl.SSLContext:
    """Raises ValueError or OSError, saying which file is wrong."""
    if not settings.certfile or not settings.keyfile:
        raise ValueError("TLS needs ssl_options.certfile and ssl_options.keyfile")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    versions = [VERSIONS[name] for name in settings.versions if name in VERSIONS]
    if versions:
        context.minimum_version = min(versions)
        context.maximum_version = max(versions)
    if settings.ciphers:
        context.set_ciphers(":".join(settings.ciphers))
    if settings.honor_cipher_order:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        context.load_cert_chain(settings.certfile, settings.keyfile, settings.password)
    except (OSError, ssl.SSLError) as error:
        raise ValueError(
            f"cannot use ssl_options.certfile {settings.certfile} "
            f"with ssl_options.keyfile {settings.keyfile}: {error}"
        ) from error
    if settings.cacertfile:
        try:
            context.load_verify_locations(settings.cacertfile)
        except (OSError, ssl.SSLError) as error:
            raise ValueError(
                f"cannot use ssl_options.cacertfile {settings.cacertfile}: {error}"
            ) from error
    if settings.verify == "verify_peer":
        required = settings.fail_if_no_peer_cert
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context
