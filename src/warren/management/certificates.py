"""How long a certificate is still good."""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from pathlib import Path


def days_left(path: str) -> int | None:
    """Whole days until the first certificate in a file ends; None when it cannot be read."""
    if not Path(path).is_file():
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(path)
        found = context.get_ca_certs()
        certificate: Mapping[str, object] = found[0] if found else _decode(path)
        ends_s = ssl.cert_time_to_seconds(str(certificate["notAfter"]))
    except (OSError, ssl.SSLError, KeyError, ValueError):
        return None
    return int((ends_s - time.time()) // 86400)


def _decode(path: str) -> dict[str, object]:
    """A certificate that is no authority is not among a context's own."""
    decode = getattr(getattr(ssl, "_ssl", None), "_test_decode_cert", None)
    if decode is None:
        raise ValueError("this Python cannot decode certificates")
    decoded: dict[str, object] = decode(path)
    return decoded
