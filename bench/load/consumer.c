// Consumers: an event loop over this worker's connections, each subscribed to its queues.
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "topology.h"
#include "worker.h"

enum { EVENTS_MAX = 256 };

struct subscriber {
    struct conn *conn;
    uint64_t tag, unacked, body_left;
};

static void send_ack(struct subscriber *s) {
    uint8_t b[METHOD_BYTES_MAX];
    uint8_t *p = put_u64(open_method(b, 1, CLASS_BASIC, BASIC_ACK), s->tag);
    conn_send_method(s->conn, b, put_u8(p, 1));
    s->unacked = 0;
}

// In a flow the queues are still empty: waiting for the answer makes sure that no publish comes
// before its consumer. A drain must not wait, conn_expect would skip the deliveries that follow.
static void consume(struct conn *c, const struct options *o, int queue) {
    char name[NAME_CHARS_MAX];
    queue_name(o, queue, name);
    uint8_t b[METHOD_BYTES_MAX];
    uint8_t *p = put_u16(open_method(b, 1, CLASS_BASIC, BASIC_CONSUME), 0);
    p = put_short_string(put_short_string(p, name), "");
    conn_send_method(c, b, put_u32(put_u8(p, o->auto_ack ? 2 : 0), 0));
    if (o->mode == MODE_FLOW) conn_expect(c, CLASS_BASIC, BASIC_CONSUME + 1);
}

// Subscribes to every queue whose turn it is, or shares one when consumers outnumber queues.
static void open_subscriber(struct worker *w, struct subscriber *s, int index) {
    const struct options *o = w->run->options;
    s->conn = conn_dial(o, &o->consumer_endpoints, index);
    if (!o->auto_ack) {
        uint8_t b[METHOD_BYTES_MAX];
        uint8_t *p = put_u32(open_method(b, 1, CLASS_BASIC, BASIC_QOS), 0);
        conn_send_method(s->conn, b, put_u8(put_u16(p, (unsigned)o->prefetch), 0));
        conn_expect(s->conn, CLASS_BASIC, BASIC_QOS + 1);
    }
    if (index >= o->queues) consume(s->conn, o, index % o->queues);
    for (int q = index; q < o->queues; q += o->consumers) consume(s->conn, o, q);
    conn_nonblocking(s->conn);
}

// Parses everything that has arrived; returns how many messages ended in it.
static uint64_t read_deliveries(struct worker *w, struct subscriber *s) {
    if (!conn_fill(s->conn)) return 0;
    const struct options *o = w->run->options;
    // One look at the clock a read: the moment the bytes were here, not the moment of parsing.
    uint64_t now = now_ns(), messages = 0;
    bool measured = run_phase(w->run) == PHASE_MEASURE && o->size_bytes >= 8;
    struct frame f;
    while (conn_next_frame(s->conn, &f)) {
        if (f.type == FRAME_METHOD) {
            if (get_u32(f.payload) == (CLASS_BASIC << 16 | BASIC_DELIVER))
                s->tag = get_u64(f.payload + 5 + f.payload[4]);
            else
                conn_check_complaint(&f);
            continue;
        }
        if (f.type == FRAME_HEADER) {
            s->body_left = get_u64(f.payload + 4);
        } else if (f.type == FRAME_BODY) {
            if (measured && s->body_left == (uint64_t)o->size_bytes) {
                uint64_t stamp;
                memcpy(&stamp, f.payload, sizeof stamp);
                histogram_add(&w->latency, now > stamp ? now - stamp : 0, 1);
            }
            s->body_left -= f.length;
        } else {
            continue;
        }
        if (s->body_left) continue;
        messages++;
        if (!o->auto_ack && ++s->unacked >= (uint64_t)o->ack_every) send_ack(s);
    }
    return messages;
}

void *consumer_thread(void *argument) {
    struct worker *w = argument;
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct subscriber *subscribers = allocate((size_t)w->count, sizeof *subscribers);
    for (int i = 0; i < w->count; i++) {
        open_subscriber(w, &subscribers[i], w->first + i);
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = &subscribers[i]};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, subscribers[i].conn->fd, &e)) die("epoll failed");
    }
    pthread_barrier_wait(&w->run->connected);
    while (run_phase(w->run) != PHASE_STOP) {
        struct epoll_event events[EVENTS_MAX];
        int n = epoll_wait(epoll, events, EVENTS_MAX, 50);
        for (int i = 0; i < n; i++)
            worker_add(&w->consumed, read_deliveries(w, events[i].data.ptr));
    }
    for (int i = 0; i < w->count; i++) {
        if (subscribers[i].unacked) send_ack(&subscribers[i]);
        conn_close(subscribers[i].conn);
    }
    free(subscribers);
    close(epoll);
    return NULL;
}
