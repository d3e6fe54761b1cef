"""SASL mechanisms: what a client's `connection.start-ok` response says it is.

Each mechanism turns response bytes into `Credentials`; the directory then judges them. A response
that does not parse raises WireSyntaxError. Texts never quote a response: it holds a password.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from warren.auth.directory import CredentialsRefused
from warren.model.errors import AmqpError, CommandInvalid, WireSyntaxError
from warren.wire.tables import decode_table

CertificateLogin = Literal["common_name", "distinguished_name"]


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who the client says it is; `password` is None when the mechanism itself is the proof."""

    username: str
    password: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """The names in a verified client certificate."""

    common_name: str | None
    distinguished_name: str


class Mechanism(Protocol):
    """One mechanism for one login."""

    name: str

    def step(self, response: bytes) -> Credentials:
        """The credentials in the client's response."""


class Plain:
    """PLAIN: NUL, user, NUL, password. No identity to act as: no client sends one."""

    name = "PLAIN"

    def step(self, response: bytes) -> Credentials:
        """The credentials in the client's response."""
        parts = response.split(b"\0")
        if len(parts) != 3 or parts[0]:
            raise WireSyntaxError("PLAIN response invalid")
        return Credentials(_text(parts[1]), _text(parts[2]))


class AmqPlain:
    """AMQPLAIN: the entries of a field table with LOGIN and PASSWORD."""

    name = "AMQPLAIN"

    def step(self, response: bytes) -> Credentials:
        """The credentials in the client's response."""
        try:
            table = decode_table(response)
        except (AmqpError, ValueError) as error:
            raise WireSyntaxError("AMQPLAIN response is not a field table") from error
        login = _field_text(table.get("LOGIN"))
        password = _field_text(table.get("PASSWORD"))
        if login is None or password is None:
            raise WireSyntaxError("AMQPLAIN auth info is missing LOGIN or PASSWORD field")
        return Credentials(login, password)


class External:
    """EXTERNAL: the user is named by the certificate that TLS has already verified."""

    name = "EXTERNAL"

    def __init__(
        self,
        certificate: PeerCertificate | None,
        login_from: CertificateLogin = "distinguished_name",
    ) -> None:
        self._certificate = certificate
        self._login_from = login_from

    def step(self, response: bytes) -> Credentials:  # noqa: ARG002 - the certificate says it all
        """The credentials in the certificate; the response is not looked at."""
        if self._certificate is None:
            raise CredentialsRefused(self.name, "no peer certificate")
        if self._login_from == "distinguished_name":
            return Credentials(self._certificate.distinguished_name, None)
        if not self._certificate.common_name:
            raise CredentialsRefused(self.name, "no common name in the peer certificate")
        return Credentials(self._certificate.common_name, None)


def new_mechanism(
    name: str,
    enabled: Iterable[str],
    certificate: PeerCertificate | None = None,
    login_from: CertificateLogin = "distinguished_name",
) -> Mechanism:
    """The mechanism the client chose, or CommandInvalid when it is not offered."""
    makers: dict[str, Callable[[], Mechanism]] = {
        "PLAIN": Plain,
        "AMQPLAIN": AmqPlain,
        "EXTERNAL": lambda: External(certificate, login_from),
    }
    if name not in enabled or name not in makers:
        raise CommandInvalid(f"unknown authentication mechanism '{name}'")
    return makers[name]()


def _text(octets: bytes) -> str:
    return octets.decode("utf-8", "surrogateescape")


def _field_text(value: object) -> str | None:
    if isinstance(value, bytes):
        return _text(value)
    return value if isinstance(value, str) else None
