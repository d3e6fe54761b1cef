from warren.model.message import Message
from warren.model.ports import LinkPort
from warren.wire.output import Output

class Outlet:
    output: Output
    link: LinkPort
    writable: bool
    flush_wanted: bool
    frame_max: int
    now_ms: int
    def __init__(self, link: LinkPort) -> None: ...
    def method(self, channel: int, payload: bytes) -> None: ...
    def method_with_content(self, channel: int, payload: bytes, message: Message) -> None: ...
    def raw(self, data: bytes) -> None: ...
    @property
    def pending_bytes(self) -> int: ...
