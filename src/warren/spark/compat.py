"""`compat=true`: a plain queue of any AMQP 0-9-1 broker, at least once.

Such a queue cannot be read twice, so the driver makes it replayable: it receives messages, writes
them to a file of the staging directory, syncs it, and only then acknowledges. Offsets are positions
in what was staged. A crash between sync and acknowledgement brings messages twice; `message_id`
tells them apart if publishers set it. The directory must be readable by all executors.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from warren.spark.amqp_rows import batch_of, check_plain, connect, refused, row_of
from warren.spark.errors import OptionError, WarrenError
from warren.spark.options import Options

#: Rows of a batch when the option does not say.
ROWS_MAX = 100_000
#: A queue that gives nothing for this long is empty for now.
IDLE_S = 0.5
Offset = dict[str, Any]


class Piece(InputPartition):
    """Rows of one staged file."""

    def __init__(self, name: str, first: int, count: int) -> None:
        super().__init__((name, first, count))
        self.name, self.first, self.count = name, first, count


class Staging:
    """The files of the staging directory: `FIRST-END.arrow`, and how far it was trimmed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = (path / "LOCK").open("a")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise WarrenError(
                f"{path} is in use by another query: each needs its own option 'stagingDir'"
            ) from error
        except OSError as error:
            raise OptionError(f"option 'stagingDir': {path}: {error.strerror}") from error

    def files(self) -> list[tuple[int, int, Path]]:
        found = []
        for path in self.path.glob("*.arrow"):
            first, _, end = path.stem.partition("-")
            found.append((int(first), int(end), path))
        return sorted(found)

    @property
    def first(self) -> int:
        """The lowest position that is there, or would be."""
        files = self.files()
        return files[0][0] if files else self.end

    @property
    def end(self) -> int:
        files = self.files()
        if files:
            return files[-1][1]
        state = self.path / "trimmed.json"
        return int(json.loads(state.read_text())["end"]) if state.exists() else 0

    def add(self, batch: pa.RecordBatch) -> None:
        """On the disk, name and all, when it returns."""
        end = self.end
        path = self.path / f"{end:020}-{end + batch.num_rows:020}.arrow"
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            with pa.ipc.new_file(file, batch.schema) as writer:
                writer.write_batch(batch)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
        self.sync_names()

    def trim(self, end: int) -> None:
        done = [one for one in self.files() if one[1] <= end]
        if not done:
            return
        self.note("trimmed", {"end": done[-1][1]})
        for _, _, path in done:
            path.unlink()

    def note(self, name: str, value: Offset) -> None:
        """On the disk as `NAME.json` when it returns, whole."""
        path = self.path / f"{name}.json"
        part = path.with_suffix(".part")
        with part.open("w") as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
        self.sync_names()

    def sync_names(self) -> None:
        """What was renamed has its name after a crash, too."""
        directory = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


class OneQueueReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What the two readers of this option share: one queue, and a directory for what it needs."""

    def __init__(self, options: Options) -> None:
        self.options = options
        names = options.queues
        if len(names) != 1:
            raise OptionError("with option 'compat' the option 'queues' names one queue")
        self.queue = names[0]
        options.text("amqpUrl")
        self.path = Path(options.text("stagingDir"))
        self.rows = options.number("maxOffsetsPerTrigger", ROWS_MAX, 1)
        self._staging: Staging | None = None

    @property
    def staging(self) -> Staging:
        if self._staging is None:
            self._staging = Staging(self.path)
        return self._staging

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_staging": None}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self.rows)

    def rows_of(self, limit: ReadLimit) -> int:
        """How many rows a batch may have."""
        return limit.max_rows if isinstance(limit, ReadMaxRows) else self.rows


class CompatStreamReader(OneQueueReader):
    """See the module's text."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._left: int | None = None
        self._is_checked = False

    def initialOffset(self) -> Offset:  # noqa: N802
        # Nothing is trimmed before the first batch is committed: it is the same after a crash.
        return {"seq": self.staging.first}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._left = self._count()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        rows = self.rows_of(limit)
        if self.staging.end <= start["seq"] and self._left != 0:
            got = self._receive(rows if self._left is None else min(rows, self._left))
            if self._left is not None:
                self._left = self._left - got if got else 0
        return {"seq": max(int(start["seq"]), self.staging.end)}

    # -- receiving ---------------------------------------------------------------------------------

    def _check(self, connection: Any) -> None:
        if not self._is_checked:
            check_plain(connection, self.queue)
            self._is_checked = True

    def _count(self) -> int:
        connection = connect(self.options)
        try:
            self._check(connection)
            found = connection.channel().queue_declare(self.queue, passive=True)
            return int(found.method.message_count)
        except WarrenError:
            raise
        except Exception as error:
            raise refused(self.queue, error) from error
        finally:
            if connection.is_open:
                connection.close()

    def _receive(self, rows: int) -> int:
        """Messages are on the disk before they are acknowledged; how many there were."""
        connection = connect(self.options)
        received: list[dict[str, Any]] = []
        try:
            self._check(connection)
            channel = connection.channel()
            channel.basic_qos(prefetch_count=min(rows, 65_535))
            tag = 0
            begin = self.staging.end
            for method, properties, body in channel.consume(self.queue, inactivity_timeout=IDLE_S):
                if method is None:
                    break
                seq = begin + len(received)
                received.append(row_of(self.queue, seq, method, properties, body))
                tag = method.delivery_tag
                if len(received) >= min(rows, 65_535):
                    break
            if received:
                self.staging.add(batch_of(self.options, received))
                channel.basic_ack(tag, multiple=True)
        except WarrenError:
            raise
        except Exception as error:
            if getattr(error, "reply_code", 0) in {403, 404, 405, 406}:
                raise refused(self.queue, error) from error
            raise
        finally:
            if connection.is_open:
                connection.close()
        return len(received)

    # -- batches -----------------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        pieces = []
        for first, last, path in self.staging.files():
            begin, stop = max(first, start["seq"]), min(last, end["seq"])
            if begin < stop:
                pieces.append(Piece(path.name, begin - first, stop - begin))
        if sum(piece.count for piece in pieces) != end["seq"] - start["seq"]:
            raise WarrenError(f"files of the option 'stagingDir' are missing in {self.path}")
        return pieces

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Piece)
        with pa.memory_map(str(self.path / partition.name)) as file:
            table = pa.ipc.open_file(file).read_all()
            yield from table.slice(partition.first, partition.count).to_batches()

    def commit(self, end: Offset) -> None:
        self.staging.trim(int(end["seq"]))
