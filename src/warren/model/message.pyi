class Address:
    exchange: bytes
    routing_key: bytes
    wire: bytes
    hidden_keys: tuple[bytes, ...]
    def __init__(
        self, exchange: bytes, routing_key: bytes, hidden_keys: tuple[bytes, ...] = ()
    ) -> None: ...

class Message:
    address: Address
    header_len: int
    body_len: int
    place: int
    ttl_ms: int
    delivery_mode: int
    priority: int
    marks: int
    @property
    def header(self) -> bytes: ...
    @property
    def body(self) -> bytes: ...
    @property
    def headers_table(self) -> bytes: ...
    @property
    def exchange(self) -> bytes: ...
    @property
    def routing_key(self) -> bytes: ...

MARK_CARBON_COPY: int
MARK_REPLY_TO: int
MARK_USER_ID: int
MARK_DELAY: int
MARK_BAD_EXPIRATION: int
MARK_HEADERS: int
