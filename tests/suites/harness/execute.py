"""Runs a suite's tests with pytest in its own environment and reads what came out."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from harness.broker import stop_process
from harness.certificates import Certificates
from harness.endpoint import Endpoint
from harness.guard import check_environment
from harness.paths import PLUGINS_DIR, RESULTS_DIR
from harness.suite import Suite

#: Variables of the caller that the suites may see; nothing else leaks into them.
PASSED_ON = ("LANG", "LC_ALL", "TZ", "TMPDIR")
#: pytest's exit statuses for "all passed" and "some failed"; all others mean it did not run them.
PYTEST_RAN = (0, 1)
#: More failures than this are a broken broker, not flaky tests: a second try would only cost time.
RERUN_TESTS_MAX = 60


@dataclass(frozen=True, slots=True)
class Prepared:
    """A suite that is ready to run."""

    suite: Suite
    source: Path
    python: Path


@dataclass(slots=True)
class Outcome:
    """What one run of a suite gave: node ids by result."""

    passed: set[str]
    failed: set[str]
    skipped: set[str]
    seconds: float
    #: Passed at the second try only.
    flaky: set[str]
    #: Why the run as a whole is worthless, if it is.
    trouble: str | None = None

    def add(self, other: Outcome) -> None:
        """Take in the outcome of another part of the suite."""
        self.passed |= other.passed
        self.failed |= other.failed
        self.skipped |= other.skipped
        self.flaky |= other.flaky
        self.seconds += other.seconds
        self.trouble = self.trouble or other.trouble


def run_suite(
    prepared: Prepared,
    endpoint: Endpoint,
    certificates: Certificates,
    targets: Sequence[str],
    *,
    another_broker: Sequence[str] | None,
    deselected: Sequence[str],
    wanted: set[str] | None,
) -> Outcome:
    """Run the tests, then those of `wanted` (`None`: all) that failed once more.

    Raises: UnsafeSuiteError when the suite could reach another machine.
    """
    environment = build_environment(prepared, endpoint, certificates, another_broker)
    check_environment(prepared.suite, prepared.source, environment)
    outcome = _run_all(prepared, environment, targets, deselected, "first")
    again = sorted(outcome.failed if wanted is None else outcome.failed & wanted)
    if outcome.trouble is None and 0 < len(again) <= RERUN_TESTS_MAX:
        second = _run_all(prepared, environment, again, (), "second")
        outcome.flaky = second.passed & set(again)
        outcome.passed |= outcome.flaky
        outcome.failed -= outcome.flaky
        outcome.seconds += second.seconds
    return outcome


def _run_all(
    prepared: Prepared,
    environment: dict[str, str],
    targets: Sequence[str],
    deselected: Sequence[str],
    label: str,
) -> Outcome:
    """One pytest for all targets, or one for each file where the suite asks for it."""
    if not prepared.suite.process_per_file:
        return _run_pytest(prepared, environment, targets, deselected, label)
    by_file: dict[str, list[str]] = {}
    for target in targets:
        by_file.setdefault(target.partition("::")[0], []).append(target)
    total = Outcome(set(), set(), set(), 0.0, set())
    for path, group in by_file.items():
        name = f"{label}-{Path(path).stem}"
        total.add(_run_pytest(prepared, environment, group, deselected, name))
    return total


def build_environment(
    prepared: Prepared,
    endpoint: Endpoint,
    certificates: Certificates,
    another_broker: Sequence[str] | None,
) -> dict[str, str]:
    """All the variables a suite sees; `another_broker` starts one for a test to stop and kill."""
    home = RESULTS_DIR / prepared.suite.name / "home"
    home.mkdir(parents=True, exist_ok=True)
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    environment |= {
        "PATH": f"{prepared.python.parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "PYTHONPATH": str(PLUGINS_DIR),
        "PYTHONDONTWRITEBYTECODE": "1",
        "SUITES_HOST": endpoint.host,
        "SUITES_PORT": str(endpoint.port),
        "SUITES_TLS_PORT": str(endpoint.tls_port or 1),
        "SUITES_USER": endpoint.user,
        "SUITES_PASSWORD": endpoint.password,
    }
    if another_broker is not None:
        environment["SUITES_BROKER_COMMAND"] = json.dumps(another_broker)
    return environment | prepared.suite.environment(endpoint, certificates)


def _run_pytest(
    prepared: Prepared,
    environment: dict[str, str],
    targets: Sequence[str],
    deselected: Sequence[str],
    label: str,
) -> Outcome:
    suite = prepared.suite
    directory = RESULTS_DIR / suite.name
    report = directory / f"{label}.xml"
    report.unlink(missing_ok=True)
    command = [
        *(str(prepared.python), "-m", "pytest", "-q", "-ra", "-p", "loopback_only"),
        *("-p", "no:cacheprovider", "--color=no", "--tb=short"),
        *(f"--timeout={suite.test_timeout_s}", f"--junitxml={report}"),
        *suite.options,
        *(f"--deselect={node_id}" for node_id in deselected),
        *targets,
    ]
    begin = time.monotonic()
    trouble = None
    with (directory / f"{label}.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=prepared.source,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            process.wait(suite.suite_timeout_s)
        except subprocess.TimeoutExpired:
            trouble = f"not done after {suite.suite_timeout_s} s"
        finally:
            stop_process(process)
    seconds = time.monotonic() - begin
    if trouble is None and (process.returncode not in PYTEST_RAN or not report.exists()):
        trouble = f"pytest could not run the tests (status {process.returncode})"
    if trouble is not None:
        return Outcome(set(), set(), set(), seconds, set(), f"{trouble}; see {log.name}")
    return read_report(report, prepared.source, seconds)


def read_report(report: Path, source: Path, seconds: float) -> Outcome:
    """Sort the tests of a JUnit file by result; a test that is named twice must pass twice."""
    outcome = Outcome(set(), set(), set(), seconds, set())
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        node_id = _node_id(case.get("classname", ""), case.get("name", ""), source)
        if case.find("failure") is not None or case.find("error") is not None:
            outcome.failed.add(node_id)
        elif case.find("skipped") is not None:
            outcome.skipped.add(node_id)
        else:
            outcome.passed.add(node_id)
    outcome.passed -= outcome.failed | outcome.skipped
    return outcome


def _node_id(classname: str, name: str, source: Path) -> str:
    """Turn `tests.test_x.TestY` and `test_z` into `tests/test_x.py::TestY::test_z`."""
    parts = classname.split(".")
    for length in range(len(parts), 0, -1):
        path = "/".join(parts[:length]) + ".py"
        if (source / path).is_file():
            return "::".join([path, *parts[length:], name])
    return "::".join([classname, name])
