// Publishers: an event loop over this worker's connections.
//
// A connection asks for writability only while it has something it may send: bytes left over from
// the last batch, room in its confirm window, or messages that are due. So a broker that pushes
// back on one connection never holds up the others.
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "batch.h"
#include "schedule.h"
#include "worker.h"

enum { EVENTS_MAX = 256, CONFIRM_DRAIN_S = 10 };

// Confirms may come out of order, so the tags between the oldest unconfirmed message and the newest
// can span more than the window; only this many windows of them are remembered.
enum { WINDOW_SPAN = 32 };

struct publisher {
    struct conn *conn;
    struct batch batch;
    size_t pending_bytes, sent_bytes;  // of the batch being written
    int pending_messages;
    uint64_t sequence, lowest_unconfirmed;  // delivery tags; the first is 1
    uint64_t settled;                       // tags confirmed or refused
    uint64_t *stamps;                       // by tag; 0 once confirmed
    uint64_t stamp_mask;
    uint64_t quota;  // messages left to publish; unlimited outside of fill
    uint64_t start_ns, next_key, dice;
    uint32_t fixed_key;
    bool wants_write;
};

struct producer_loop {
    struct worker *worker;
    const struct options *options;
    struct publisher *publishers;
    int epoll, timer;
};

static uint64_t random_next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint32_t choose_key(struct publisher *p, const struct options *o) {
    uint64_t count = (uint64_t)options_key_count(o);
    switch (o->keys) {
        case KEYS_CYCLE: return (uint32_t)(p->next_key++ % count);
        case KEYS_RANDOM: return (uint32_t)(random_next(&p->dice) % count);
        default: return p->fixed_key;
    }
}

// How many messages may go out now. At full speed a batch waits until it fits the window whole:
// one publish for each confirm that trickles in would cost a system call a message on both sides.
static int sendable(const struct publisher *p, const struct options *o, uint64_t now) {
    uint64_t n = (uint64_t)p->batch.capacity;
    if (n > p->quota) n = p->quota;
    if (o->window) {
        uint64_t room = (uint64_t)o->window - (p->sequence - p->settled);
        uint64_t span_room = p->stamp_mask - (p->sequence + 1 - p->lowest_unconfirmed);
        if (room > span_room) room = span_room;
        if (n > room) n = o->rate_per_s ? room : 0;
    }
    if (!o->rate_per_s) return (int)n;
    uint64_t due = 0;
    while (due < n && schedule_due_ns(o, p->start_ns, p->sequence + due) <= now) due++;
    return (int)due;
}

static void prepare(struct publisher *p, const struct options *o, int n, uint64_t now) {
    for (int i = 0; i < n; i++) {
        uint64_t stamp = o->rate_per_s ? schedule_due_ns(o, p->start_ns, p->sequence) : now;
        batch_prepare(&p->batch, i, stamp, choose_key(p, o));
        p->sequence++;
        if (p->stamps) p->stamps[p->sequence & p->stamp_mask] = stamp;
    }
    if (p->quota != UINT64_MAX) p->quota -= (uint64_t)n;
    p->pending_messages = n;
    p->pending_bytes = (size_t)n * p->batch.stride;
    p->sent_bytes = 0;
}

// Writes what is pending; false when the socket takes no more.
static bool write_pending(struct worker *w, struct publisher *p) {
    while (p->sent_bytes < p->pending_bytes) {
        ssize_t n = send(p->conn->fd, p->batch.bytes + p->sent_bytes,
                         p->pending_bytes - p->sent_bytes, MSG_NOSIGNAL);
        if (n >= 0) {
            p->sent_bytes += (size_t)n;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return false;
        } else if (errno != EINTR) {
            // A broker that closes says why first: look for its words before giving up.
            struct frame f;
            while (conn_fill(p->conn))
                while (conn_next_frame(p->conn, &f))
                    if (f.type == FRAME_METHOD) conn_check_complaint(&f);
            die("writing to the broker failed: %s", strerror(errno));
        }
    }
    worker_add(&w->published, (uint64_t)p->pending_messages);
    p->pending_messages = 0;
    p->pending_bytes = p->sent_bytes = 0;
    return true;
}

static void set_interest(struct producer_loop *l, struct publisher *p, bool write) {
    if (p->wants_write == write) return;
    struct epoll_event e = {.events = EPOLLIN | (write ? EPOLLOUT : 0), .data.ptr = p};
    if (epoll_ctl(l->epoll, EPOLL_CTL_MOD, p->conn->fd, &e)) die("epoll failed");
    p->wants_write = write;
}

// Sends one batch at most, so that the connections of a worker take turns.
static void pump(struct producer_loop *l, struct publisher *p, bool stopping) {
    if (p->pending_bytes && !write_pending(l->worker, p)) {
        set_interest(l, p, true);
        return;
    }
    uint64_t now = now_ns();
    int n = stopping ? 0 : sendable(p, l->options, now);
    if (n) {
        prepare(p, l->options, n, now);
        bool written = write_pending(l->worker, p);
        set_interest(l, p, !written || sendable(p, l->options, now) > 0);
    } else {
        set_interest(l, p, false);
    }
}

// Marks one tag confirmed; tags may come one by one and out of order.
static int settle_tag(struct publisher *p, uint64_t tag, uint64_t now, struct histogram *latency) {
    uint64_t *stamp = &p->stamps[tag & p->stamp_mask];
    if (!*stamp) return 0;
    if (latency) histogram_add(latency, now > *stamp ? now - *stamp : 0, 1);
    *stamp = 0;
    return 1;
}

// A complaint, or an alarm: what was published waits in the socket until the alarm is over.
static void on_other_method(struct worker *w, const struct frame *f) {
    if (get_u32(f->payload) == (CLASS_CONNECTION << 16 | CONNECTION_BLOCKED))
        worker_add(&w->blocked, 1);
    else
        conn_check_complaint(f);
}

static void on_confirm(struct producer_loop *l, struct publisher *p, const struct frame *f,
                       uint64_t now) {
    struct worker *w = l->worker;
    unsigned method = get_u16(f->payload + 2);
    if (get_u16(f->payload) != CLASS_BASIC || (method != BASIC_ACK && method != BASIC_NACK)) {
        on_other_method(w, f);
        return;
    }
    uint64_t tag = get_u64(f->payload + 4), settled = 0;
    if (!p->stamps || tag > p->sequence) die("the broker confirmed a message never sent");
    bool measured = method == BASIC_ACK && run_phase(w->run) == PHASE_MEASURE;
    struct histogram *latency = measured ? &w->latency : NULL;
    uint64_t from = f->payload[12] & 1 ? p->lowest_unconfirmed : tag;
    for (uint64_t t = from; t <= tag; t++) settled += (uint64_t)settle_tag(p, t, now, latency);
    while (p->lowest_unconfirmed <= p->sequence &&
           !p->stamps[p->lowest_unconfirmed & p->stamp_mask])
        p->lowest_unconfirmed++;
    p->settled += settled;
    worker_add(method == BASIC_ACK ? &w->confirmed : &w->nacked, settled);
}

static void read_confirms(struct producer_loop *l, struct publisher *p) {
    if (!conn_fill(p->conn)) return;
    uint64_t now = now_ns();
    struct frame f;
    while (conn_next_frame(p->conn, &f))
        if (f.type == FRAME_METHOD && f.length >= 13) on_confirm(l, p, &f, now);
        else if (f.type == FRAME_METHOD && f.length >= 4) on_other_method(l->worker, &f);
}

static void arm_timer(struct producer_loop *l) {
    l->timer = schedule_timer(l->options);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->timer, &e)) die("epoll failed");
}

static void open_publisher(struct producer_loop *l, struct publisher *p, int index) {
    const struct options *o = l->options;
    p->conn = conn_dial(o, &o->producer_endpoints, index);
    batch_init(&p->batch, o, p->conn->frame_max);
    p->fixed_key = (uint32_t)(index % options_key_count(o));
    p->next_key = (uint64_t)index;
    p->dice = (uint64_t)0x9E3779B97F4A7C15 * (uint64_t)(index + 1);
    p->lowest_unconfirmed = 1;
    p->quota = UINT64_MAX;
    if (o->mode == MODE_FILL)
        p->quota = (uint64_t)(o->messages / o->producers + (index < o->messages % o->producers));
    if (o->window) {
        uint8_t b[METHOD_BYTES_MAX];
        conn_send_method(p->conn, b, put_u8(open_method(b, 1, CLASS_CONFIRM, 10), 0));
        conn_expect(p->conn, CLASS_CONFIRM, 11);
        uint64_t slots = 1;
        while (slots < (uint64_t)o->window * WINDOW_SPAN + 1) slots *= 2;
        p->stamps = allocate(slots, sizeof *p->stamps);
        p->stamp_mask = slots - 1;
    }
    conn_nonblocking(p->conn);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = p};
    if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, p->conn->fd, &e)) die("epoll failed");
}

static bool idle(const struct publisher *p) {
    return !p->pending_bytes && (!p->stamps || p->lowest_unconfirmed > p->sequence);
}

static bool all_idle(const struct producer_loop *l) {
    for (int i = 0; i < l->worker->count; i++)
        if (!idle(&l->publishers[i])) return false;
    return true;
}

// One turn of the loop; on the timer every connection looks at its schedule.
static void turn(struct producer_loop *l, bool stopping) {
    struct epoll_event events[EVENTS_MAX];
    int n = epoll_wait(l->epoll, events, EVENTS_MAX, 50);
    for (int i = 0; i < n; i++) {
        struct publisher *p = events[i].data.ptr;
        if (!p) {
            uint64_t ticks;
            if (read(l->timer, &ticks, sizeof ticks) < 0) continue;
            for (int k = 0; k < l->worker->count; k++) pump(l, &l->publishers[k], stopping);
            continue;
        }
        if (events[i].events & ~(uint32_t)EPOLLOUT) read_confirms(l, p);
        pump(l, p, stopping);
    }
}

void *producer_thread(void *argument) {
    struct worker *w = argument;
    const struct options *o = w->run->options;
    struct producer_loop l = {.worker = w, .options = o, .epoll = epoll_create1(EPOLL_CLOEXEC)};
    prctl(PR_SET_TIMERSLACK, 1000);
    l.publishers = allocate((size_t)w->count, sizeof *l.publishers);
    for (int i = 0; i < w->count; i++) open_publisher(&l, &l.publishers[i], w->first + i);
    pthread_barrier_wait(&w->run->connected);
    uint64_t start = now_ns();
    for (int i = 0; i < w->count; i++) {
        // Schedules are shifted against each other, so that many slow publishers spread evenly.
        double shift = o->rate_per_s ? 1e9 / (double)o->rate_per_s * (w->first + i) : 0;
        l.publishers[i].start_ns = start + (uint64_t)shift;
        pump(&l, &l.publishers[i], false);
    }
    if (o->rate_per_s) arm_timer(&l);
    while (run_phase(w->run) != PHASE_STOP) turn(&l, false);
    uint64_t deadline_ns = now_ns() + CONFIRM_DRAIN_S * 1000000000ull;
    while (!all_idle(&l) && now_ns() < deadline_ns) turn(&l, true);
    for (int i = 0; i < w->count; i++) {
        conn_close(l.publishers[i].conn);
        free(l.publishers[i].batch.bytes);
        free(l.publishers[i].stamps);
    }
    free(l.publishers);
    close(l.epoll);
    return NULL;
}
