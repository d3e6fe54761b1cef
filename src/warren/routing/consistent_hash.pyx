"""The consistent hash exchange: each message goes to one destination, chosen by a hash.

The binding key is the destination's weight, an integer of at least 1. What is hashed is the routing
key, or the header named by the exchange's `hash-header`, or the property named by `hash-property`;
messages that lack it all go the same way.

The choice is weighted rendezvous hashing: message and destination give a number each time the same,
as if drawn from an exponential distribution whose rate is the weight, and the smallest wins. That
gives shares in exact proportion to the weights, however large they are; a destination that comes
takes only its own share from the others, one that goes leaves only its own behind; and the result
depends on the destinations' names alone, not on the order of binding, the process or the node.
Where a destination is bound more than once the oldest binding's weight counts.
"""

from hashlib import blake2b

from libc.math cimport log
from libc.stdint cimport uint64_t

from warren.model.errors import PreconditionFailed
from warren.routing.field_value import canonical, erlang_binary, text_of

HASH_PROPERTIES = ("correlation_id", "message_id", "timestamp")

# Decimal digits; keeps every weight within what a double holds exactly.
cdef int WEIGHT_DIGITS_MAX = 15


cdef class _Member:
    """One destination and the weights it is bound with, oldest first."""

    cdef object destination
    cdef uint64_t seed
    cdef double weight
    cdef list weights


cdef class ConsistentHashMatcher:
    """Destinations with weights."""

    cdef readonly str hash_header
    cdef readonly str hash_property
    cdef dict members   # destination -> _Member

    def __init__(self, arguments=None):
        """Raises: PreconditionFailed if the exchange's arguments contradict each other."""
        cdef str header = name_argument(arguments, "hash-header")
        cdef str prop = name_argument(arguments, "hash-property")
        if header is not None and prop is not None:
            raise PreconditionFailed("hash-header and hash-property are mutually exclusive")
        if prop is not None and prop not in HASH_PROPERTIES:
            raise PreconditionFailed(f"Unsupported property: {prop}")
        self.hash_header = header
        self.hash_property = prop
        self.members = {}

    @property
    def caches_by_key(self):
        return self.hash_header is None and self.hash_property is None

    @property
    def is_empty(self):
        return not self.members

    def validate(self, bytes routing_key not None, arguments):
        """Refuse a weight that is none. Raises: PreconditionFailed."""
        weight_of(routing_key)

    def bind(self, bytes routing_key not None, arguments, destination):
        cdef double weight = weight_of(routing_key)
        cdef _Member member = self.members.get(destination)
        if member is None:
            member = _Member()
            member.destination = destination
            member.seed = hash64(stable_name(destination))
            member.weight = weight
            member.weights = []
            self.members[destination] = member
        member.weights.append(weight)

    def unbind(self, bytes routing_key not None, arguments, destination):
        cdef double weight = weight_of(routing_key)
        cdef _Member member = self.members[destination]
        if weight not in member.weights:
            raise KeyError(routing_key)
        member.weights.remove(weight)
        if member.weights:
            member.weight = member.weights[0]
        else:
            del self.members[destination]

    def match(self, bytes routing_key not None, headers, properties=None):
        cdef _Member member, winner = None
        cdef uint64_t key
        cdef double draw, smallest = 0.0
        if not self.members:
            return []
        if self.hash_header is not None:
            key = hash64(value_form(headers, self.hash_header))
        elif self.hash_property is not None:
            key = hash64(value_form(properties, self.hash_property))
        else:
            key = hash64(routing_key)
        for member in self.members.values():
            draw = exponential(key, member.seed) / member.weight
            if winner is None or draw < smallest:
                winner = member
                smallest = draw
        return [winner.destination]


cdef double exponential(uint64_t key, uint64_t seed):
    # A full mix of both halves (the 64-bit finalizer of MurmurHash3, in the public domain), then 53
    # bits of it as a number in (0, 1].
    cdef uint64_t mixed = key ^ seed
    mixed = (mixed ^ (mixed >> 33)) * <uint64_t>0xFF51AFD7ED558CCD
    mixed = (mixed ^ (mixed >> 33)) * <uint64_t>0xC4CEB9FE1A85EC53
    mixed ^= mixed >> 33
    return -log(<double>((mixed >> 11) + 1) * (1.0 / 9007199254740992.0))


cdef uint64_t hash64(bytes data) except? 0:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")


cdef bytes value_form(table, str name):
    value = None if table is None else table.get(name)
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    return repr(canonical(value)).encode("utf-8", "surrogatepass")


cdef bytes stable_name(destination):
    # A queue and an exchange may share a name, so what it is belongs to it.
    name = text_of(destination if isinstance(destination, (str, bytes)) else destination.name)
    if name is None:
        raise TypeError(f"{destination!r} has no name to hash")
    kind = getattr(destination, "destination_kind", "queue")
    return f"{kind}\0{name}".encode("utf-8", "surrogateescape")


cdef double weight_of(bytes routing_key) except? -1.0:
    cdef bytes digits = routing_key[1:] if routing_key[:1] in (b"+", b"-") else routing_key
    # int() alone would let blanks and underscores pass.
    if not digits.isdigit() or len(digits) > WEIGHT_DIGITS_MAX:
        raise PreconditionFailed(
            f"The binding key must be an integer: {erlang_binary(routing_key)}"
        )
    weight = int(routing_key)
    if weight < 1:
        raise PreconditionFailed("The binding key must be greater than 0")
    return weight


cdef str name_argument(arguments, str name):
    value = None if arguments is None else arguments.get(name)
    if value is None:
        return None
    text = text_of(value)
    if text is None:
        raise PreconditionFailed(f"Invalid argument, '{name}' must be a string")
    return text
