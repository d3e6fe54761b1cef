"""Compiles the data plane and packs the web UI; all else about the build is in pyproject.toml."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_py import build_py

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
    "freethreading_compatible": False,
}

WEB_UI = Path("src/warren/management/ui/index.html")


class BuildPy(build_py):
    """Builds the web UI where that was not done before, as `make` does, and Node.js is there."""

    def run(self) -> None:
        if not self.editable_mode and not WEB_UI.exists() and Path("webui/package.json").exists():
            if shutil.which("npm") is None:
                sys.stderr.write("no npm: the package will be without the web UI\n")
            else:
                try:
                    for command in (["ci", "--loglevel", "error"], ["run", "-s", "build"]):
                        subprocess.run(["npm", *command], cwd="webui", check=True)
                except (OSError, subprocess.CalledProcessError) as error:
                    # The broker is worth having without it: a registry may be out of reach.
                    sys.stderr.write(f"{error}: the package will be without the web UI\n")
        super().run()


# Wheels go without the names of functions that nobody calls from outside, and without the tables
# that lead from one to its caller; who works on the source wants to see them in profiles.
IS_WHEEL = "bdist_wheel" in sys.argv
COMPILE = ["-fno-asynchronous-unwind-tables"] if IS_WHEEL else []
LINK = ["-s"] if IS_WHEEL else []

# Set by the Makefile where it compiles by itself, only what has changed: pip would compile all of
# it for an editable install, and throw the objects away.
WITHOUT_EXTENSIONS = "WARREN_WITHOUT_EXTENSIONS" in os.environ

extensions = [
    Extension(
        ".".join(path.with_suffix("").parts[1:]),
        [str(path)],
        extra_compile_args=["-O3", "-g0", *COMPILE],
        extra_link_args=LINK,
    )
    for path in ([] if WITHOUT_EXTENSIONS else sorted(Path("src").rglob("*.pyx")))
]
setup(
    ext_modules=cythonize(extensions, include_path=["src"], compiler_directives=DIRECTIVES),
    cmdclass={"build_py": BuildPy},
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
)
