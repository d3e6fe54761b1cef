"""The harness judges the broker, so its own judgement and its guards are tested here."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness.catalogue import SUITES, find_suite
from harness.certificates import make_certificates
from harness.endpoint import Endpoint, parse_url
from harness.execute import Outcome, Prepared, build_environment, read_report
from harness.guard import UnsafeSuiteError, check_environment
from harness.paths import BASELINE_DIR, OVERLAYS_DIR, REQUIREMENTS_DIR
from harness.suite import Suite
from harness.verdict import Waiver, judge, load_baseline, load_waivers

ENDPOINT = Endpoint("127.0.0.1", 5672, 5671, 15672)


def outcome_of(passed: set[str]) -> Outcome:
    """A run in which these tests passed."""
    return Outcome(passed, set(), set(), 1.0, set())


@pytest.mark.parametrize("host", ["rmq.example.net", "localhost", "192.168.1.50", "0.0.0.0", ""])
def test_endpoint_refuses_everything_but_loopback(host: str) -> None:
    with pytest.raises(ValueError, match="loopback"):
        Endpoint(host, 5672)


def test_url_is_read_with_its_account() -> None:
    endpoint = parse_url("amqp://me:s%40crt@127.0.0.1:5673/", 5671, None)
    assert (endpoint.user, endpoint.password, endpoint.port) == ("me", "s@crt", 5673)


@pytest.fixture
def amqpstorm_source(tmp_path: Path) -> Path:
    """A stand-in for the file whose defaults lead to a public broker."""
    suite = find_suite("amqpstorm")
    assert suite.guarded_file is not None
    path = tmp_path / suite.guarded_file
    path.parent.mkdir(parents=True)
    path.write_text(
        "HOST = os.environ.get(\n    'AMQP_HOST',\n    'rmq.example.net')\n"
        "URI = os.environ.get('AMQP_URI', 'amqp://rmq.example.net')\n"
    )
    return tmp_path


def amqpstorm_environment(source: Path) -> dict[str, str]:
    """What the harness would set."""
    suite = find_suite("amqpstorm")
    certificates = make_certificates(source / "certificates")
    prepared = Prepared(suite, source, source / "venv" / "bin" / "python")
    return build_environment(prepared, ENDPOINT, certificates, None)


def test_amqpstorm_runs_with_every_variable_on_loopback(amqpstorm_source: Path) -> None:
    environment = amqpstorm_environment(amqpstorm_source)
    check_environment(find_suite("amqpstorm"), amqpstorm_source, environment)


@pytest.mark.parametrize("name", find_suite("amqpstorm").guarded_variables)
def test_amqpstorm_is_refused_when_an_address_is_missing(amqpstorm_source: Path, name: str) -> None:
    environment = amqpstorm_environment(amqpstorm_source)
    del environment[name]
    with pytest.raises(UnsafeSuiteError, match=name):
        check_environment(find_suite("amqpstorm"), amqpstorm_source, environment)


@pytest.mark.parametrize("name", find_suite("amqpstorm").guarded_variables)
def test_amqpstorm_is_refused_when_an_address_is_public(amqpstorm_source: Path, name: str) -> None:
    environment = amqpstorm_environment(amqpstorm_source)
    public = "amqp://rmq.example.net:5672" if "UR" in name else "rmq.example.net"
    with pytest.raises(UnsafeSuiteError, match=name):
        check_environment(find_suite("amqpstorm"), amqpstorm_source, environment | {name: public})


def test_amqpstorm_is_refused_when_it_reads_a_variable_we_do_not_know(
    amqpstorm_source: Path,
) -> None:
    suite = find_suite("amqpstorm")
    environment = amqpstorm_environment(amqpstorm_source)
    path = amqpstorm_source / str(suite.guarded_file)
    path.write_text(path.read_text() + "NEW = os.environ['AMQP_NEW_HOST']\n")
    with pytest.raises(UnsafeSuiteError, match="AMQP_NEW_HOST"):
        check_environment(suite, amqpstorm_source, environment)


def test_verdict_misses_what_the_baseline_has_and_the_run_has_not() -> None:
    verdict = judge("x", "1", {"a.py::one", "a.py::two"}, outcome_of({"a.py::one"}), [])
    assert verdict.missing == ("a.py::two",)
    assert (verdict.passed, verdict.expected, verdict.is_good) == (1, 2, False)


def test_an_empty_expectation_proves_nothing() -> None:
    assert not judge("x", "1", set(), outcome_of({"a.py::one"}), []).is_good


def test_waivers_take_tests_out_of_the_expectation_of_their_suite_only() -> None:
    waivers = [Waiver("x", "a.py::*", "because"), Waiver("y", "b.py::*", "because")]
    verdict = judge("x", "1", {"a.py::one[*]", "b.py::one"}, outcome_of({"b.py::one"}), waivers)
    assert verdict.is_good
    assert (verdict.expected, verdict.waived) == (1, 1)


def test_brackets_in_a_waiver_are_plain_characters() -> None:
    waiver = Waiver("x", "a.py::one[tls]", "because")
    assert waiver.covers("a.py::one[tls]")
    assert not waiver.covers("a.py::onet")


def test_expectation_narrows_to_the_targets_that_ran() -> None:
    baseline = {"t/a.py::one", "t/ab.py::two"}
    verdict = judge("x", "1", baseline, outcome_of({"t/a.py::one"}), [], only_under=["t/a.py"])
    assert verdict.is_good
    assert verdict.expected == 1


def test_report_gives_node_ids_and_a_test_named_twice_must_pass_twice(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "test_a.py").touch()
    report = tmp_path / "report.xml"
    report.write_text(
        "<testsuites><testsuite>"
        '<testcase classname="t.test_a.TestB" name="test_c[x.y::z]"/>'
        '<testcase classname="t.test_a" name="test_d"/>'
        '<testcase classname="t.test_a" name="test_d"><failure/></testcase>'
        '<testcase classname="t.test_a" name="test_e"><skipped/></testcase>'
        "</testsuite></testsuites>"
    )
    outcome = read_report(report, tmp_path, 1.0)
    assert outcome.passed == {"t/test_a.py::TestB::test_c[x.y::z]"}
    assert outcome.failed == {"t/test_a.py::test_d"}
    assert outcome.skipped == {"t/test_a.py::test_e"}


def test_every_exception_has_a_reason_and_names_a_suite() -> None:
    names = {suite.name for suite in SUITES}
    assert {waiver.suite for waiver in load_waivers()} <= names


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_every_suite_has_its_files(suite: Suite) -> None:
    assert (REQUIREMENTS_DIR / f"{suite.name}.txt").exists()
    assert (BASELINE_DIR / f"{suite.name}.txt").exists()
    assert load_baseline(suite.name)
    for overlay in suite.overlays.values():
        assert overlay is None or (OVERLAYS_DIR / overlay).exists()
