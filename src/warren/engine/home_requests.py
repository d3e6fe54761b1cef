"""What other nodes ask of this one as the home of a queue, for their clients.

The client's node has checked what the client may do; here the verbs of the engine are run as for an
operator. What must wait (for the log, or for all nodes) is tried again when it may go on, and the
answer leaves then.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from warren.auth.users import OperatorName
from warren.engine import direct_reply
from warren.engine.consume import delete_if_unused
from warren.engine.fork_merging import OTHER, Answer, take_in
from warren.engine.opening import until_open
from warren.engine.queues import check_exclusive, facts, note_consumer, touch
from warren.gateway.errors import MovedError
from warren.gateway.messages import decode_message, encode_message
from warren.model.errors import AmqpError, InternalError, Postponed, error_class
from warren.wire.tables import decode_table

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine
    from warren.engine.vhost import VHost
    from warren.gateway.home import HomeEnd
    from warren.model.errand import Errand


class Asker:
    """Stands for the client's connection in the verbs of the engine."""

    def __init__(self, vhost: VHost) -> None:
        self.vhost = vhost
        self.user = OperatorName("another node")
        self.name = "another node"
        self.exclusive_queues: set[str] = set()
        self.errand: Errand | None = None
        self.token = ""


def encode_error(error: AmqpError) -> bytes:
    return msgspec.msgpack.encode((error.reply_code, error.explanation))


def decode_error(payload: bytes) -> AmqpError:
    """The error as it was raised at the home. Raises ValueError for what is none."""
    code, explanation = msgspec.msgpack.decode(payload, type=tuple[int, str])
    return error_class(code)(explanation)


#: Stands where an error has its reply code: the queue is not here, or not yet.
MOVED = 0


def is_moved(payload: bytes) -> bool:
    """Whether a node has answered that it is not the home of the queue asked about."""
    code, _ = msgspec.msgpack.decode(payload, type=tuple[int, str])
    return code == MOVED


class HomeRequests:
    """`handle` is called with every request; the answer leaves by the link's `reply`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._verbs: dict[str, Callable[..., Any]] = {
            "facts": self._facts,
            "purge": self._purge,
            "delete": self._delete,
            "get": self._get,
            "consume": self._consume,
            "cancel": self._cancel,
            "reply": self._reply,
            "awaits": self._awaits,
            "adopt": self._adopt,
            "merge": self._merge,
            "copy": self._copy,
        }

    def handle(self, link: HomeEnd, request: int, payload: bytes) -> None:
        """Raises ValueError when the other node sends what no node sends."""
        try:
            verb, applied, *arguments = msgspec.msgpack.decode(payload, type=list[Any])
            act = self._verbs[verb]
        except (msgspec.DecodeError, KeyError, TypeError) as error:
            raise ValueError(f"a request that no node makes: {error}") from error
        if not isinstance(applied, int) or not arguments:
            raise ValueError(f"a request for {verb} without what belongs to it")
        agreed = self._engine.agreed
        if agreed is None:
            self._begin(link, request, act, *arguments)
        else:
            # The other node may know of definitions that are only on their way to this one.
            agreed.when_applied(applied, partial(self._begin, link, request, act, *arguments))

    def _begin(
        self,
        link: HomeEnd,
        request: int,
        act: Callable[..., Any],
        vhost_name: Any,
        *arguments: Any,
    ) -> None:
        vhost = self._engine.vhosts.get(vhost_name)
        if vhost is None:
            error = InternalError(f"vhost '{vhost_name}' is gone")
            link.reply(request, False, encode_error(error))
            return
        self._run(link, request, partial(act, link, Asker(vhost), *arguments))

    def _run(self, link: HomeEnd, request: int, act: Callable[[], Any]) -> None:
        if link.port is None:
            # It had to wait, and who asked is gone: nothing may be given to it any more.
            return
        journal = self._engine.journal
        written = 0 if journal is None else journal.appended
        try:
            answer = act()
        except Postponed as later:
            again = partial(self._run, link, request, act)
            self._when_ready(later, act.args[1], again)  # type: ignore[attr-defined]
        except AmqpError as error:
            link.reply(request, False, encode_error(error))
        except MovedError as error:
            link.reply(request, False, msgspec.msgpack.encode((MOVED, str(error))))
        except TypeError as error:
            raise ValueError(f"a request with other arguments than it has: {error}") from error
        else:
            reply = partial(link.reply, request, True, msgspec.msgpack.encode(answer))
            if journal is not None and journal.appended != written:
                # What was done must be on the disk before anybody hears that it was.
                journal.when_persisted(journal.appended, reply)
            else:
                reply()

    def _when_ready(self, later: Postponed, asker: Asker, again: Callable[[], None]) -> None:
        if later.errand is not None:
            asker.errand = later.errand
            later.errand.when_done(partial(self._engine.resuming.append, again))
            return
        assert self._engine.journal is not None
        self._engine.journal.when_persisted(later.mark, again)

    def _check_here(self, asker: Asker, name: str, link: HomeEnd | None = None) -> None:
        """Raises MovedError when the queue goes from node to node and is not on this one.

        A node that has just started may not know yet that it does: to it the queue is where it was
        declared. With the link that something of it is to be given out on also when the other node
        does not know yet that it was elsewhere.
        """
        queue: Any = asker.vhost.queues.get(name)
        if queue is None:
            return
        if queue.is_remote or (link is not None and link.is_dropped(queue.number)):
            raise MovedError(f"queue '{name}' is not on this node")

    # -- verbs -------------------------------------------------------------------------------------

    def _facts(self, _link: HomeEnd, asker: Asker, name: str) -> tuple[int, int]:
        self._check_here(asker, name)
        queue = asker.vhost.queue(name)
        touch(self._engine, queue)
        _, ready, consumers = facts(queue)
        return ready, consumers

    def _purge(self, _link: HomeEnd, asker: Asker, name: str) -> int:
        self._check_here(asker, name)
        return self._engine.purge_queue(asker, name)  # type: ignore[arg-type]

    def _delete(
        self, _link: HomeEnd, asker: Asker, name: str, if_unused: bool, if_empty: bool
    ) -> int:
        self._check_here(asker, name)
        return self._engine.delete_queue(asker, name, if_unused, if_empty)  # type: ignore[arg-type]

    def _get(
        self, link: HomeEnd, asker: Asker, name: str, no_ack: bool
    ) -> tuple[bytes, int, bool, int] | bool:
        """(message, slot, redelivered, ready messages left); False from an empty queue."""
        self._check_here(asker, name, link)
        queue = asker.vhost.queue(name)
        touch(self._engine, queue)
        found = None if queue.paused else queue.get(no_ack, self._engine.clock.now_ms())
        if found is None:
            queue.got_empty += 1
            return False
        if found == 0:
            raise until_open(queue, queue.open_mark)
        message, slot, redelivered = found
        if not no_ack:
            link.lend(queue.number, slot)
        return encode_message(message), slot, redelivered, queue.ready

    def _consume(
        self,
        link: HomeEnd,
        asker: Asker,
        name: str,
        number: int,
        tag: str,
        no_ack: bool,
        exclusive: bool,
        priority: int,
        prefetch: int,
        arguments: bytes,
        channel: str,
    ) -> bool:
        self._check_here(asker, name, link)
        queue = asker.vhost.queue(name)
        check_exclusive(queue, exclusive)
        note_consumer(self._engine, queue)
        link.add_consumer(
            queue.number,
            number,
            tag=tag,
            no_ack=no_ack,
            exclusive=exclusive,
            priority=priority,
            prefetch=prefetch,
            arguments=decode_table(arguments),
            channel=channel,
        )
        touch(self._engine, queue)
        self._engine.emit("consumer.created", vhost=asker.vhost.name, queue=name, tag=tag)
        return True

    def _adopt(
        self, link: HomeEnd, asker: Asker, name: str, slots: list[int], owners: list[int]
    ) -> list[int]:
        """Those of the slots that the other node's clients do not hold any more."""
        self._check_here(asker, name, link)
        queue: Any = asker.vhost.known_queue(name)
        lost = link.adopt(queue.number, slots, owners) if hasattr(queue, "adopt") else slots
        assert link.port is not None
        self._engine.cluster.adopted_by(queue.number, link.port.peer)  # type: ignore[union-attr]
        return lost

    def _merge(
        self,
        _link: HomeEnd,
        asker: Asker,
        name: str,
        number: int,
        gateway: int,
        rows: list[Any],
        settled: list[Any],
    ) -> Answer:
        """A node has had a fork of the queue: what is new there, and what has left it."""
        self._check_here(asker, name)
        queue = asker.vhost.queues.get(name)
        if queue is None:
            return (OTHER, 0, [], [])
        return take_in(self._engine, queue, number, gateway, rows, settled)

    def _copy(self, _link: HomeEnd, _asker: Asker, number: int, slot: int) -> tuple[bytes, int]:
        """A message that a master cannot read, and how far the log is that has it or not."""
        mirrors = self._engine.mirrors
        mirror = None if mirrors is None else mirrors.by_number.get(number)
        if mirror is None or mirror.log.gap[0] < mirror.log.gap[1]:
            return b"", 0
        return mirror.log.copy_of(slot), mirror.log.last_index

    def _cancel(self, link: HomeEnd, _asker: Asker, number: int) -> bool:
        consumer = link.remove_consumer(number)
        if consumer is not None:
            self.consumer_gone(consumer.queue, consumer.tag)
        return True

    def _reply(self, _link: HomeEnd, asker: Asker, address: str, data: bytes) -> bool:
        if address in self._engine.reply_consumers:
            direct_reply.reply(self._engine, asker.vhost, address, decode_message(data))
        return True

    def _awaits(self, _link: HomeEnd, _asker: Asker, address: str) -> bool:
        return address in self._engine.reply_consumers

    def consumer_gone(self, queue: AmqpQueue, tag: str) -> None:
        """A consumer on another node is off its queue, by request or with its link."""
        if queue.deleted or queue.vhost.queues.get(queue.name) is not queue:
            return
        touch(self._engine, queue)
        self._engine.emit("consumer.deleted", vhost=queue.vhost.name, queue=queue.name, tag=tag)
        queue.run(self._engine.clock.now_ms())
        delete_if_unused(self._engine, queue)
