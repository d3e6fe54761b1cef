// One AMQP connection with one channel: dialling, frames in, methods out, a polite end.
//
// The socket blocks during the handshake and set-up; conn_nonblocking() turns it over to an event
// loop. What the broker refuses ends the process with the broker's own code and text.
#ifndef AMQPLOAD_CONN_H
#define AMQPLOAD_CONN_H

#include <stdbool.h>
#include <stddef.h>

#include "clock.h"
#include "options.h"
#include "wire.h"

// One read: large enough to spare system calls, small enough to stay in the cache of its core.
enum { INPUT_BYTES = 128 * 1024 };
enum { REPLY_TIMEOUT_S = 60, CLOSE_TIMEOUT_S = 5 };

struct conn {
    int fd;
    uint8_t *in;
    size_t capacity, read_at, write_at;
    uint32_t frame_max;
    char version[32];
};

struct frame {
    unsigned type;
    uint32_t length;
    const uint8_t *payload;
};

// Connects to the node whose turn it is at `index`, logs in, opens channel 1.
struct conn *conn_dial(const struct options *o, const struct endpoints *to, int index);
void conn_nonblocking(struct conn *c);

// Reads what the socket has; false when it has nothing now.
bool conn_fill(struct conn *c);

// Writes everything, waiting as long as it takes.
void conn_send(struct conn *c, const void *bytes, size_t n);

// Sends the frame between `start` and `p`, which open_method began.
void conn_send_method(struct conn *c, uint8_t *start, uint8_t *p);

// Waits for this method and returns its arguments; skips everything but a close.
const uint8_t *conn_expect(struct conn *c, unsigned cls, unsigned method);

// Ends the process if this method frame is the broker's complaint or cancels a consumer.
void conn_check_complaint(const struct frame *f);

// connection.close, its answer if it comes soon, and the end of the socket.
void conn_close(struct conn *c);

__attribute__((noreturn)) void conn_bad_frame_end(void);

// The next whole frame in the buffer; false when there is none.
static inline bool conn_next_frame(struct conn *c, struct frame *f) {
    size_t have = c->write_at - c->read_at;
    if (have < FRAME_OVERHEAD_BYTES) return false;
    const uint8_t *p = c->in + c->read_at;
    uint32_t length = get_u32(p + 3);
    if (have < (size_t)length + FRAME_OVERHEAD_BYTES) return false;
    if (p[FRAME_PREFIX_BYTES + length] != FRAME_END) conn_bad_frame_end();
    f->type = p[0];
    f->length = length;
    f->payload = p + FRAME_PREFIX_BYTES;
    c->read_at += (size_t)length + FRAME_OVERHEAD_BYTES;
    return true;
}

#endif
