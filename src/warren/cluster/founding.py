"""The first disk of a node that founds a cluster: with others, or alone with what it has.

Alone, it begins with a snapshot that holds its definitions. Whoever joins later is behind that
snapshot and gets it, as any node that is far behind.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from warren.cluster.member_machine import MemberMachine, encode_image
from warren.cluster.raft.types import Membership, Snapshot, Stored, founding
from warren.cluster.sessions import Sessions

#: Where the first entry of other clusters is, which names their members.
FIRST_INDEX = 1


def founded_with(node: str, definitions: bytes) -> Stored:
    """What a founder of one has on its disk when `definitions` is the image of what it has."""
    sessions = Sessions(MemberMachine([], 0))
    image = encode_image(sessions.image(), definitions)
    snapshot = Snapshot(FIRST_INDEX, 0, Membership((node,)), image)
    return Stored(snapshot=snapshot, base_index=FIRST_INDEX)


def founded_by(nodes: Iterable[str], preferred: Iterable[str] = ()) -> Stored:
    """The disk of a node of a static list at its first start; the same on all of them.

    Where some nodes are preferred, only they decide, and the others follow.
    """
    names = set(nodes)
    voters = names.intersection(preferred) or names
    return founding(Membership(tuple(sorted(voters)), tuple(sorted(names - voters))))


def cluster_id_of(name: str, nodes: Iterable[str]) -> str:
    """The id of the cluster that these nodes found under this name."""
    text = "\n".join((name, *sorted(set(nodes))))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
