"""Password hashes are interchangeable with RabbitMQ's."""

from __future__ import annotations

import base64
import hashlib

import pytest

from warren.auth.password import ALGORITHMS, hash_password, is_password_hash, verify_password
from warren.auth.users import User

#: Made by RabbitMQ 3.10 for the password "pw".
RABBITMQ_HASH = base64.b64encode(
    bytes.fromhex("8599874928e3ec660d76e0681a60fe00b895c7803ac5b2a5c10b45d4a91c1927706a591e")
).decode()


def test_a_hash_made_by_rabbitmq_verifies() -> None:
    assert verify_password("pw", RABBITMQ_HASH)
    assert not verify_password("pW", RABBITMQ_HASH)


def test_layout_is_salt_then_digest() -> None:
    stored = base64.b64decode(hash_password("pässword", salt=b"salt"))
    assert stored == b"salt" + hashlib.sha256(b"salt" + "pässword".encode()).digest()


def test_the_salt_is_fresh() -> None:
    assert hash_password("a") != hash_password("a")
    with pytest.raises(ValueError, match="4"):
        hash_password("a", salt=b"long salt")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm(algorithm: str) -> None:
    stored = hash_password("secret", algorithm)
    assert verify_password("secret", stored, algorithm)
    assert not verify_password("other", stored, algorithm)


def test_passwords_that_are_not_utf8() -> None:
    password = b"\xff\xfe".decode("utf-8", "surrogateescape")
    assert verify_password(password, hash_password(password))


@pytest.mark.parametrize("stored", ["", "!", "QUJD", "ä", base64.b64encode(b"salt").decode()])
def test_a_malformed_hash_lets_nobody_in(stored: str) -> None:
    assert not verify_password("", stored)
    assert is_password_hash(stored) == (stored == "")


def test_an_unknown_algorithm_lets_nobody_in() -> None:
    assert not verify_password("a", hash_password("a"), "rot13")


def test_users_without_password_and_empty_passwords() -> None:
    assert not User("u").accepts_password("")
    assert not User("u", hash_password("")).accepts_password("")
    assert User("u", hash_password("a")).accepts_password("a")
    assert "hash" not in repr(User("u", hash_password("a"))).replace("hashing", "")
