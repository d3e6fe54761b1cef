"""Arguments of queue.declare: each text is the one RabbitMQ gives for the same declaration."""

from __future__ import annotations

import datetime
import decimal

import pytest

from warren.model.errors import PreconditionFailed, ResourceLocked
from warren.model.queue_arguments import (
    QueueDeclaration,
    amqp_type_name,
    check_equivalent_queue,
    check_queue_arguments,
)
from warren.wire.tables import LongBytes, Timestamp

Arguments = dict[str, object]

INVALID: list[tuple[Arguments, str]] = [
    ({"x-message-ttl": -1}, "{value_negative,-1}"),
    ({"x-message-ttl": "10"}, '"expected integer, got longstr"'),
    ({"x-message-ttl": True}, '"expected integer, got bool"'),
    ({"x-message-ttl": [1]}, '"expected integer, got array"'),
    ({"x-message-ttl": Timestamp(5)}, '"expected integer, got timestamp"'),
    ({"x-message-ttl": None}, '"expected integer, got void"'),
    ({"x-message-ttl": 315360000001}, "{value_too_large,315360000001}"),
    ({"x-expires": 0}, "{value_zero,0}"),
    ({"x-expires": -1}, "{value_negative,-1}"),
    ({"x-max-length": -1}, "{value_negative,-1}"),
    ({"x-max-length-bytes": "a"}, '"expected integer, got longstr"'),
    ({"x-max-priority": 256}, "{max_value_exceeded,256}"),
    ({"x-max-priority": -1}, "{value_negative,-1}"),
    ({"x-overflow": "bad"}, "invalid_overflow"),
    ({"x-overflow": 5}, "{unacceptable_type,signedint}"),
    ({"x-dead-letter-routing-key": "a"}, "routing_key_but_no_dlx_defined"),
    ({"x-dead-letter-routing-key": 5}, "{unacceptable_type,signedint}"),
    ({"x-queue-mode": "bad"}, "\"unsupported queue mode 'bad'\""),
    ({"x-queue-mode": 5}, "{unacceptable_type,signedint}"),
    ({"x-queue-version": 3}, "\"unsupported queue version '3'\""),
    ({"x-queue-version": "a"}, '"expected integer, got longstr"'),
    ({"x-queue-type": "bad"}, "\"unsupported queue type 'bad'\""),
    ({"x-queue-type": 5}, "{unacceptable_type,signedint}"),
    ({"x-single-active-consumer": 1}, "{unacceptable_type,signedint}"),
    ({"x-delivery-limit": -1}, "{value_negative,-1}"),
    ({"x-consumer-timeout": "a"}, '"expected integer, got longstr"'),
]


@pytest.mark.parametrize(("arguments", "reason"), INVALID)
def test_invalid_arguments(arguments: Arguments, reason: str) -> None:
    with pytest.raises(PreconditionFailed) as caught:
        check_queue_arguments(arguments, "q", "/")
    (key,) = arguments
    assert caught.value.explanation == f"invalid arg '{key}' for queue 'q' in vhost '/': {reason}"


def test_expiry_is_judged_first() -> None:
    with pytest.raises(PreconditionFailed, match="x-expires"):
        check_queue_arguments({"x-message-ttl": -1, "x-expires": 0}, "q", "/")


def test_texts_of_another_form() -> None:
    with pytest.raises(PreconditionFailed) as caught:
        check_queue_arguments({"x-dead-letter-exchange": 5}, "q", "/")
    expected = "invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue 'q' in vhost '/'"
    assert caught.value.explanation == expected
    with pytest.raises(PreconditionFailed) as caught:
        check_queue_arguments({"x-max-age": "1D"}, "q", "/")
    expected = (
        "invalid arg 'x-max-age' for queue 'q' in vhost '/' of queue type rabbit_classic_queue"
    )
    assert caught.value.explanation == expected


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"x-message-ttl": 0},
        {"x-message-ttl": 315360000000},
        {"x-max-length": 1 << 40},
        {"x-max-priority": 0},
        {"x-max-priority": 255},
        {"x-overflow": "reject-publish-dlx"},
        {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "k"},
        {"x-queue-type": "classic", "x-queue-mode": "lazy", "x-queue-version": 2},
        {"x-foo": [1], "x-ha-policy": "all"},
        {"x-delivery-limit": 3, "x-queue-master-locator": "min-masters"},
        {"x-queue-type": "quorum", "x-quorum-initial-group-size": 3},
    ],
)
def test_accepted_arguments(arguments: Arguments) -> None:
    check_queue_arguments(arguments, "q", "/")


INEQUIVALENT: list[tuple[Arguments, Arguments, str]] = [
    ({"x-message-ttl": 20}, {"x-message-ttl": 10}, "received '10' but current is '20'"),
    (
        {"x-message-ttl": 20},
        {},
        "received none but current is the value '20' of type 'signedint'",
    ),
    (
        {"x-message-ttl": 109951162777},
        {},
        "received none but current is the value '109951162777' of type 'long'",
    ),
    (
        {},
        {"x-message-ttl": 10},
        "received the value '10' of type 'signedint' but current is none",
    ),
    (
        {"x-single-active-consumer": True},
        {"x-single-active-consumer": False},
        "received 'false' but current is 'true'",
    ),
    (
        {"x-single-active-consumer": True},
        {},
        "received none but current is the value 'true' of type 'bool'",
    ),
    (
        {"x-dead-letter-exchange": "a"},
        {"x-dead-letter-exchange": "b"},
        "received 'b' but current is 'a'",
    ),
    (
        {},
        {"x-queue-type": "quorum"},
        "received the value 'quorum' of type 'longstr' but current is none",
    ),
]


@pytest.mark.parametrize(("current", "received", "text"), INEQUIVALENT)
def test_inequivalent_arguments(current: Arguments, received: Arguments, text: str) -> None:
    with pytest.raises(PreconditionFailed) as caught:
        check_equivalent_queue(
            "q", "/", QueueDeclaration(arguments=current), QueueDeclaration(arguments=received)
        )
    (key,) = current or received
    assert (
        caught.value.explanation == f"inequivalent arg '{key}' for queue 'q' in vhost '/': {text}"
    )


def test_inequivalent_properties() -> None:
    plain = QueueDeclaration()
    with pytest.raises(PreconditionFailed) as caught:
        check_equivalent_queue("q", "/", plain, QueueDeclaration(durable=True, auto_delete=True))
    expected = (
        "inequivalent arg 'durable' for queue 'q' in vhost '/': "
        "received 'true' but current is 'false'"
    )
    assert caught.value.explanation == expected
    with pytest.raises(ResourceLocked, match="cannot obtain exclusive access to locked queue 'q'"):
        check_equivalent_queue("q", "/", plain, QueueDeclaration(exclusive=True))


@pytest.mark.parametrize(
    ("current", "received"),
    [
        ({"x-message-ttl": 20}, {"x-message-ttl": 20}),
        ({"x-foo": 5}, {"x-foo": 6}),
        ({"x-consumer-timeout": 50}, {"x-consumer-timeout": 51}),
        ({"x-queue-type": "classic"}, {}),
        ({}, {"x-queue-type": "classic"}),
    ],
)
def test_equivalent_arguments(current: Arguments, received: Arguments) -> None:
    check_equivalent_queue(
        "q", "/", QueueDeclaration(arguments=current), QueueDeclaration(arguments=received)
    )


def test_type_names() -> None:
    values: list[object] = [True, 1, 1 << 31, "a", b"a", 1.5, decimal.Decimal(1), [], {}, None]
    values.append(datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))
    values += [Timestamp(5), LongBytes(b"\xff")]
    assert [amqp_type_name(value) for value in values] == [
        "bool",
        "signedint",
        "long",
        "longstr",
        "binary",
        "double",
        "decimal",
        "array",
        "table",
        "void",
        "timestamp",
        "timestamp",
        "longstr",
    ]
