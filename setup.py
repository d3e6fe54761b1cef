"""Compiles the data plane; everything else about the build is in pyproject.toml."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
    "freethreading_compatible": False,
}

extensions = [
    Extension(
        ".".join(path.with_suffix("").parts[1:]), [str(path)], extra_compile_args=["-O3", "-g0"]
    )
    for path in sorted(Path("src").rglob("*.pyx"))
]
setup(
    ext_modules=cythonize(extensions, include_path=["src"], compiler_directives=DIRECTIVES),
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
)
