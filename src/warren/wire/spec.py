"""Every method of AMQP 0-9-1 with RabbitMQ's extensions, and the layout of its arguments.

The one table that both directions of the codec, the session's dispatch and the tests read.
Reserved arguments are ordinary fields here (`reserved_1`, ...): they are on the wire.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Method:
    """One method: its ids, its name, its arguments in wire order."""

    class_id: int
    method_id: int
    name: str
    #: (name, type); types: octet bit short long longlong shortstr longstr table timestamp.
    fields: tuple[tuple[str, str], ...]
    #: Whether a content header and body frames follow.
    content: bool

    @property
    def key(self) -> int:
        """`class_id << 16 | method_id`, as the tables below and `constants` use it."""
        return self.class_id << 16 | self.method_id


FIELD_TYPES: Final = frozenset(
    ("octet", "bit", "short", "long", "longlong", "shortstr", "longstr", "table", "timestamp")
)

# Methods that carry a message.
_WITH_CONTENT = frozenset(("basic.publish", "basic.return", "basic.deliver", "basic.get-ok"))

# Each class: its id, then per method its id, its name and its `field:type` list in wire order.
_CLASSES: tuple[tuple[str, int, str], ...] = (
    (
        "connection",
        10,
        """
        10 start version_major:octet version_minor:octet server_properties:table
            mechanisms:longstr locales:longstr
        11 start-ok client_properties:table mechanism:shortstr response:longstr locale:shortstr
        20 secure challenge:longstr
        21 secure-ok response:longstr
        30 tune channel_max:short frame_max:long heartbeat:short
        31 tune-ok channel_max:short frame_max:long heartbeat:short
        40 open virtual_host:shortstr reserved_1:shortstr reserved_2:bit
        41 open-ok reserved_1:shortstr
        50 close reply_code:short reply_text:shortstr class_id:short method_id:short
        51 close-ok
        60 blocked reason:shortstr
        61 unblocked
        70 update-secret new_secret:longstr reason:shortstr
        71 update-secret-ok
        """,
    ),
    (
        "channel",
        20,
        """
        10 open reserved_1:shortstr
        11 open-ok reserved_1:longstr
        20 flow active:bit
        21 flow-ok active:bit
        40 close reply_code:short reply_text:shortstr class_id:short method_id:short
        41 close-ok
        """,
    ),
    (
        "access",
        30,
        """
        10 request realm:shortstr exclusive:bit passive:bit active:bit write:bit read:bit
        11 request-ok reserved_1:short
        """,
    ),
    (
        "exchange",
        40,
        """
        10 declare reserved_1:short exchange:shortstr type:shortstr passive:bit durable:bit
            auto_delete:bit internal:bit no_wait:bit arguments:table
        11 declare-ok
        20 delete reserved_1:short exchange:shortstr if_unused:bit no_wait:bit
        21 delete-ok
        30 bind reserved_1:short destination:shortstr source:shortstr routing_key:shortstr
            no_wait:bit arguments:table
        31 bind-ok
        40 unbind reserved_1:short destination:shortstr source:shortstr routing_key:shortstr
            no_wait:bit arguments:table
        51 unbind-ok
        """,
    ),
    (
        "queue",
        50,
        """
        10 declare reserved_1:short queue:shortstr passive:bit durable:bit exclusive:bit
            auto_delete:bit no_wait:bit arguments:table
        11 declare-ok queue:shortstr message_count:long consumer_count:long
        20 bind reserved_1:short queue:shortstr exchange:shortstr routing_key:shortstr
            no_wait:bit arguments:table
        21 bind-ok
        30 purge reserved_1:short queue:shortstr no_wait:bit
        31 purge-ok message_count:long
        40 delete reserved_1:short queue:shortstr if_unused:bit if_empty:bit no_wait:bit
        41 delete-ok message_count:long
        50 unbind reserved_1:short queue:shortstr exchange:shortstr routing_key:shortstr
            arguments:table
        51 unbind-ok
        """,
    ),
    (
        "basic",
        60,
        """
        10 qos prefetch_size:long prefetch_count:short global:bit
        11 qos-ok
        20 consume reserved_1:short queue:shortstr consumer_tag:shortstr no_local:bit no_ack:bit
            exclusive:bit no_wait:bit arguments:table
        21 consume-ok consumer_tag:shortstr
        30 cancel consumer_tag:shortstr no_wait:bit
        31 cancel-ok consumer_tag:shortstr
        40 publish reserved_1:short exchange:shortstr routing_key:shortstr mandatory:bit
            immediate:bit
        50 return reply_code:short reply_text:shortstr exchange:shortstr routing_key:shortstr
        60 deliver consumer_tag:shortstr delivery_tag:longlong redelivered:bit exchange:shortstr
            routing_key:shortstr
        70 get reserved_1:short queue:shortstr no_ack:bit
        71 get-ok delivery_tag:longlong redelivered:bit exchange:shortstr routing_key:shortstr
            message_count:long
        72 get-empty reserved_1:shortstr
        80 ack delivery_tag:longlong multiple:bit
        90 reject delivery_tag:longlong requeue:bit
        100 recover-async requeue:bit
        110 recover requeue:bit
        111 recover-ok
        120 nack delivery_tag:longlong multiple:bit requeue:bit
        """,
    ),
    (
        "confirm",
        85,
        """
        10 select no_wait:bit
        11 select-ok
        """,
    ),
    (
        "tx",
        90,
        """
        10 select
        11 select-ok
        20 commit
        21 commit-ok
        30 rollback
        31 rollback-ok
        """,
    ),
)


def _parse() -> Iterable[Method]:
    for class_name, class_id, text in _CLASSES:
        heads: list[tuple[int, str, list[tuple[str, str]]]] = []
        words = iter(text.split())
        for word in words:
            if word.isdigit():
                heads.append((int(word), f"{class_name}.{next(words)}", []))
                continue
            field, _, kind = word.partition(":")
            if kind not in FIELD_TYPES:
                raise ValueError(f"unknown field type in {word!r}")
            heads[-1][2].append((field, kind))
        for method_id, name, fields in heads:
            yield Method(class_id, method_id, name, tuple(fields), name in _WITH_CONTENT)


#: Every method by its key.
METHODS: Final[dict[int, Method]] = {method.key: method for method in _parse()}
#: Every method by its name, as in "queue.declare-ok".
BY_NAME: Final[dict[str, Method]] = {method.name: method for method in METHODS.values()}
