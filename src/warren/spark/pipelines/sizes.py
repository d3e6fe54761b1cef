"""How much a pipeline takes at a time. Read before there is a Spark: `--help` tells it."""

from __future__ import annotations

#: Messages of a batch of an archive: each has its own cost, of planning, files and checkpoints.
BATCH_ROWS = 1_000_000
#: Of a Delta table, which takes a batch through the driver's memory.
DELTA_ROWS = 250_000
#: Bytes of their bodies: of large messages a batch has fewer.
BATCH_BYTES, DELTA_BYTES = 1 << 30, 1 << 28
