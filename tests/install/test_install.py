"""`pip install .` from the tracked files alone, into a place of its own, and a broker run there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: The compiled modules are some 50 KB each; debug information or C sources would be far beyond it.
WHEEL_BYTES_MAX = 4 * 1024 * 1024


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the package was installed into."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("needs a git checkout to tell the sources from what was built")
    source = tmp_path_factory.mktemp("source")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, check=True)
    for name in listed.stdout.decode().splitlines():
        if name.startswith("src/") or "/" not in name:
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_file():
                shutil.copyfile(ROOT / name, target)
    # As after 'make webui'; a wheel holds what was built.
    built = ROOT / "src" / "warren" / "management" / "ui"
    assert (built / "index.html").exists(), "run 'make webui' first"
    shutil.copytree(built, source / built.relative_to(ROOT), dirs_exist_ok=True)
    wheels = tmp_path_factory.mktemp("wheels")
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "wheel", "--no-build-isolation", "--no-deps", "-w", wheels, source], check=True
    )
    (wheel,) = wheels.iterdir()
    assert wheel.stat().st_size < WHEEL_BYTES_MAX
    place = tmp_path_factory.mktemp("place")
    subprocess.run([*pip, "install", "--no-deps", "--target", place, wheel], check=True)
    return place


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_installed_package_serves(installed: Path) -> None:
    assert not list(installed.rglob("*.pyx"))
    assert not list(installed.rglob("*.c"))
    ui = installed / "warren" / "management" / "ui"
    assert (ui / "index.html").exists()
    assert list((ui / "assets").glob("*.js"))
    program = (
        "import warren, pika\n"
        "from warren.testing import Broker\n"
        "with Broker() as broker:\n"
        "    channel = pika.BlockingConnection(pika.URLParameters(broker.url)).channel()\n"
        "    channel.queue_declare('q')\n"
        "    channel.basic_publish('', 'q', b'hello')\n"
        "    print(warren.__file__, channel.basic_get('q', auto_ack=True)[2])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        cwd=installed,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert answer.stdout.split() == [str(installed / "warren" / "__init__.py"), "b'hello'"]
    version = subprocess.run(
        [installed / "bin" / "warren", "--version"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "warren" in version.stdout
