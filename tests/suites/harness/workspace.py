"""Brings a suite onto the disk: source archive, patched copy, virtual environment."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import time
import venv
from pathlib import Path

from harness.certificates import Certificates
from harness.paths import (
    DOWNLOADS_DIR,
    OVERLAYS_DIR,
    REQUIREMENTS_DIR,
    SOURCES_DIR,
    VENVS_DIR,
)
from harness.suite import Patch, Suite

#: Before the second and the third try of a download.
PAUSES_S = (5, 20)
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


class WorkspaceError(Exception):
    """A suite could not be fetched, unpacked, patched or given its environment."""


def prepare_source(suite: Suite, certificates: Certificates) -> Path:
    """Unpack the archive afresh, so that no run sees what another left, and patch the copy."""
    archive = fetch_archive(suite)
    root = SOURCES_DIR / suite.name
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    with tarfile.open(archive) as bundle:
        bundle.extractall(root, filter="data")
    (source,) = root.iterdir()
    for patch in suite.patches:
        _apply(source, patch)
    for target, overlay in suite.overlays.items():
        path = source / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("" if overlay is None else (OVERLAYS_DIR / overlay).read_text())
    for target, name in suite.certificates.items():
        path = source / target
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(getattr(certificates, name), path)
    return source


def fetch_archive(suite: Suite) -> Path:
    """The source archive of the suite, downloaded once.

    Raises: WorkspaceError when the index does not give it.
    """
    stem = f"{suite.project.replace('-', '_')}-{suite.version}"
    archive = DOWNLOADS_DIR / f"{stem}.tar.gz"
    if archive.exists():
        return archive
    DOWNLOADS_DIR.mkdir(parents=True, exist_ok=True)
    # Only the suite itself must be source: pip also fetches its build backend to read its metadata,
    # and `:all:` would have it compile that from source too.
    _run(
        *PIP,
        *("download", "--quiet", "--no-deps", "--no-binary", suite.project),
        *("--dest", str(DOWNLOADS_DIR), f"{suite.project}=={suite.version}"),
    )
    if not archive.exists():
        raise WorkspaceError(f"pip did not leave {archive.name}")
    return archive


def prepare_venv(suite: Suite) -> Path:
    """The interpreter of the suite's environment."""
    return prepare_environment(suite.name)


def prepare_environment(name: str) -> Path:
    """The interpreter of an environment, made anew when its requirements change."""
    directory = VENVS_DIR / name
    python = directory / "bin" / "python"
    requirements = REQUIREMENTS_DIR / f"{name}.txt"
    stamp = directory / "installed.txt"
    if stamp.exists() and stamp.read_text() == requirements.read_text():
        return python
    shutil.rmtree(directory, ignore_errors=True)
    venv.create(directory, with_pip=False, symlinks=True)
    _run(
        *PIP,
        *("--python", str(python), "install", "--quiet", "--no-deps", "-r", str(requirements)),
    )
    shutil.copyfile(requirements, stamp)
    return python


def _apply(source: Path, patch: Patch) -> None:
    path = source / patch.path
    text = path.read_text()
    if patch.old not in text:
        raise WorkspaceError(f"{path}: {patch.old!r} is not there; needed because {patch.reason}")
    path.write_text(text.replace(patch.old, patch.new))


def _run(*command: str) -> None:
    """Downloads, all of them: an index that does not answer is asked again after a while."""
    for pause_s in (*PAUSES_S, None):
        result = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if result.returncode == 0:
            return
        if pause_s is not None:
            time.sleep(pause_s)
    raise WorkspaceError(f"{' '.join(command)} failed:\n{result.stdout[-4000:]}")
