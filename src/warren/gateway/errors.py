"""What can go wrong between a gateway and a home."""

from __future__ import annotations


class LinkLostError(Exception):
    """The link to the home ended, or there was none, before the answer came."""
