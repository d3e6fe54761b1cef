"""Lets the fuzz tests use the session tests' two ends without a network."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "session"))
