"""The first disk of a cluster of one that has definitions already: a snapshot that holds them.

Whoever joins later is behind that snapshot and gets it, as any node that is far behind.
"""

from __future__ import annotations

from warren.cluster.member_machine import MemberMachine, encode_image
from warren.cluster.raft.types import Membership, Snapshot, Stored
from warren.cluster.sessions import Sessions

#: Where the first entry of other clusters is, which names their members.
FIRST_INDEX = 1


def founded_with(node: str, definitions: bytes) -> Stored:
    """What a founder of one has on its disk when `definitions` is the image of what it has."""
    sessions = Sessions(MemberMachine([], 0))
    image = encode_image(sessions.image(), definitions)
    snapshot = Snapshot(FIRST_INDEX, 0, Membership((node,)), image)
    return Stored(snapshot=snapshot, base_index=FIRST_INDEX)
