"""What can go wrong between a gateway and a home."""

from __future__ import annotations


class HomeGoneError(Exception):
    """The home is down: whoever asked looks anew what there is to be done."""


class MovedError(Exception):
    """The node asked is not the queue's home, or not yet: ask again in a moment."""


class LinkLostError(Exception):
    """The link to the home ended, or there was none, before the answer came."""
