#include "topology.h"

#include <stdio.h>

// Requests in flight while setting up: enough to hide the round trip.
enum { SETUP_OUTSTANDING = 64 };

// Requests of one kind on one channel are answered in order, so counting is enough.
struct pipeline {
    struct conn *conn;
    unsigned cls, ok_method;
    int outstanding, limit;
};

static void pipeline_send(struct pipeline *l, uint8_t *start, uint8_t *p) {
    conn_send_method(l->conn, start, p);
    if (++l->outstanding < l->limit) return;
    conn_expect(l->conn, l->cls, l->ok_method);
    l->outstanding--;
}

static void pipeline_drain(struct pipeline *l) {
    for (; l->outstanding; l->outstanding--) conn_expect(l->conn, l->cls, l->ok_method);
}

void queue_name(const struct options *o, int index, char name[NAME_CHARS_MAX]) {
    snprintf(name, NAME_CHARS_MAX, "%s-q%0*d", o->prefix, INDEX_DIGITS, index);
}

void exchange_name(const struct options *o, char name[NAME_CHARS_MAX]) {
    snprintf(name, NAME_CHARS_MAX, "%s-x", o->prefix);
}

void declare_queues(struct conn *c, const struct options *o, int outstanding, struct share share) {
    struct pipeline line = {c, CLASS_QUEUE, 11, 0, outstanding};
    for (int i = share.first; i < o->queues; i += share.step) {
        char name[NAME_CHARS_MAX];
        queue_name(o, i, name);
        uint8_t b[METHOD_BYTES_MAX];
        uint8_t *p = put_u16(open_method(b, 1, CLASS_QUEUE, 10), 0);
        p = put_u8(put_short_string(p, name), o->durable ? 2 : 0);
        pipeline_send(&line, b, put_u32(p, 0));
    }
    pipeline_drain(&line);
}

uint32_t count_ready(struct conn *c, const struct options *o) {
    char name[NAME_CHARS_MAX];
    queue_name(o, 0, name);
    uint8_t b[METHOD_BYTES_MAX];
    uint8_t *p = put_u16(open_method(b, 1, CLASS_QUEUE, 10), 0);
    enum { PASSIVE = 1 };
    conn_send_method(c, b, put_u32(put_u8(put_short_string(p, name), PASSIVE), 0));
    const uint8_t *answer = conn_expect(c, CLASS_QUEUE, 11);
    return get_u32(answer + 1 + answer[0]);
}

void delete_queues(struct conn *c, const struct options *o, int outstanding, struct share share) {
    struct pipeline line = {c, CLASS_QUEUE, 41, 0, outstanding};
    for (int i = share.first; i < o->queues; i += share.step) {
        char name[NAME_CHARS_MAX];
        queue_name(o, i, name);
        uint8_t b[METHOD_BYTES_MAX];
        uint8_t *p = put_u16(open_method(b, 1, CLASS_QUEUE, 40), 0);
        pipeline_send(&line, b, put_u8(put_short_string(p, name), 0));
    }
    pipeline_drain(&line);
}

// Binding `index` is matched by the messages of key `index` and by no others. The topic patterns
// take turns between a trailing #, a leading *, a * inside and no wildcard at all.
static uint8_t *put_binding(uint8_t *p, const struct options *o, int index) {
    static const char *const patterns[] = {"k%06d.#", "*.w%06d.*", "k%06d.*.x", "k%06d.w%06d.x"};
    char key[64] = "", value[16];
    if (!strcmp(o->exchange_type, "topic"))
        snprintf(key, sizeof key, patterns[index % 4], index, index);
    else if (!strcmp(o->exchange_type, "direct"))
        snprintf(key, sizeof key, "k%06d", index);
    p = put_u8(put_short_string(p, key), 0);
    uint8_t *table = p;
    p += 4;
    if (!strcmp(o->exchange_type, "headers")) {
        snprintf(value, sizeof value, "v%06d", index);
        p = put_string_field(p, "x-match", "all");
        p = put_string_field(p, "kind", "load");
        p = put_string_field(p, "id", value);
    }
    put_u32(table, (uint32_t)(p - table - 4));
    return p;
}

void declare_exchange(struct conn *c, const struct options *o) {
    if (!o->exchange_type) return;
    char exchange[NAME_CHARS_MAX], queue[NAME_CHARS_MAX];
    exchange_name(o, exchange);
    uint8_t b[METHOD_BYTES_MAX];
    uint8_t *p = put_u16(open_method(b, 1, CLASS_EXCHANGE, 10), 0);
    p = put_short_string(put_short_string(p, exchange), o->exchange_type);
    conn_send_method(c, b, put_u32(put_u8(p, o->durable ? 2 : 0), 0));
    conn_expect(c, CLASS_EXCHANGE, 11);
    struct pipeline line = {c, CLASS_QUEUE, 21, 0, SETUP_OUTSTANDING};
    for (int i = 0; i < o->bindings; i++) {
        queue_name(o, i % o->queues, queue);
        p = put_u16(open_method(b, 1, CLASS_QUEUE, 20), 0);
        p = put_short_string(put_short_string(p, queue), exchange);
        pipeline_send(&line, b, put_binding(p, o, i));
    }
    pipeline_drain(&line);
}

void delete_exchange(struct conn *c, const struct options *o) {
    if (!o->exchange_type) return;
    char name[NAME_CHARS_MAX];
    exchange_name(o, name);
    uint8_t b[METHOD_BYTES_MAX];
    uint8_t *p = put_u16(open_method(b, 1, CLASS_EXCHANGE, 20), 0);
    conn_send_method(c, b, put_u8(put_short_string(p, name), 0));
    conn_expect(c, CLASS_EXCHANGE, 21);
}
