"""SASL responses: what is read out of them, and that a password never shows in a text."""

from __future__ import annotations

import pytest

from warren.auth.directory import CredentialsRefused
from warren.auth.sasl import (
    AmqPlain,
    Credentials,
    External,
    PeerCertificate,
    Plain,
    new_mechanism,
)
from warren.model.errors import CommandInvalid, WireSyntaxError
from warren.wire.tables import encode_table


def test_plain() -> None:
    assert Plain().step(b"\0u\0pw") == Credentials("u", "pw")
    assert Plain().step(b"\0\0") == Credentials("", "")
    assert Plain().step("\0jürgen\0pässword".encode()) == Credentials("jürgen", "pässword")


@pytest.mark.parametrize(
    "response", [b"", b"u\0secret", b"\0u\0secret\0x", b"az\0u\0secret", b"\0u"]
)
def test_malformed_plain(response: bytes) -> None:
    with pytest.raises(WireSyntaxError) as caught:
        Plain().step(response)
    assert "secret" not in caught.value.reply_text


def amqplain(**fields: object) -> bytes:
    return encode_table(fields)


def test_amqplain() -> None:
    assert AmqPlain().step(amqplain(LOGIN="u", PASSWORD="pw")) == Credentials("u", "pw")


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"xx",
        b"\x05LOGINS\xff\xff\xff\xffu",
        amqplain(LOGIN="u"),
        amqplain(LOGIN=1, PASSWORD="s"),
    ],
)
def test_malformed_amqplain(response: bytes) -> None:
    with pytest.raises(WireSyntaxError, match="AMQPLAIN"):
        AmqPlain().step(response)


def test_external() -> None:
    certificate = PeerCertificate("client", "CN=client,O=warren")
    assert External(certificate, "common_name").step(b"") == Credentials("client", None)
    by_name = External(certificate).step(b"ignored")
    assert by_name == Credentials("CN=client,O=warren", None)
    for unusable in (None, PeerCertificate(None, "O=warren")):
        with pytest.raises(CredentialsRefused, match="EXTERNAL"):
            External(unusable, "common_name").step(b"")


def test_choosing_a_mechanism() -> None:
    assert isinstance(new_mechanism("PLAIN", ["PLAIN", "AMQPLAIN"]), Plain)
    for name in ("FOO", "EXTERNAL"):
        with pytest.raises(CommandInvalid) as caught:
            new_mechanism(name, ["PLAIN", "FOO"])
        assert caught.value.explanation == f"unknown authentication mechanism '{name}'"


def test_credentials_do_not_show_the_password() -> None:
    assert "secret" not in repr(Credentials("u", "secret"))
