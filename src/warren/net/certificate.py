"""The names in a client's TLS certificate."""

from __future__ import annotations

import ssl
from typing import Any

from warren.auth.sasl import PeerCertificate

#: Short names of the attributes that appear in distinguished names (RFC 4514).
SHORT_NAMES = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "domainComponent": "DC",
    "userId": "UID",
}


def peer_certificate(session: ssl.SSLObject | None) -> PeerCertificate | None:
    """What the client proved by its certificate; None when it sent none that was verified."""
    certificate: Any = session.getpeercert() if session is not None else None
    if not certificate:
        return None
    parts: list[str] = []
    common_name: str | None = None
    for relative_name in certificate.get("subject", ()):
        for attribute, value in relative_name:
            if attribute == "commonName":
                common_name = value
            parts.append(f"{SHORT_NAMES.get(attribute, attribute)}={_escaped(value)}")
    return PeerCertificate(common_name, ",".join(reversed(parts)))


def _escaped(value: str) -> str:
    return "".join(f"\\{c}" if c in ',+"\\<>;' else c for c in value)
