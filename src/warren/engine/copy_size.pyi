from collections.abc import Hashable

from warren.engine.replica_log import ReplicaLog

Place = tuple[int, int]

def place_of(log: ReplicaLog, session: Hashable, after: int) -> Place: ...
def count_copied(log: ReplicaLog, start: Place, session: Hashable | None, upto: int) -> int: ...
