"""Blocks of messages as answers: sent in pieces, so that nobody's message waits for a long one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import payload, web

from warren.management.pace import CalmPace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiohttp.abc import AbstractStreamWriter

    from warren.management.pace import Calm
    from warren.wire.columns import Block

HEADERS = {"Content-Type": "application/octet-stream", "Cache-Control": "no-cache"}
#: What is given to the socket at once: some ten microseconds of copying while clients are there,
#: and twice that while there are none.
PIECE_BYTES, ALONE_PIECE_BYTES = 32_768, 65_536


def answer_block(block: Block | bytes, calm: Calm) -> web.Response:
    """The block is sent when the answer is."""
    return web.Response(body=_Body(block, calm), headers=HEADERS)


def _pieces(block: Block | bytes, size: int) -> Iterator[bytes]:
    if not isinstance(block, bytes):
        return block.pieces(size)
    return (block[at : at + size] for at in range(0, len(block), size))


class _Body(payload.Payload):
    def __init__(self, block: Block | bytes, calm: Calm) -> None:
        super().__init__(block)
        self._block, self._calm = block, calm
        self._size = len(block)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return bytes(self._block).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        pace = CalmPace(self._calm)
        size = PIECE_BYTES if self._calm.has_clients else ALONE_PIECE_BYTES
        for piece in _pieces(self._block, size):
            await pace.rest()
            await writer.write(piece)
