"""A mark beside the log: its end was cut off, and the cluster has not been told so far.

What could not be read at the end may be an append that the machine did not finish, and then nothing
in it was confirmed; or the disk has spoiled the newest batch, and it was. Both look alike. The mark
is set before the cut and outlives a node that dies before it could tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warren.store.files import Files, WritableFiles

CUT_MARK = "end-was-cut"


def set_mark(files: WritableFiles) -> None:
    if not is_marked(files):
        files.create(CUT_MARK)
        files.sync_names()


def is_marked(files: Files) -> bool:
    return CUT_MARK in files.names()


def clear_mark(files: Files) -> None:
    if is_marked(files):
        files.remove(CUT_MARK)
        files.sync_names()
