"""What a person is told when Spark or a disk fails: a sentence with what to do, not a trace."""

from __future__ import annotations

import errno
import re

from warren.spark.errors import WarrenError

#: Files as Spark, Python and Java name them.
_FILE = re.compile(r"file:/*(/[^\s,;:'\"<>()]+)|'(/[^']+)'|(/[^\s:()]+) \(")
#: Words of an error -> what it means and what to do. The first that fits counts.
_MEANINGS = (
    (
        ("No space left on device", "Disk quota exceeded"),
        "the disk is full{where}: make room and give the same command again",
    ),
    (
        ("Permission denied", "Read-only file system", "Mkdirs failed to create",
         "Not a directory"),
        "it cannot be written to{where}: choose another place, or let this user write there",
    ),
    (
        ("is not a Parquet file", "CANNOT_READ_FILE_FOOTER", "Could not read footer",
         "PARQUET_PAGE", "Corrupt", "corrupt"),
        "a file cannot be read{where}: it is damaged, or no Parquet. Take it out of the directory, "
        "or put back a copy of it",
    ),
    (
        ("PARQUET_COLUMN_DATA_TYPE_MISMATCH", "SchemaColumnConvertNotSupported",
         "Parquet column cannot be converted", "CANNOT_MERGE_SCHEMAS", "INCOMPATIBLE_SCHEMA"),
        "a file has a column of another type than the others{where}: take it out of the directory, "
        "or write it anew with the columns that the others have",
    ),
    (
        ("FileNotFoundException", "PATH_NOT_FOUND", "FILE_NOT_EXIST"),
        "a file that was to be read is gone{where}: was something removed or compacted meanwhile? "
        "Give the same command again",
    ),
    (
        ("JAVA_GATEWAY_EXITED",),
        "Java ended before Spark was there: Spark needs Java 17, and as much memory as --memory "
        "says (before the name of the pipeline). What Java said stands above",
    ),
    (
        ("Python worker failed to connect back", "CANNOT_OPEN_SOCKET"),
        "a Python process of Spark's did not start within ten seconds: this machine has too much "
        "to do, or PYSPARK_PYTHON names a Python that is not this one. Give the same command again",
    ),
    (
        ("Java heap space", "GC overhead limit exceeded", "UNABLE_TO_ACQUIRE_MEMORY"),
        "Spark has not enough memory: give it more with --memory, before the name of the pipeline, "
        "or make batches smaller with --batch-rows",
    ),
)  # fmt: skip


def reason(text: str) -> str:
    """The line of a long trace that tells a person what to do."""
    for line in text.splitlines():
        name, colon, rest = line.strip().partition(": ")
        if colon and name.startswith("warren.spark.errors."):
            return rest
    for words, meaning in _MEANINGS:
        at = min((text.find(word) for word in words if word in text), default=-1)
        if at >= 0:
            return meaning.format(where=_place(text, at))
    return text.strip().splitlines()[0] if text.strip() else "Spark has failed, and says nothing"


def _place(text: str, at: int) -> str:
    """The file that is named behind the words, in their line, or nearest before them."""
    line = text[at:].partition("\n")[0]
    behind, before = ([_one(f) for f in _FILE.finditer(part)] for part in (line, text[:at]))
    named = [*behind, *reversed(before)]
    return f" ({named[0]})" if named else ""


def _one(found: re.Match[str]) -> str:
    return next(group for group in found.groups() if group).rstrip(".")


def explained(error: BaseException) -> str | None:
    """What to tell a person of an error; None: it is a fault of ours, whose trace is wanted."""
    if isinstance(error, WarrenError):
        return str(error)
    if isinstance(error, OSError):
        name = f" ({error.filename})" if error.filename else ""
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return f"the disk is full{name}: make room and give the same command again"
        return f"{error.strerror or error}{name}"
    if type(error).__module__.startswith(("pyspark.errors", "py4j")):
        return reason(str(error))
    return None
