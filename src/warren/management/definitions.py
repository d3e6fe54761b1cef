"""Imports definitions: users, virtual hosts, permissions, policies, queues, exchanges, bindings.

The file is the JSON that RabbitMQ exports. An import merges: nothing is ever deleted; what cannot
change once it is declared (queues, exchanges, bindings) stays as it is, everything else is
overwritten. Rows that cannot be used are reported together, after all others have been applied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from warren.auth.directory import DirectoryError
from warren.engine.engine import Engine
from warren.engine.parameters import CLUSTER_NAME
from warren.management import definition_format as rows
from warren.model.errand import Errand
from warren.model.errors import AmqpError, NotFound, Postponed
from warren.model.policy import Policy, PolicyError
from warren.model.queue_arguments import QueueDeclaration, check_queue_arguments
from warren.routing.binding import Binding, DestinationKind
from warren.routing.exchange import make_exchange

#: Far above any real export; anything larger is the wrong file.
FILE_BYTES_MAX = 256 * 1024 * 1024


class DefinitionsError(ValueError):
    """Definitions that cannot be imported, wholly or in part; one line for each problem."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def load_definitions(engine: Engine, path: Path | str) -> dict[str, int]:
    """Import a file, or all `*.json` files of a directory by name; how many rows of each kind."""
    done: Counter[str] = Counter()
    problems: list[str] = []
    for file in _files(path):
        try:
            done.update(import_definitions(engine, _read(file)))
        except DefinitionsError as error:
            problems += [f"{file}: {problem}" for problem in error.problems]
    if problems:
        raise DefinitionsError(problems)
    return dict(done)


def import_definitions(
    engine: Engine, document: bytes | str | Mapping[str, object], vhost: str | None = None
) -> dict[str, int]:
    """Import one document; `vhost` is for rows that name none. Raises DefinitionsError."""
    work = Import(engine, vhost)
    for _ in work.steps(read_definitions(document)):
        pass
    return work.finish()


def load_steps(engine: Engine, path: str) -> Iterator[Errand | None]:
    """`load_definitions` in steps, with the errands that are to be waited for in a cluster."""
    for file in _files(path):
        work = Import(engine, None)
        yield from work.steps(read_definitions(_read(file)))
        work.finish()


def read_definitions(document: bytes | str | Mapping[str, object]) -> rows.Definitions:
    """Raises DefinitionsError when the document is none of its kind."""
    try:
        if isinstance(document, bytes | str):
            return msgspec.json.decode(document, type=rows.Definitions)
        return msgspec.convert(document, type=rows.Definitions)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DefinitionsError([f"not a definitions file: {error}"]) from error


def _files(path: Path | str) -> list[Path]:
    named = Path(path)
    return sorted(named.glob("*.json")) if named.is_dir() else [named]


def _read(file: Path) -> bytes:
    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            raise DefinitionsError([f"larger than {FILE_BYTES_MAX} bytes"])
        return file.read_bytes()
    except OSError as error:
        raise DefinitionsError([f"cannot be read: {error.strerror}"]) from error


class Import:
    """One run through a document: go through `steps`, then `finish`."""

    def __init__(self, engine: Engine, vhost: str | None) -> None:
        self._engine = engine
        self._vhost = vhost
        self._problems: list[str] = []
        self._done: Counter[str] = Counter()
        self._hashed: dict[str, str] = {}
        #: Global parameters that were set before.
        self._named = frozenset(engine.global_parameters)

    def steps(self, definitions: rows.Definitions) -> Iterator[Errand | None]:
        """Row by row, in the order of what depends on what; errands are to be waited for."""
        yield from self._each("users", definitions.users, self._user)
        yield from self._each("vhosts", definitions.vhosts, self._add_vhost)
        yield from self._each("permissions", definitions.permissions, self._permission)
        yield from self._each(
            "topic_permissions", definitions.topic_permissions, self._topic_permission
        )
        yield from self._each("parameters", definitions.parameters, self._parameter)
        yield from self._each(
            "global_parameters", definitions.global_parameters, self._global_parameter
        )
        yield from self._each("policies", definitions.policies, self._policy)
        yield from self._each("queues", definitions.queues, self._queue)
        yield from self._each("exchanges", definitions.exchanges, self._exchange)
        yield from self._each("bindings", definitions.bindings, self._binding)

    def finish(self) -> dict[str, int]:
        """How many rows of each kind were applied. Raises DefinitionsError."""
        self._engine.permissions_changed()
        self._engine.run_effects()
        if self._problems:
            raise DefinitionsError(self._problems)
        return dict(self._done)

    def _each(
        self, kind: str, given: Iterable[Any], apply: Callable[[Any], None]
    ) -> Iterator[Errand | None]:
        """In a cluster all rows of a kind are proposed before the first is waited for."""
        left = list(enumerate(given))
        while left:
            postponed: list[tuple[int, Any]] = []
            errands: list[Errand] = []
            for number, row in left:
                yield None
                errand = self._one(kind, number, row, apply)
                if errand is not None:
                    postponed.append((number, row))
                    errands.append(errand)
            yield from errands
            left = postponed

    def _one(self, kind: str, number: int, row: Any, apply: Callable[[Any], None]) -> Errand | None:
        """Applies a row, or a part of it: then the rest follows when the errand is over."""
        try:
            # The row comes again when its change is made, and is through when it finds no other.
            with self._engine.metadata.sparing():
                apply(row)
        except Postponed as later:
            return later.errand
        except (AmqpError, DirectoryError, PolicyError, msgspec.ValidationError) as error:
            detail = getattr(error, "detail", None) or str(error)
            name = getattr(row, "name", None)
            shown = f" ('{name}')" if name is not None else ""
            self._problems.append(f"{kind}[{number}]{shown}: {detail}")
        else:
            self._done[kind] += 1
        return None

    def _vhost_of(self, row: Any) -> str:
        """A row of a single virtual host's export does not repeat its name."""
        vhost: str | None = row.vhost if row.vhost is not None else self._vhost
        if vhost is None:
            raise DirectoryError("'vhost' is missing")
        return vhost

    def _user(self, row: rows.UserRow) -> None:
        directory = self._engine.directory
        limits = row.limits if isinstance(row.limits, dict) else {}
        tags = _words(row.tags)
        if row.password_hash is None and row.password:
            # Once only: the same row may come again, and each hash is another one.
            if row.name not in self._hashed:
                self._hashed[row.name] = directory.hashed(row.name, row.password)
            hashed, algorithm = self._hashed[row.name], directory.hashing_algorithm
        else:
            hashed, algorithm = row.password_hash or "", row.hashing_algorithm
        directory.put_user(row.name, hashed, algorithm, tags, limits)

    def _add_vhost(self, row: rows.VHostRow) -> None:
        self._engine.add_vhost(row.name)
        description = row.description or row.metadata.get("description")
        tags = row.tags if row.tags is not None else row.metadata.get("tags")
        self._engine.describe_vhost(
            row.name,
            description if isinstance(description, str) else None,
            _words(tags) if isinstance(tags, str | list) else None,
        )
        if isinstance(row.limits, dict) and row.limits:
            self._engine.directory.set_vhost_limits(row.name, row.limits)

    def _permission(self, row: rows.PermissionRow) -> None:
        self._engine.directory.set_permissions(
            row.user, self._vhost_of(row), row.configure, row.write, row.read
        )

    def _topic_permission(self, row: rows.TopicPermissionRow) -> None:
        self._engine.directory.set_topic_permissions(
            row.user, self._vhost_of(row), row.exchange, row.write, row.read
        )

    def _parameter(self, row: rows.ParameterRow) -> None:
        """Parameters of plugins (shovels, federation) are kept, so that an export has them."""
        vhost = self._vhost_of(row)
        if row.component == "vhost-limits":
            limits = msgspec.convert(row.value, type=dict[str, int])
            self._engine.directory.set_vhost_limits(vhost, limits)
        elif row.component == "operator_policy":
            value = msgspec.convert(row.value, type=rows.OperatorPolicyValue)
            policy = Policy(
                vhost, row.name, value.pattern, value.definition, value.priority, value.apply_to
            )
            self._engine.set_policy(policy, operator=True)
        else:
            self._engine.set_parameter(vhost, row.component, row.name, row.value)

    def _global_parameter(self, row: rows.GlobalParameterRow) -> None:
        engine = self._engine
        if row.name == CLUSTER_NAME:
            # A name that was given here goes before one of the place the file comes from.
            unnamed = engine.settings.cluster_name == engine.settings.node_name
            if not unnamed or not isinstance(row.value, str) or CLUSTER_NAME in self._named:
                return
        engine.set_global_parameter(row.name, row.value)

    def _policy(self, row: rows.PolicyRow) -> None:
        policy = Policy(
            self._vhost_of(row), row.name, row.pattern, row.definition, row.priority, row.apply_to
        )
        self._engine.set_policy(policy)

    def _queue(self, row: rows.QueueRow) -> None:
        vhost = self._engine.vhost(self._vhost_of(row))
        if row.name in vhost.queues:
            return
        arguments = dict(row.arguments)
        if row.type not in {None, "classic"}:
            arguments.setdefault("x-queue-type", row.type)
        check_queue_arguments(arguments, row.name, vhost.name)
        declaration = QueueDeclaration(row.durable, row.auto_delete, False, arguments)
        self._engine.add_queue(vhost, row.name, declaration, None)

    def _exchange(self, row: rows.ExchangeRow) -> None:
        vhost = self._engine.vhost(self._vhost_of(row))
        if row.name in vhost.exchanges:
            return
        exchange = make_exchange(
            row.name,
            row.type,
            durable=row.durable,
            auto_delete=row.auto_delete,
            internal=row.internal,
            arguments=row.arguments,
        )
        self._engine.add_exchange(vhost, exchange)

    def _binding(self, row: rows.BindingRow) -> None:
        # Every queue is bound to the default exchange by itself.
        if not row.source:
            return
        vhost = self._engine.vhost(self._vhost_of(row))
        source = vhost.exchange(row.source)
        kind: DestinationKind
        target: Any
        if row.destination_type == "exchange":
            kind, target = "exchange", vhost.exchange(row.destination)
        elif row.destination_type == "queue":
            kind, target = "queue", vhost.queue(row.destination)
        else:
            raise NotFound(
                f"destination_type '{row.destination_type}' is neither queue nor exchange"
            )
        key = row.routing_key.encode("utf-8", "surrogateescape")
        binding = Binding(row.source, kind, row.destination, key, row.arguments)
        self._engine.add_binding(vhost, source, binding, target)


def _words(given: list[str] | str) -> list[str]:
    words = given.split(",") if isinstance(given, str) else given
    return [word.strip() for word in words if word.strip()]
