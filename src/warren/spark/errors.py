"""What can go wrong, each with the option to change."""

from __future__ import annotations


class WarrenError(Exception):
    """Base of all errors of the connector."""


class OptionError(WarrenError):
    """An option is missing or makes no sense."""


class Unreachable(WarrenError):
    """No endpoint answers, for longer than a failover takes."""


class Refused(WarrenError):
    """The broker answers, and refuses. `word` tells programs why."""

    def __init__(self, status: int, word: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.word = word


class DataLoss(WarrenError):
    """Messages that were to be read are not there any more."""


def loss(what: str) -> DataLoss:
    """Data loss, and what to do about it."""
    return DataLoss(
        f"{what}. Some messages may have been missed. To go on without them set the option "
        "'failOnDataLoss' to 'false'; nothing has been trimmed because of this error"
    )


def hint(error: Refused) -> str:
    """A refusal with the option that it is about."""
    hints = {
        "not_authorized": "check the options 'user' and 'passwordFile'",
        "not_authorised": "the user of the option 'user' needs the tag 'management', and "
        "permission to read the queues and to write to the exchanges",
        "Object Not Found": "there is no such virtual host, or nothing of Warren answers there: "
        "check the options 'vhost' and 'endpoints'",
        "no_queue": "check the options 'queues' and 'vhost'; the queue must exist before the "
        "query starts",
        "no_cursor": "the cursor of the option 'cursor' was dropped, or expired because the query "
        "stood still for longer than the option 'cursorExpiry'",
        "cursor_in_use": "a cursor has one query at a time: give this query another name in the "
        "option 'cursor', or stop the other query",
        "not_staged": "start the query again: the batch is published once. More than one node may "
        "have been lost, or a batch taken longer than 15 minutes",
        "moved": "start the query again: the batch is published once",
        "payload_too_large": "a row of a sink has as many bytes at most as the broker's setting "
        "'management.http.max_body_size' allows, 20 MB unless it is set; nothing of the batch is "
        "published",
        "staged_too_much": "let batches be smaller, with the option 'maxOffsetsPerTrigger' of the "
        "source",
    }
    told = hints.get(error.word)
    return f"{error} ({told})" if told else str(error)
