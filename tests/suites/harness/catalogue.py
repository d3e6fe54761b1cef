"""The suites, one entry each. Versions are those `docs/compatibility.md` claims."""

from __future__ import annotations

from harness.certificates import Certificates
from harness.endpoint import Endpoint
from harness.suite import Patch, Suite

_PORT = "int(__import__('os').environ['SUITES_PORT'])"
_TLS_PORT = "int(__import__('os').environ['SUITES_TLS_PORT'])"

#: For archives without a pytest configuration: pytest would find Warren's in a directory above.
_OWN_ROOT: dict[str, str | None] = {"pytest.ini": None}


def _nothing(endpoint: Endpoint, certificates: Certificates) -> dict[str, str]:
    """For suites whose overlays read the variables every suite gets."""
    return {}


def _py_amqp(endpoint: Endpoint, certificates: Certificates) -> dict[str, str]:
    return {
        "RABBITMQ_HOST": endpoint.host,
        "RABBITMQ_5672_TCP": str(endpoint.port),
        "RABBITMQ_5671_TCP": str(endpoint.tls_port or 1),
    }


def _celery(endpoint: Endpoint, certificates: Certificates) -> dict[str, str]:
    return {
        "TEST_BROKER": f"pyamqp://{endpoint.credentials}@{endpoint.host}:{endpoint.port}//",
        "TEST_BACKEND": "rpc://",
    }


def _rabbitpy(endpoint: Endpoint, certificates: Certificates) -> dict[str, str]:
    return {"RABBITMQ_URL": endpoint.url}


def _amqpstorm(endpoint: Endpoint, certificates: Certificates) -> dict[str, str]:
    return {
        "AMQP_BROKER": "rabbitmq",
        "AMQP_HOST": endpoint.host,
        "AMQP_USERNAME": endpoint.user,
        "AMQP_PASSWORD": endpoint.password,
        "AMQP_URI": endpoint.url,
        "AMQP_HTTP_URL": endpoint.http_url,
        "AMQP_SSL_URI": endpoint.tls_url,
        "AMQP_SSL_HOST": endpoint.host,
        "AMQP_CAFILE": str(certificates.ca),
        "AMQP_CERTFILE": str(certificates.client_certificate),
        "AMQP_KEYFILE": str(certificates.client_key),
    }


SUITES = (
    Suite(
        name="amqp",
        project="amqp",
        version="5.4.2",
        targets=("t/integration",),
        fast=("t/integration",),
        environment=_py_amqp,
        guarded_variables=("RABBITMQ_HOST",),
        certificates={
            "t/certs/ca_certificate.pem": "ca",
            "t/certs/client_certificate.pem": "client_certificate",
            "t/certs/client_key.pem": "client_key",
            "t/certs/client_certificate_broken.pem": "broken_client_certificate",
            "t/certs/client_key_broken.pem": "broken_client_key",
        },
    ),
    Suite(
        name="kombu",
        project="kombu",
        version="5.7.0",
        targets=("t/integration/test_py_amqp.py",),
        fast=("t/integration/test_py_amqp.py",),
        environment=_py_amqp,
        guarded_variables=("RABBITMQ_HOST",),
    ),
    Suite(
        name="rabbitpy",
        project="rabbitpy",
        version="3.0.2",
        targets=("tests/test_integration.py", "tests/integration"),
        fast=("tests/test_integration.py", "tests/integration"),
        environment=_rabbitpy,
        guarded_variables=("RABBITMQ_URL",),
        overlays=_OWN_ROOT,
    ),
    Suite(
        name="dramatiq",
        project="dramatiq",
        version="2.2.1",
        targets=("tests/test_rabbitmq.py",),
        fast=("tests/test_rabbitmq.py",),
        environment=_nothing,
        overlays={
            "tests/__init__.py": None,
            "tests/common.py": "dramatiq_common.py",
            "tests/conftest.py": "dramatiq_conftest.py",
        },
        options=("-o", "addopts="),
    ),
    Suite(
        name="amqpy",
        project="amqpy",
        version="0.13.1",
        targets=("amqpy/tests",),
        environment=_nothing,
        overlays=_OWN_ROOT,
        patches=(
            Patch(
                "amqpy/connection.py",
                "host='localhost', port=5672",
                f"host='127.0.0.1', port={_PORT}",
                "the tests connect to the client's default address",
            ),
        ),
    ),
    Suite(
        name="aiormq",
        project="aiormq",
        version="7.2.4",
        targets=("tests",),
        environment=_nothing,
        overlays={"conftest.py": "aiormq_conftest.py"},
        certificates={
            "tests/certs/ca.pem": "ca",
            "tests/certs/client.pem": "client_certificate",
            "tests/certs/client.key": "client_key",
            "tests/certs/server.pem": "server_certificate",
            "tests/certs/server.key": "server_key",
        },
    ),
    Suite(
        name="aio-pika",
        project="aio-pika",
        version="10.2.1",
        targets=("tests",),
        environment=_nothing,
        overlays={"tests/docker_client.py": "disposable_broker.py"},
        options=("-o", "log_cli=false"),
        test_timeout_s=180,
        suite_timeout_s=1800,
    ),
    Suite(
        name="amqpstorm",
        project="amqpstorm",
        version="3.1.4",
        targets=("amqpstorm/tests/functional",),
        environment=_amqpstorm,
        overlays=_OWN_ROOT | {"amqpstorm/tests/functional/cleaner.py": "amqpstorm_cleaner.py"},
        patches=(
            Patch(
                "amqpstorm/connection.py",
                "port: int = 5672",
                f"port: int = {_PORT}",
                "the tests connect to the client's default port",
            ),
            Patch(
                "amqpstorm/tests/functional/ssl/test_reliability.py",
                "port=5671",
                f"port={_TLS_PORT}",
                "the TLS port is written into the tests",
            ),
            Patch(
                "amqpstorm/tests/__init__.py",
                "rmq.eandersson.net",
                "127.0.0.1",
                "the defaults name a public broker",
            ),
            Patch(
                "amqpstorm/tests/functional/utility.py",
                "    api = ManagementApi(HTTP_URL, USERNAME, PASSWORD, timeout=10)",
                "    from amqpstorm.tests.functional.cleaner import AmqpCleaner\n"
                "    api = AmqpCleaner()",
                "cleaning up must not need the management API",
            ),
        ),
        guarded_variables=(
            "AMQP_HOST",
            "AMQP_URI",
            "AMQP_HTTP_URL",
            "AMQP_SSL_URI",
            "AMQP_SSL_HOST",
        ),
        guarded_file="amqpstorm/tests/__init__.py",
    ),
    Suite(
        name="celery",
        project="celery",
        version="5.7.0",
        targets=(
            "t/integration/test_tasks.py",
            "t/integration/test_inspect.py",
            "t/integration/test_worker.py",
            "t/integration/test_loader.py",
            "t/integration/test_security.py",
            "t/integration/test_serialization.py",
            "t/integration/test_beat.py",
            "t/integration/test_connection_recovery.py",
            "t/integration/test_canvas.py",
        ),
        environment=_celery,
        guarded_variables=("TEST_BROKER",),
        # The celery package does not announce its plugin to pytest; its own tests rely on it.
        # Its five tries a test would take an hour where a result back end is missing.
        options=("-p", "celery.contrib.pytest", "-p", "no:rerunfailures"),
        # test_worker leaves the interpreter believing that it runs inside a task.
        process_per_file=True,
        test_timeout_s=120,
        suite_timeout_s=1800,
    ),
)


def find_suite(name: str) -> Suite:
    """The suite called `name`.

    Raises: KeyError with the names there are.
    """
    for suite in SUITES:
        if suite.name == name:
            return suite
    raise KeyError(f"no suite {name!r}; there are: {', '.join(s.name for s in SUITES)}")
