"""Runs foreign clients' test suites against a broker; every test RabbitMQ passes must pass.

Usage: run.py [--broker warren|rabbitmq | --url URL] [--suite NAME]... [--fast|--only ID] [...]
Exit status: 0 all expected tests passed, 1 some did not, 2 the run could not be made.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.broker import WARREN, BrokerFailedError, choose_endpoint, running_broker
from harness.catalogue import SUITES, find_suite
from harness.certificates import Certificates, make_certificates
from harness.document import update_document
from harness.endpoint import Endpoint, parse_url
from harness.execute import Outcome, Prepared, run_suite
from harness.guard import UnsafeSuiteError
from harness.paths import BROKERS_DIR, CERTIFICATES_DIR, RESULTS_DIR, SUITES_DIR
from harness.report import render_details, render_table
from harness.suite import Suite
from harness.verdict import Verdict, judge, load_baseline, load_waivers, waived, write_baseline
from harness.workspace import WorkspaceError, prepare_source, prepare_venv

SERVE = (sys.executable, str(SUITES_DIR / "serve.py"))


def main() -> int:
    """Run what the command line asks for and print the verdict."""
    options = parse_options()
    # An orderly exit, so that the brokers and tests this run has started end with it.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        suites = [find_suite(name) for name in options.suite] if options.suite else list(SUITES)
    except KeyError as error:
        print(error.args[0], file=sys.stderr)
        return 2
    if options.fast:
        suites = [suite for suite in suites if suite.fast]
    certificates = make_certificates(CERTIFICATES_DIR)
    verdicts = []
    for suite in suites:
        try:
            verdict = run_one(suite, options, certificates)
        except (WorkspaceError, BrokerFailedError, UnsafeSuiteError, ValueError) as error:
            print(f"{suite.name}: {error}", file=sys.stderr)
            return 2
        verdicts.append(verdict)
        details = render_details(verdict)
        print(f"{suite.name}: {verdict.passed} of {verdict.expected} passed", flush=True)
        if details:
            print(details, flush=True)
    print("\n" + render_table(verdicts))
    if options.document:
        update_document(verdicts if options.broker == "warren" else [], load_waivers())
    return 0 if all(verdict.is_good for verdict in verdicts) else 1


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    target = parser.add_mutually_exclusive_group()
    target.add_argument("--broker", choices=("warren", "rabbitmq"), default="warren")
    target.add_argument("--url", help="a broker that runs already, on this machine")
    parser.add_argument("--warren", type=Path, default=WARREN, help="the command under test")
    parser.add_argument("--tls-port", type=int, help="with --url: its TLS port")
    parser.add_argument("--http-port", type=int, help="with --url: its management port")
    parser.add_argument("--suite", action="append", default=[], help="run this one; repeatable")
    parser.add_argument("--fast", action="store_true", help="only the part that `make test` runs")
    parser.add_argument("--only", help="give pytest this node id instead of the whole suite")
    parser.add_argument(
        "--record", action="store_true", help="write what passes as the baseline (RabbitMQ only)"
    )
    parser.add_argument(
        "--document", action="store_true", help="write the outcome into docs/compatibility.md"
    )
    options = parser.parse_args()
    if options.document and (options.fast or options.only or options.url):
        parser.error("--document needs whole suites and --broker")
    if options.record and (options.broker != "rabbitmq" or options.url or options.fast):
        parser.error("--record needs --broker rabbitmq")
    return options


def run_one(suite: Suite, options: argparse.Namespace, certificates: Certificates) -> Verdict:
    """Prepare one suite, run it against a fresh broker, judge it."""
    # RabbitMQ is the measure: of the exceptions only "must not run" holds for it.
    waivers = [w for w in load_waivers() if options.broker != "rabbitmq" or not w.run]
    baseline = load_baseline(suite.name)
    prepared = Prepared(suite, prepare_source(suite, certificates), prepare_venv(suite))
    targets = suite.fast if options.fast else suite.targets
    if options.only:
        targets = (options.only,)
    shutil.rmtree(RESULTS_DIR / suite.name, ignore_errors=True)
    deselected = [w.tests for w in waivers if w.suite == suite.name and not w.run]
    with broker_of(options, suite, certificates) as (endpoint, another):
        outcome: Outcome = run_suite(
            prepared,
            endpoint,
            certificates,
            targets,
            another_broker=another,
            deselected=deselected,
            wanted=None if options.record else baseline - waived(suite.name, baseline, waivers),
        )
    if options.record and outcome.trouble is None:
        write_baseline(suite.name, outcome, "RabbitMQ 3.10.8", add=bool(options.only))
        baseline = load_baseline(suite.name)
    return judge(
        suite.name,
        suite.version,
        baseline,
        outcome,
        waivers,
        only_under=targets if options.only or options.fast else None,
    )


@contextmanager
def broker_of(
    options: argparse.Namespace, suite: Suite, certificates: Certificates
) -> Iterator[tuple[Endpoint, list[str] | None]]:
    """The broker to test: the given one, or one that lives as long as this suite runs.

    With it comes the command that starts another of its kind, if there is one.
    """
    if options.url:
        yield parse_url(options.url, options.tls_port, options.http_port), None
        return
    endpoint = choose_endpoint()
    directory: Path = BROKERS_DIR / f"{options.broker}-{suite.name}"
    shutil.rmtree(directory, ignore_errors=True)
    with running_broker(options.broker, endpoint, certificates, directory, warren=options.warren):
        yield endpoint, [*SERVE, "--broker", options.broker, "--warren", str(options.warren)]


if __name__ == "__main__":
    sys.exit(main())
