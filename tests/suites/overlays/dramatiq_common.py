"""The names the dramatiq suite imports from a file its source archive leaves out."""

from __future__ import annotations

import os

import pika
import pytest

RABBITMQ_USERNAME = os.environ["SUITES_USER"]
RABBITMQ_PASSWORD = os.environ["SUITES_PASSWORD"]
RABBITMQ_CREDENTIALS = pika.PlainCredentials(RABBITMQ_USERNAME, RABBITMQ_PASSWORD)

# The suite names hosts without a port; the broker under test is not on the usual one.
pika.connection.Parameters.DEFAULT_PORT = int(os.environ["SUITES_PORT"])

skip_unless_rabbit_mq = pytest.mark.skipif(False, reason="the broker is there")
