"""Marks beside the log: what a start has found, and the cluster has not been told so far.

Each is set before what it tells of is out of sight, and outlives a node that dies before it could
tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warren.store.files import Files, WritableFiles

#: The log's end was cut off. What could not be read there may be an append that the machine did not
#: finish, and then nothing in it was confirmed; or the disk has spoiled the newest batch, and it
#: was. Both look alike.
CUT_MARK = "end-was-cut"
#: Records are missing or spoiled. The next checkpoint is of what is left, and after that no start
#: can see that there was more.
DAMAGE_MARK = "was-damaged"


def set_mark(files: WritableFiles, mark: str) -> None:
    if not is_marked(files, mark):
        files.create(mark)
        files.sync_names()


def is_marked(files: Files, mark: str) -> bool:
    return mark in files.names()


def clear_mark(files: Files, mark: str) -> None:
    if is_marked(files, mark):
        files.remove(mark)
        files.sync_names()


def keep_damage(files: WritableFiles, is_found: bool, is_partial: bool = False) -> bool:
    """Whether something is missing: a start has found it, this one or one that told nobody.

    `is_partial`: only some copies may lack something. It is known which, but not at the next start.
    """
    is_damaged = is_found or is_marked(files, DAMAGE_MARK)
    if is_damaged or is_partial:
        set_mark(files, DAMAGE_MARK)
    return is_damaged
