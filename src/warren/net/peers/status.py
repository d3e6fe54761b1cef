"""What operators see of the links to other nodes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """One peer, whether it is there or not."""

    name: str
    #: Where it is dialled, `host:port`; None for one that only dials us.
    address: str | None
    #: Our link to it is ready.
    connected: bool
    #: Where its own link to us comes from; None when there is none.
    accepted_from: str | None
    incarnation: int | None
    #: When our link became ready, in seconds of the Unix epoch.
    since: int | None
    #: Of both links, since each began.
    bytes_in: int
    bytes_out: int
    #: Data for it that has not left this node.
    pending: int
    #: How long ago anything was heard of it; None: not since this node started.
    silent_ms: int | None
    last_refusal: str | None
    blocked: bool


class RareLog:
    """Says whether something is worth a line: peers try again every second, the log need not."""

    def __init__(self, repeat_ms: int = 60_000, entries_max: int = 256) -> None:
        self._repeat_ms = repeat_ms
        self._entries_max = entries_max
        self._said: dict[tuple[object, ...], int] = {}

    def is_due(self, now_ms: int, *what: object) -> bool:
        """True at most once in `repeat_ms` for the same thing."""
        said_ms = self._said.get(what)
        if said_ms is not None and now_ms - said_ms < self._repeat_ms:
            return False
        if len(self._said) >= self._entries_max:
            # Names come from strangers too: what is remembered of them is bounded.
            self._said.clear()
        self._said[what] = now_ms
        return True

    def forget(self, *what: object) -> None:
        """Things have changed: say it again when it comes again."""
        self._said.pop(what, None)
