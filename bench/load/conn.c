#define _GNU_SOURCE
#include "conn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

void conn_bad_frame_end(void) { die("the broker sent a frame without its end mark"); }

// Makes room for one more large read behind what is still unread.
static void make_room(struct conn *c) {
    if (c->read_at == c->write_at) c->read_at = c->write_at = 0;
    if (c->capacity - c->write_at >= INPUT_BYTES / 4) return;
    memmove(c->in, c->in + c->read_at, c->write_at - c->read_at);
    c->write_at -= c->read_at;
    c->read_at = 0;
    if (c->capacity - c->write_at >= INPUT_BYTES / 4) return;
    c->capacity *= 2;
    c->in = realloc(c->in, c->capacity);
    if (!c->in) die("out of memory for a frame of more than %zu bytes", c->capacity / 2);
}

bool conn_fill(struct conn *c) {
    make_room(c);
    for (;;) {
        ssize_t n = recv(c->fd, c->in + c->write_at, c->capacity - c->write_at, 0);
        if (n > 0) {
            c->write_at += (size_t)n;
            return true;
        }
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
        if (n == 0) die("the broker closed the TCP connection without saying why");
        die("reading from the broker failed: %s", strerror(errno));
    }
}

void conn_send(struct conn *c, const void *bytes, size_t n) {
    const char *p = bytes;
    while (n) {
        ssize_t k = send(c->fd, p, n, MSG_NOSIGNAL);
        if (k >= 0) {
            p += k;
            n -= (size_t)k;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            struct pollfd wait = {c->fd, POLLOUT, 0};
            poll(&wait, 1, 1000);
        } else if (errno != EINTR) {
            die("writing to the broker failed: %s", strerror(errno));
        }
    }
}

void conn_send_method(struct conn *c, uint8_t *start, uint8_t *p) {
    p = close_frame(start, p);
    conn_send(c, start, (size_t)(p - start));
}

void conn_check_complaint(const struct frame *f) {
    if (f->length < 7) return;
    const uint8_t *p = f->payload;
    unsigned cls = get_u16(p), method = get_u16(p + 2);
    bool connection = cls == CLASS_CONNECTION && method == CONNECTION_CLOSE;
    if (connection || (cls == CLASS_CHANNEL && method == CHANNEL_CLOSE))
        die("the broker closed the %s: %u %.*s", connection ? "connection" : "channel",
            get_u16(p + 4), (int)p[6], (const char *)p + 7);
    if (cls == CLASS_BASIC && method == BASIC_CANCEL)
        die("the broker cancelled a consumer: its queue is gone");
}

// Blocking sockets have a receive time-out, the others are polled: both end here when it passes.
static void fill_or_time_out(struct conn *c, uint64_t deadline_ns) {
    while (!conn_fill(c)) {
        if (now_ns() >= deadline_ns)
            die("the broker did not answer within %d s", REPLY_TIMEOUT_S);
        struct pollfd wait = {c->fd, POLLIN, 0};
        poll(&wait, 1, 100);
    }
}

const uint8_t *conn_expect(struct conn *c, unsigned cls, unsigned method) {
    uint64_t deadline_ns = now_ns() + REPLY_TIMEOUT_S * 1000000000ull;
    struct frame f;
    for (;;) {
        while (!conn_next_frame(c, &f)) {
            if (c->write_at - c->read_at >= 4 && !memcmp(c->in + c->read_at, "AMQP", 4))
                die("the broker does not speak AMQP 0-9-1");
            fill_or_time_out(c, deadline_ns);
        }
        if (f.type != FRAME_METHOD || f.length < 4) continue;
        if (get_u16(f.payload) == cls && get_u16(f.payload + 2) == method) return f.payload + 4;
        conn_check_complaint(&f);
    }
}

static int open_socket(const struct endpoint *e) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) die("cannot open a socket: %s", strerror(errno));
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)e->port)};
    const char *host = strcmp(e->host, "localhost") ? e->host : "127.0.0.1";
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1)
        die("'%s' is not an IPv4 address", e->host);
    if (connect(fd, (struct sockaddr *)&address, sizeof address))
        die("cannot connect to %s:%d: %s", e->host, e->port, strerror(errno));
    struct timeval timeout = {.tv_usec = 100000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    return fd;
}

// The product version out of the server properties, found by its field name: no need for a
// whole table decoder to label a report.
static void note_version(struct conn *c, const uint8_t *start_args) {
    static const char field[] = "\7versionS";
    uint32_t table_length = get_u32(start_args + 2);
    const uint8_t *p = memmem(start_args + 6, table_length, field, sizeof field - 1);
    if (!p) return;
    uint32_t n = get_u32(p + sizeof field - 1);
    snprintf(c->version, sizeof c->version, "%.*s", (int)(n < 31 ? n : 31),
             (const char *)p + sizeof field + 3);
}

// Client properties. With the first capability a refused login is answered with a reason; without
// it the broker just closes the socket. With the second an alarm is told, not just felt.
static uint8_t *put_properties(uint8_t *p) {
    uint8_t *table = p;
    p = put_u8(put_short_string(p + 4, "capabilities"), 'F');
    uint8_t *inner = p;
    p = put_u8(put_u8(put_short_string(p + 4, "authentication_failure_close"), 't'), 1);
    p = put_u8(put_u8(put_short_string(p, "connection.blocked"), 't'), 1);
    put_u32(inner, (uint32_t)(p - inner - 4));
    p = put_string_field(p, "product", "amqpload");
    put_u32(table, (uint32_t)(p - table - 4));
    return p;
}

static void log_in(struct conn *c, const struct options *o) {
    conn_send(c, "AMQP\0\0\x09\x01", 8);
    note_version(c, conn_expect(c, CLASS_CONNECTION, 10));
    uint8_t b[METHOD_BYTES_MAX];
    uint8_t *p = put_properties(open_method(b, 0, CLASS_CONNECTION, 11));
    p = put_short_string(p, "PLAIN");
    size_t user = strlen(o->user), password = strlen(o->password);
    p = put_u8(put_u32(p, (uint32_t)(2 + user + password)), 0);
    p = put_u8(put_bytes(p, o->user, user), 0);
    p = put_short_string(put_bytes(p, o->password, password), "en_US");
    conn_send_method(c, b, p);
    const uint8_t *tune = conn_expect(c, CLASS_CONNECTION, 30);
    unsigned channel_max = get_u16(tune);
    c->frame_max = get_u32(tune + 2);
    if (!channel_max) channel_max = 2047;
    if (!c->frame_max || c->frame_max > 131072) c->frame_max = 131072;
    p = put_u16(open_method(b, 0, CLASS_CONNECTION, 31), channel_max);
    // Heartbeat 0: an event loop that also had to beat would disturb what it measures.
    conn_send_method(c, b, put_u16(put_u32(p, c->frame_max), 0));
    p = put_short_string(open_method(b, 0, CLASS_CONNECTION, 40), o->vhost);
    conn_send_method(c, b, put_u8(put_short_string(p, ""), 0));
    conn_expect(c, CLASS_CONNECTION, 41);
    conn_send_method(c, b, put_short_string(open_method(b, 1, CLASS_CHANNEL, 10), ""));
    conn_expect(c, CLASS_CHANNEL, 11);
}

struct conn *conn_dial(const struct options *o, const struct endpoints *to, int index) {
    struct conn *c = allocate(1, sizeof *c);
    c->capacity = INPUT_BYTES;
    c->in = malloc(c->capacity);
    if (!c->in) die("out of memory for connection %d", index);
    c->fd = open_socket(&to->nodes[index % to->count]);
    log_in(c, o);
    return c;
}

void conn_nonblocking(struct conn *c) {
    int flags = fcntl(c->fd, F_GETFL);
    if (flags < 0 || fcntl(c->fd, F_SETFL, flags | O_NONBLOCK))
        die("cannot make a socket non-blocking: %s", strerror(errno));
}

// Skips what is still on its way until close-ok, the end of the stream or the time-out.
static void await_close_ok(struct conn *c) {
    uint64_t deadline_ns = now_ns() + CLOSE_TIMEOUT_S * 1000000000ull;
    while (now_ns() < deadline_ns) {
        struct frame f;
        while (conn_next_frame(c, &f))
            if (f.type == FRAME_METHOD && get_u32(f.payload) == (CLASS_CONNECTION << 16 | 51)) return;
        make_room(c);
        struct pollfd wait = {c->fd, POLLIN, 0};
        if (poll(&wait, 1, 100) <= 0) continue;
        ssize_t n = recv(c->fd, c->in + c->write_at, c->capacity - c->write_at, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return;
        if (n > 0) c->write_at += (size_t)n;
    }
}

void conn_close(struct conn *c) {
    uint8_t b[METHOD_BYTES_MAX];
    uint8_t *p = put_u16(open_method(b, 0, CLASS_CONNECTION, CONNECTION_CLOSE), 200);
    p = close_frame(b, put_u32(put_short_string(p, "done"), 0));
    // Only if the socket takes it whole at once: a broker that reads no more must not hold us.
    if (send(c->fd, b, (size_t)(p - b), MSG_NOSIGNAL | MSG_DONTWAIT) == p - b) await_close_ok(c);
    close(c->fd);
    free(c->in);
    free(c);
}
