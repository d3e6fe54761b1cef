"""The other nodes of the cluster, as handlers of the API ask them: requests like those of clients.

A question is a request that this node has let in; the other node checks the user's rights again,
which are the same on all nodes, and answers of what it has itself, asking nobody else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta

#: How long a node may take to answer before it counts as one that does not, in seconds.
ANSWER_S = 1.0
#: How long it may take over something that is to be done.
ACT_S = 30.0

_Text = Annotated[str, Meta(max_length=64 << 10)]


class Question(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What is asked. `user` None: an operator of the node that asks, who may do everything."""

    method: Annotated[str, Meta(max_length=16)]
    #: After `/api`, quoted.
    path: _Text
    query: _Text = ""
    user: Annotated[str, Meta(max_length=1024)] | None = None
    body: bytes = b""


class PeerAnswer(msgspec.Struct, frozen=True, array_like=True):
    """An HTTP status, and JSON or nothing."""

    status: int
    body: bytes


class PeerSilent(Exception):
    """A node cannot be reached, or does not answer in time."""


class Peers(Protocol):
    """The other nodes."""

    def running(self) -> Sequence[str]:
        """Those that can be asked, by name."""

    def down(self) -> Sequence[str]:
        """Those that cannot."""

    async def ask(self, node: str, question: Question, timeout_s: float = ANSWER_S) -> PeerAnswer:
        """Raises PeerSilent."""


@dataclass(frozen=True, slots=True)
class PeerRequest:
    """A question in the place of an HTTP request; as much of one as handlers look at."""

    question: Question
    headers: Mapping[str, str] = field(default_factory=dict)
    app: Mapping[Any, Any] = field(default_factory=dict)

    @property
    def method(self) -> str:
        return self.question.method

    @property
    def path(self) -> str:
        return f"/api{self.question.path}"

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(self.question.query, keep_blank_values=True))

    async def read(self) -> bytes:
        return self.question.body
