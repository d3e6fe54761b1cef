"""Options of `format("warren")` that cannot be meant: each refusal names the one to change."""

from __future__ import annotations

from pathlib import Path

import pytest

from warren.spark.errors import OptionError, Refused, hint
from warren.spark.options import read_options
from warren.spark.queues import Cursors

GIVEN = {"endpoints": "http://h:15672", "queues": "orders,bills"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": "latest", "startingTimestamp": "5"}, "'startingTimestamp', not both"),
        ({"endingOffsets": "latest"}, r"'endingOffsets' is for spark\.read.*availableNow"),
        ({"endingTimestamp": "5"}, r"'endingTimestamp' is for spark\.read"),
        ({"startingOffsets": '{"ordres": 5}'}, "'startingOffsets' names queue 'ordres'.*'queues'"),
        ({"startingOffsets": '{"orders": -1}'}, "'startingOffsets' must be 'earliest', 'latest'"),
        ({"startingOffsets": '{"orders": "x"}'}, "'startingOffsets' must be"),
        ({"startingOffsets": "[1]"}, "'startingOffsets' must be"),
        ({"startingTimestamp": "today"}, "'startingTimestamp' must be a number"),
    ],
)
def test_ends_of_a_stream(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        read_options({**GIVEN, **options}).check_ends(is_stream=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"readFrom": "somewhere"}, "'readFrom' must be one of any, mirror, master"),
        ({"fetchRows": "0"}, "'fetchRows' must be a number of at least 1, not '0'"),
        ({"minPartitions": "few"}, "'minPartitions' must be a number of at least 1"),
        ({"includeBody": "yes"}, "'includeBody' must be true or false"),
        ({"endingOffsets": "latest"}, "'endingOffsets' is for"),
    ],
)
def test_what_tasks_need_is_checked_before_there_is_one(
    options: dict[str, str], words: str
) -> None:
    with pytest.raises(OptionError, match=words):
        read_options({**GIVEN, **options}).check_reading(is_stream=True)


def test_ends_that_can_be_meant() -> None:
    ends = {"startingOffsets": '{"orders": 5}', "endingOffsets": '{"bills": "latest"}'}
    read_options({**GIVEN, **ends}).check_ends(is_stream=False)
    # Which queues a pattern finds is not known here.
    found = {"endpoints": "http://h:15672", "queuePattern": "o.*", "startingOffsets": '{"a": 5}'}
    read_options(found).check_ends(is_stream=True)


def test_names_spelling_and_values(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"no option 'queu'; there are .*queuePattern"):
        read_options({"queu": "q"})
    given = read_options({"ENDPOINTS": "http://a:1/, https://b", "failOnDataLoss": "no"})
    assert given.endpoints == ["http://a:1", "https://b"]
    with pytest.raises(OptionError, match="'failOnDataLoss' must be true or false, not 'no'"):
        given.flag("failOnDataLoss", True)
    with pytest.raises(OptionError, match="'cursor' is required"):
        given.text("cursor")
    secret = tmp_path / "secret"
    with pytest.raises(OptionError, match=r"'passwordFile': .*No such file.*executors"):
        _ = read_options({"passwordFile": str(secret)}).password
    secret.write_text("hush\n")
    assert read_options({"passwordFile": str(secret)}).password == "hush"


@pytest.mark.parametrize(
    ("word", "named"),
    [
        ("not_authorized", "'passwordFile'"), ("not_authorised", "'user'"),
        ("no_queue", "'queues'"), ("no_cursor", "'cursor'"), ("cursor_in_use", "'cursor'"),
        ("staged_too_much", "'maxOffsetsPerTrigger'"),
        ("payload_too_large", "'management.http.max_body_size'"),
        ("not_staged", "start the query again"), ("Object Not Found", "'vhost'"),
    ],
)  # fmt: skip
def test_refusals_name_what_to_change(word: str, named: str) -> None:
    assert named in hint(Refused(400, word, "refused"))


@pytest.mark.parametrize(
    ("reason", "named"),
    [
        ("cursor 'c' has been read up to position 5 by another query: Give", "(option 'cursor')"),
        ("queue 'q' has priorities: its messages", "(option 'queues')"),
        ("is one to drain, not to follow: decided when it was first opened", "'mode' and 'cursor'"),
        ("queue 'q' has consumers: Stop them, or use mode=follow", "(option 'mode')"),
        ("'x' is no position to start at", "'startingOffsets'"),
    ],
)
def test_cursors_that_cannot_be_had_name_what_to_change(reason: str, named: str) -> None:
    error = Refused(412, "precondition_failed", reason)
    assert named in str(Cursors.explained(error))


def test_a_start_that_is_trimmed_says_where_to_begin() -> None:
    error = Refused(410, "trimmed", "messages before position 9 are trimmed")
    assert "'startingOffsets' to that position" in str(Cursors.explained(error))
