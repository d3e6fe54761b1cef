"""Where the harness keeps things: what is committed, and what is fetched or made on the spot."""

from __future__ import annotations

from pathlib import Path

SUITES_DIR = Path(__file__).resolve().parent.parent
PROJECT_DIR = SUITES_DIR.parent.parent

BASELINE_DIR = SUITES_DIR / "baseline"
OVERLAYS_DIR = SUITES_DIR / "overlays"
PLUGINS_DIR = SUITES_DIR / "plugins"
REQUIREMENTS_DIR = SUITES_DIR / "requirements"
EXCEPTIONS_FILE = SUITES_DIR / "exceptions.toml"

#: Never tracked: foreign sources, virtual environments, certificates, logs and results.
WORK_DIR = PROJECT_DIR / ".suites"
DOWNLOADS_DIR = WORK_DIR / "downloads"
SOURCES_DIR = WORK_DIR / "sources"
VENVS_DIR = WORK_DIR / "venvs"
CERTIFICATES_DIR = WORK_DIR / "certificates"
BROKERS_DIR = WORK_DIR / "brokers"
RESULTS_DIR = WORK_DIR / "results"
