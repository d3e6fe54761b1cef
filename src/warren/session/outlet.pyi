from warren.model.message import Message
from warren.model.ports import LinkPort, TurnClock
from warren.wire.output import Output

class Outlet:
    output: Output
    link: LinkPort
    writable: bool
    flush_wanted: bool
    frame_max: int
    turn: TurnClock
    frames_out: int
    def __init__(self, link: LinkPort, turn: TurnClock) -> None: ...
    @property
    def now_ms(self) -> int: ...
    def method(self, channel: int, payload: bytes) -> None: ...
    def method_with_content(self, channel: int, payload: bytes, message: Message) -> None: ...
    def raw(self, data: bytes) -> None: ...
    @property
    def pending_bytes(self) -> int: ...
