"""What becomes of the replicas of a queue, told with the reason: who is in sync, and who is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from warren.replication.types import View

#: What the core calls the reason for putting a replica out of sync, in words.
CAUSES = {
    "lag": "it has made no progress for ha-max-lag",
    "link": "there is no link to its node",
    "hours": "the hours of copies are over (ha-replication-window)",
}
UNWANTED = "no policy wants it there any more"
DOWN = "its node went down"
HAS_ALL = "it has everything"
UNCLEAN = "nobody who has everything can be reached, and the policy says always"

Change = tuple[str, str, str]


def changes_of(before: View, after: View, proposed: Mapping[str, str]) -> Iterator[Change]:
    """(event, node, cause) of all that are in sync and were not, or the other way round.

    `proposed`: node -> why this replica, as the master, wanted it out.
    """
    for node in after.in_sync:
        if node not in before.in_sync:
            is_promoted = node == after.master and after.unclean == after.epoch
            yield "queue.synchronised", node, UNCLEAN if is_promoted else HAS_ALL
    wanted = getattr(after, "wanted", ())
    for node in before.in_sync:
        if node not in after.in_sync:
            cause = CAUSES.get(proposed.get(node, ""), DOWN)
            yield "queue.unsynchronised", node, cause if node in wanted else UNWANTED
