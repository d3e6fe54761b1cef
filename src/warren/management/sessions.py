"""Tokens that stand for a log-in, so that a browser need not keep a password.

A token names its user and the moment it ends, sealed with a key that only the nodes of the cluster
have. The seal covers the hash of the user's password, too: with a new password all tokens are void.
Nothing is kept on the node, and no cookie is used: a browser sends a token only where a page of
ours asks it to, so other sites cannot act in a user's name.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Callable

import msgspec

from warren.auth.directory import Directory
from warren.auth.users import User

#: What the key for tokens is derived with, so that the cluster's secret has no second use.
PURPOSE = b"warren management session"
#: A token holds a name of at most 255 bytes and a number; far more is nonsense.
TOKEN_CHARACTERS_MAX = 2048


class TokenRefused(ValueError):
    """Not a token of ours, or no longer one."""


def derive_key(secret: bytes) -> bytes:
    """The key of a cluster's tokens, out of the secret that its nodes share."""
    return hmac.digest(secret, PURPOSE, hashlib.sha256)


class _Claims(msgspec.Struct, array_like=True):
    """What a token says."""

    user: str
    ends_s: int


_decoder = msgspec.json.Decoder(_Claims)


class Sessions:
    """Makes tokens and checks them."""

    def __init__(self, key: bytes, lifetime_s: int, now_s: Callable[[], float] = time.time) -> None:
        self._key = key
        self._lifetime_s = lifetime_s
        self._now_s = now_s

    def begin(self, user: User) -> tuple[str, int]:
        """A token, and when it ends in seconds since 1970."""
        ends_s = int(self._now_s()) + self._lifetime_s
        claims = msgspec.json.encode(_Claims(str(user.name), ends_s))
        return f"{_text(claims)}.{_text(self._seal(claims, user))}", ends_s

    def user(self, token: str, directory: Directory) -> User:
        """The user whose token it is. Raises TokenRefused."""
        if len(token) > TOKEN_CHARACTERS_MAX:
            raise TokenRefused("the token is too long")
        said, _, sealed = token.partition(".")
        try:
            claims = _octets(said)
            claimed = _decoder.decode(claims)
            seal = _octets(sealed)
        except (binascii.Error, ValueError, msgspec.DecodeError) as error:
            raise TokenRefused("the token cannot be read") from error
        if not directory.has_user(claimed.user):
            raise TokenRefused("the token cannot be used")
        user = directory.user(claimed.user)
        if not hmac.compare_digest(seal, self._seal(claims, user)):
            raise TokenRefused("the token cannot be used")
        if claimed.ends_s <= self._now_s():
            raise TokenRefused("the session has ended")
        return user

    def _seal(self, claims: bytes, user: User) -> bytes:
        return hmac.digest(self._key, claims + b"\0" + user.password_hash.encode(), hashlib.sha256)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def _octets(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
