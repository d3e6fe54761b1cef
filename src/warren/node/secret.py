"""The secret of a cluster, which each of its nodes has: read, or made at the first start.

It stands where RabbitMQ has Erlang's cookie, and the rules are the same: whoever has it is taken
for a node, so only the user who runs the node may be able to read it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import stat
from pathlib import Path

from warren.config.settings import ClusterSettings
from warren.node.errors import StartError

#: The name of the file in the data directory.
FILE_NAME = "cookie"
#: As many random bytes as the proof between nodes has.
MADE_BYTES = 32
#: A longer one is another file by mistake.
SECRET_BYTES_MAX = 1024
_FOR_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def cluster_secret(cluster: ClusterSettings, data_dir: Path | None) -> bytes:
    """What the environment gives, else what the file holds; made when there is none.

    A node that keeps nothing and is given nothing gets one for this run. Raises StartError.
    """
    if cluster.cookie:
        return cluster.cookie.encode()
    if cluster.secret_file is not None:
        path = Path(cluster.secret_file)
    elif data_dir is not None:
        path = data_dir / FILE_NAME
    else:
        return secrets.token_hex(MADE_BYTES).encode()
    try:
        if not path.exists():
            make_secret_file(path)
        return _read(path)
    except OSError as error:
        raise StartError(
            f"the cluster's secret cannot be had from {path}: {error.strerror}.\n"
            "Name another file with cluster.secret_file, or give it in WARREN_ERLANG_COOKIE."
        ) from error


def make_secret_file(path: Path) -> None:
    """A new secret that only this user may read; one that is there already stays. OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Whole or not at all, also when several nodes start at once and share the file.
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(number, "w") as file:
            file.write(secrets.token_hex(MADE_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        found = os.fstat(file.fileno())
        if found.st_mode & _FOR_OTHERS:
            raise StartError(
                f"the cluster's secret in {path} can be read or changed by others "
                f"(mode {stat.S_IMODE(found.st_mode):04o}).\n"
                f"Keep it to this user: chmod 600 {shlex.quote(str(path))}"
            )
        secret = file.read(SECRET_BYTES_MAX + 1).strip()
    if not secret or len(secret) > SECRET_BYTES_MAX:
        what = "is empty" if not secret else f"has more than {SECRET_BYTES_MAX} bytes"
        raise StartError(
            f"the cluster's secret in {path} {what}.\n"
            "Copy the file of a node that is in the cluster, or delete it to have one made."
        )
    return secret
