"""Takes the place of the management API where the amqpstorm suite cleans up after a test.

Nearly every test deletes its queue or exchange that way, so without it a broker that has no
management API would fail tests that are about AMQP alone.
"""

from __future__ import annotations

from amqpstorm import AMQPChannelError, Connection
from amqpstorm.tests import HOST, PASSWORD, USERNAME


class _Deleter:
    def __init__(self, noun: str) -> None:
        self._noun = noun

    def delete(self, name: str) -> None:
        """Delete the queue or exchange called `name`; that there is none is fine."""
        with Connection(HOST, USERNAME, PASSWORD) as connection:
            channel = connection.channel()
            try:
                getattr(channel, self._noun).delete(name)
            except AMQPChannelError:
                return


class AmqpCleaner:
    """Deletes queues and exchanges as `ManagementApi` does, over AMQP."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.queue = _Deleter("queue")
        self.exchange = _Deleter("exchange")
