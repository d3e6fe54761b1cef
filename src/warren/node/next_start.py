"""What an operator has decided for the next start of a node: forget everything, join which cluster.

agreement/next holds it, as JSON. It is written by `reset`, `join_cluster` and
`forget_cluster_node --offline` while the node is stopped, carried out before anything is read, and
removed when the node serves clients again: a start that is cut short is done again.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec

from warren.node.agreement_files import AgreementFiles
from warren.node.errors import StartError

FILE_MODE = 0o640
BYTES_MAX = 1 << 20
#: What a node forgets, in its data directory.
FORGOTTEN = ("log", "salvage", "agreement/raft", "agreement/addresses")


class NextStart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Without nodes to join, the node is a cluster of one."""

    #: Everything is still to be forgotten.
    wipe: bool
    #: Whom to ask to be let in.
    join: tuple[str, ...] = ()
    #: Where nodes are, `host:port` by name.
    addresses: dict[str, str] = {}
    #: Nodes that are lost for good, taken out although nobody can agree on it.
    forget: tuple[str, ...] = ()


def _path(data_dir: Path) -> Path:
    return data_dir / "agreement" / "next"


def plan(data_dir: Path, what: NextStart) -> None:
    """Write it down, whole or not at all, before this returns. Raises OSError."""
    path = _path(data_dir)
    path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    new = path.with_name("next.new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    try:
        os.write(fd, msgspec.json.encode(what))
        os.fsync(fd)
    finally:
        os.close(fd)
    new.rename(path)
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def carry_out(data_dir: Path) -> NextStart | None:
    """What this start is to be, after everything was forgotten that had to be. StartError."""
    try:
        what = read(data_dir)
        if what is not None and what.wipe:
            for name in FORGOTTEN:
                if (data_dir / name).is_dir():
                    shutil.rmtree(data_dir / name)
                else:
                    (data_dir / name).unlink(missing_ok=True)
            (data_dir / "log").mkdir(mode=0o750)
            AgreementFiles(data_dir).leave_cluster()
            what = msgspec.structs.replace(what, wipe=False)
            plan(data_dir, what)
    except OSError as error:
        raise StartError(f"{data_dir} cannot be reset: {error.strerror}") from error
    return what


def read(data_dir: Path) -> NextStart | None:
    """What is written down; None: nothing. Raises StartError."""
    path = _path(data_dir)
    try:
        with path.open("rb") as file:
            data = file.read(BYTES_MAX)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error.strerror}") from error
    try:
        return msgspec.json.decode(data, type=NextStart)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StartError(f"{path} cannot be read: {error}. It is left as it is") from error


def done(data_dir: Path) -> None:
    """The node has started as it was to. Raises OSError."""
    _path(data_dir).unlink(missing_ok=True)
