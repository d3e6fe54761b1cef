"""kill -9 while a process appends: what it said was persisted is read back."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

from small_logs import check_records, read

ROUNDS = 20


def test_killed_while_appending(tmp_path: Path) -> None:
    source = random.Random(7)
    promised = 0
    for _ in range(ROUNDS):
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("log_appender.py")), str(tmp_path)],
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        said = [process.stdout.readline()]
        time.sleep(source.random() * 0.04)
        process.kill()
        said += process.stdout.read().splitlines(keepends=True)
        process.stdout.close()
        process.wait()
        promised = max(promised, *(int(line) for line in said if line.endswith(b"\n")))
        found = read(tmp_path)
        check_records(found.records)
        assert found.scan.sound
        assert found.sequences == list(range(1, found.scan.next_sequence))
        assert found.scan.next_sequence > promised
        promised = found.scan.next_sequence - 1
    assert promised > ROUNDS
