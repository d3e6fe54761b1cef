"""Reading a file of which the disk has lost a part: the rest of it is still of use."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from warren.store.files import RealFiles

if TYPE_CHECKING:
    from warren.store.files import Files

#: What a file system says of sectors, or of its own structures, that it cannot read. Anything else
#: (no permission, no descriptor left) is no damage, and no reason to go on without the file.
MEDIA_ERRORS = frozenset((errno.EIO, errno.EUCLEAN, errno.EBADMSG, errno.EILSEQ, errno.EREMOTEIO))
#: The piece that is lost with a bad sector: a page of the system's cache.
PIECE_BYTES = 4096
#: A disk may try for seconds before it gives a sector up: behind so many the rest is given up too.
BAD_PIECES_MAX = 64
#: What stands for octets that could not be read. No record, and not the zeros that end a log.
FILLER = b"\xff"


def is_media_error(error: OSError) -> bool:
    """Whether the disk has lost something, rather than being kept from us."""
    return error.errno in MEDIA_ERRORS


def read_pieces(directory: str, pieces: list[tuple[str, int, int]]) -> list[bytes]:
    """(name, offset, size) of files of a directory; nothing of those that cannot be read."""
    files = RealFiles(directory)
    found = []
    try:
        for name, at, size in pieces:
            try:
                found.append(files.read_at(name, at, size))
            except OSError:
                found.append(b"")
    finally:
        files.close()
    return found


def read_around(files: Files, name: str, at: int, size: int) -> tuple[bytes, str]:
    """Up to `size` octets of a file from an offset on, and why some of them are only filler.

    Raises OSError for anything that is not the disk's fault.
    """
    try:
        return files.read_at(name, at, size), ""
    except OSError as error:
        if not is_media_error(error):
            raise
        reason = error.strerror or str(error)
    pieces: list[bytes] = []
    bad = 0
    end = min(at + size, files.size(name))
    while at < end:
        piece = min(PIECE_BYTES - at % PIECE_BYTES, end - at)
        try:
            if bad > BAD_PIECES_MAX:
                raise OSError(errno.EIO, reason)
            pieces.append(files.read_at(name, at, piece))
        except OSError as error:
            if not is_media_error(error):
                raise
            bad += 1
            pieces.append(FILLER * piece)
        at += piece
    return b"".join(pieces), reason
