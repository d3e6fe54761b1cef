# The frames of a gateway; docs/internals/gateway-frames.md has their bytes.
from libc.stdint cimport uint64_t

# From the gateway to the home.
cdef enum:
    FRAME_START = 32      # what is answered already; first on every link
    FRAME_PUBLISH = 33
    FRAME_SETTLE = 34
    FRAME_CREDIT = 35
    FRAME_HEARD = 36      # refusals have been taken note of
    FRAME_REQUEST = 37
    FRAME_PUBLISH_TO = 38  # to one queue that may move
    FRAME_SKIP = 39       # what had this number was sent to another home
    FRAME_BEGIN_ANEW = 40  # a queue was dropped, and nothing from before that follows

# Both ways.
cdef enum:
    FRAME_MORE = 47       # goes on where the frame before it had to stop

# From the home to the gateway.
cdef enum:
    FRAME_CONFIRM = 48
    FRAME_REFUSED = 49
    FRAME_DELIVER = 50
    FRAME_REPLY = 51
    FRAME_ELSEWHERE = 52  # publishes for queues that are not here, or no longer
    FRAME_DROPPED = 53    # such queues: consumers and what was out are forgotten
    FRAME_CONGESTED = 54  # queues whose publishers should pause

# How a delivery is settled.
cdef enum:
    SETTLE_ACK = 0
    SETTLE_REJECT = 1
    SETTLE_REQUEUE = 2
    SETTLE_RETURN = 3     # its client has never seen it

# Sizes in bytes, and other bounds.
cdef enum:
    START_BYTES = 16
    PUBLISH_HEAD_BYTES = 8       # then a message, then the numbers of its queues
    PUBLISH_TO_HEAD_BYTES = 20   # then a message, then the number of its queue
    SETTLE_RECORD_BYTES = 17
    CREDIT_BYTES = 12
    DELIVER_HEAD_BYTES = 17      # then a message
    REQUEST_HEAD_BYTES = 14
    REPLY_HEAD_BYTES = 13
    MESSAGE_HEAD_BYTES = 12      # lengths of address, content header and body
    NUMBER_BYTES = 4
    ADDRESS_BYTES_MAX = 524288
    HEADER_BYTES_MAX = 16777216
    MESSAGE_BYTES_MAX = 536870912
    # A request or its answer is no longer than the longest message and what belongs to it.
    PAYLOAD_BYTES_MAX = 570425344
    # A message for more queues of one home than this is sent again for the rest.
    QUEUES_MAX = 65536
    # What the home may send a consumer ahead of what its client takes; in messages and bytes.
    CREDIT_MESSAGES = 1024
    CREDIT_MESSAGE_BYTES = 1048576
