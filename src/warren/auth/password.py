"""Passwords as RabbitMQ stores them: base64 of a 4-byte salt and the digest of salt + password.

Hashes are interchangeable with RabbitMQ's definitions files. Comparison takes the same time
whatever the difference. Nothing here keeps a password.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Callable, Mapping

SALT_BYTES = 4
DEFAULT_ALGORITHM = "rabbit_password_hashing_sha256"

_Digest = Callable[[bytes], bytes]


def _md5(data: bytes) -> bytes:
    # Only to let users in whose hash was imported from a very old broker.
    return hashlib.md5(data, usedforsecurity=False).digest()


_ALGORITHMS: Mapping[str, _Digest] = {
    "rabbit_password_hashing_sha256": lambda data: hashlib.sha256(data).digest(),
    "rabbit_password_hashing_sha512": lambda data: hashlib.sha512(data).digest(),
    "rabbit_password_hashing_md5": _md5,
}
#: The names a user's `hashing_algorithm` may have.
ALGORITHMS = tuple(_ALGORITHMS)


def hash_password(
    password: str, algorithm: str = DEFAULT_ALGORITHM, salt: bytes | None = None
) -> str:
    """The stored form of a password, with a fresh salt unless one is given."""
    salt = os.urandom(SALT_BYTES) if salt is None else salt
    if len(salt) != SALT_BYTES:
        raise ValueError(f"the salt has {len(salt)} bytes; it must have {SALT_BYTES}")
    digest = _ALGORITHMS[algorithm](salt + _octets(password))
    return base64.b64encode(salt + digest).decode("ascii")


def verify_password(password: str, password_hash: str, algorithm: str = DEFAULT_ALGORITHM) -> bool:
    """Whether the password belongs to the stored hash; a malformed hash lets nobody in."""
    digest = _ALGORITHMS.get(algorithm)
    stored = _decoded(password_hash)
    if digest is None or stored is None or len(stored) <= SALT_BYTES:
        return False
    salt = stored[:SALT_BYTES]
    return hmac.compare_digest(salt + digest(salt + _octets(password)), stored)


def is_password_hash(password_hash: str) -> bool:
    """Whether the text can be stored as a hash (the empty one means: no password login)."""
    stored = _decoded(password_hash)
    return stored is not None and (not stored or len(stored) > SALT_BYTES)


def _decoded(password_hash: str) -> bytes | None:
    try:
        return base64.b64decode(password_hash, validate=True)
    except (binascii.Error, ValueError):
        return None


def _octets(password: str) -> bytes:
    # Passwords arrive as bytes off the wire and need not be UTF-8.
    return password.encode("utf-8", "surrogateescape")
