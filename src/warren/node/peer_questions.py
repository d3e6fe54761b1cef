"""Questions between nodes about what operators see: control frames there and back.

A question is answered by the management API of the other node, in its own time; who asks waits no
longer than it wants to. A long answer, which has a long message in it, stays with who answers, and
is asked for piece by piece: what nodes agree on goes in between.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from warren.management.peers import ANSWER_S, PeerAnswer, PeerSilent, Question

#: The kinds of the control frames.
ASK, ANSWER = 26, 27
#: Questions of one node that are being answered at a time.
ANSWERING_MAX = 64
#: A longer answer or question would hold up what nodes agree on: it comes in pieces of this size.
ANSWER_BYTES_MAX = 8 << 20
#: Long answers that are kept for a node at a time, and for how long, in seconds.
KEPT_MAX, KEPT_S = 4, 60.0
#: Bytes of long questions that a node sends ahead at a time: twice what the API takes in one.
AHEAD_BYTES_MAX = 64 << 20
#: The method of a question for a piece; its path is the number of the answer and where it begins.
PIECE = "PIECE"
#: The method of a question that is a piece of a longer one; its path is the number of that, and
#: where the piece belongs. The method of what comes after the last piece: its path is the number,
#: its body the question with the rest of its own body.
AHEAD, WHOLE = "AHEAD", "WHOLE"
#: The status of an answer that is kept: its body is its number, its size and its own status.
IN_PIECES = 298

_Number = Annotated[int, Meta(ge=0, le=2**53)]
_ask_decoder = msgspec.msgpack.Decoder(tuple[_Number, Question])
_answer_decoder = msgspec.msgpack.Decoder(tuple[_Number, PeerAnswer])

Found = TypeVar("Found")
Send = Callable[[str, int, bytes], bool]
AnswerQuestion = Callable[[Question], Awaitable[PeerAnswer]]

NOT_YET = PeerAnswer(503, b'{"error":"unavailable","reason":"the node does not answer yet"}')
BUSY = PeerAnswer(503, b'{"error":"unavailable","reason":"too many questions at once"}')
GONE = PeerAnswer(503, b'{"error":"unavailable","reason":"the answer is not kept any more"}')
TAKEN = PeerAnswer(200, b"")
_question_decoder = msgspec.msgpack.Decoder(Question)
_kept_decoder = msgspec.msgpack.Decoder(tuple[_Number, _Number, _Number])


class PeerQuestions:
    """A `Peers`, with its other end. `names` tells who can be asked, and who cannot."""

    def __init__(
        self, send: Send, names: Callable[[], tuple[Sequence[str], Sequence[str]]]
    ) -> None:
        self._send = send
        self._names = names
        #: Who answers here; None: nobody yet.
        self.answerer: AnswerQuestion | None = None
        self._last_number = 0
        self._waiting: dict[int, tuple[str, asyncio.Future[PeerAnswer]]] = {}
        self._answering: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        #: (peer, number) -> a long answer, for as long as it is asked for.
        self._kept: dict[tuple[str, int], bytes] = {}
        #: (peer, number) -> what has come of the body of a long question.
        self._ahead: dict[tuple[str, int], bytearray] = {}

    def running(self) -> Sequence[str]:
        return self._names()[0]

    def down(self) -> Sequence[str]:
        return self._names()[1]

    async def ask(self, node: str, question: Question, timeout_s: float = ANSWER_S) -> PeerAnswer:
        """Raises PeerSilent."""
        if len(question.body) > ANSWER_BYTES_MAX:
            question = await self._send_ahead(node, question, timeout_s)
        answer = await self._ask(node, question, timeout_s)
        if answer.status != IN_PIECES:
            return answer
        number, size, status = _decode(_kept_decoder, answer.body)
        pieces: list[bytes] = []
        at = 0
        while at < size:
            piece = await self._ask(node, Question(PIECE, f"{number}/{at}"), timeout_s)
            if piece.status != 200 or not piece.body:
                raise PeerSilent(f"node {node} has not kept its long answer")
            pieces.append(piece.body)
            at += len(piece.body)
        return PeerAnswer(status, b"".join(pieces))

    async def _send_ahead(self, node: str, question: Question, timeout_s: float) -> Question:
        """What to ask when the other node has most of a long question. Raises PeerSilent."""
        self._last_number += 1
        number, body, at = self._last_number, question.body, 0
        while len(body) - at > ANSWER_BYTES_MAX:
            piece = body[at : at + ANSWER_BYTES_MAX]
            told = await self._ask(node, Question(AHEAD, f"{number}/{at}", body=piece), timeout_s)
            if told.status != TAKEN.status:
                raise PeerSilent(f"node {node} does not take a long question")
            at += len(piece)
        rest = msgspec.structs.replace(question, body=body[at:])
        return Question(WHOLE, f"{number}/{at}", body=msgspec.msgpack.encode(rest))

    async def _ask(self, node: str, question: Question, timeout_s: float) -> PeerAnswer:
        self._last_number += 1
        number = self._last_number
        future: asyncio.Future[PeerAnswer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (node, future)
        try:
            if not self._send(node, ASK, msgspec.msgpack.encode((number, question))):
                raise PeerSilent(f"node {node} cannot be reached")
            return await asyncio.wait_for(future, timeout_s)
        except TimeoutError:
            raise PeerSilent(f"node {node} did not answer within {timeout_s:g} s") from None
        finally:
            del self._waiting[number]

    def gone(self, peer: str) -> None:
        """There is no link any more: what it was asked will not be answered."""
        for node, future in self._waiting.values():
            if node == peer and not future.done():
                future.set_exception(PeerSilent(f"node {peer} cannot be reached"))

    def on_answer(self, peer: str, payload: bytes) -> None:
        """Raises ValueError for what is none; one that comes too late is dropped."""
        number, answer = _decode(_answer_decoder, payload)
        node, future = self._waiting.get(number, ("", None))
        if future is not None and node == peer and not future.done():
            future.set_result(answer)

    def on_ask(self, peer: str, payload: bytes) -> None:
        """Raises ValueError for what is no question."""
        number, question = _decode(_ask_decoder, payload)
        if question.method == PIECE:
            self._reply(peer, number, self._piece(peer, question.path))
            return
        if question.method == AHEAD:
            self._reply(peer, number, self._take_ahead(peer, question))
            return
        if question.method == WHOLE:
            whole = self._join(peer, question)
            if whole is None:
                self._reply(peer, number, GONE)
                return
            question = whole
        if self._answering[peer] >= ANSWERING_MAX:
            self._reply(peer, number, BUSY)
            return
        self._answering[peer] += 1
        task = asyncio.get_running_loop().create_task(self._answer(peer, number, question))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, peer: str, number: int, question: Question) -> None:
        try:
            answer = NOT_YET if self.answerer is None else await self.answerer(question)
            self._reply(peer, number, answer)
        finally:
            self._answering[peer] -= 1

    def _reply(self, peer: str, number: int, answer: PeerAnswer) -> None:
        if len(answer.body) > ANSWER_BYTES_MAX:
            answer = self._keep(peer, number, answer)
        self._send(peer, ANSWER, msgspec.msgpack.encode((number, answer)))

    def _keep(self, peer: str, number: int, answer: PeerAnswer) -> PeerAnswer:
        """The last of a node's long answers stay a while; it may ask for pieces of them."""
        key = (peer, number)
        self._kept[key] = answer.body
        mine = [one for one in self._kept if one[0] == peer]
        for one in mine[:-KEPT_MAX]:
            del self._kept[one]
        asyncio.get_running_loop().call_later(KEPT_S, self._kept.pop, key, None)
        told = msgspec.msgpack.encode((number, len(answer.body), answer.status))
        return PeerAnswer(IN_PIECES, told)

    def _piece(self, peer: str, path: str) -> PeerAnswer:
        number, at = _place(path)
        body = self._kept.get((peer, number))
        if body is None or at >= len(body):
            return GONE
        piece = body[at : at + ANSWER_BYTES_MAX]
        if at + len(piece) == len(body):
            del self._kept[peer, number]
        return PeerAnswer(200, piece)

    def _take_ahead(self, peer: str, question: Question) -> PeerAnswer:
        number, at = _place(question.path)
        key = (peer, number)
        held = sum(len(body) for (who, _), body in self._ahead.items() if who == peer)
        if held + len(question.body) > AHEAD_BYTES_MAX:
            return BUSY
        if at == 0:
            self._ahead[key] = bytearray()
            asyncio.get_running_loop().call_later(KEPT_S, self._ahead.pop, key, None)
        body = self._ahead.get(key)
        if body is None or len(body) != at:
            return GONE
        body += question.body
        return TAKEN

    def _join(self, peer: str, question: Question) -> Question | None:
        """The long question; None when what came ahead of it is not here any more."""
        number, at = _place(question.path)
        rest = _decode(_question_decoder, question.body)
        body = self._ahead.pop((peer, number), None)
        if body is None or len(body) != at:
            return None
        return msgspec.structs.replace(rest, body=bytes(body + rest.body))

    def stop(self) -> None:
        """Answer nothing more."""
        for task in self._tasks:
            task.cancel()


def _place(path: str) -> tuple[int, int]:
    """The number of what comes in pieces, and where a piece begins. Raises ValueError."""
    number, _, at = path.partition("/")
    if not (number.isdigit() and at.isdigit()):
        raise ValueError("a piece of a question or answer that is not said well")
    return int(number), int(at)


def _decode(decoder: msgspec.msgpack.Decoder[Found], payload: bytes) -> Found:
    try:
        return decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"a question or answer that cannot be read: {error}") from error
