// AMQP 0-9-1 on the wire: numbers, strings and the ids that this program uses.
//
// Every put_ function writes at `p` and returns the place after what it wrote. The caller owns the
// room: buffers are sized for the largest thing written into them, see the limits below.
#ifndef AMQPLOAD_WIRE_H
#define AMQPLOAD_WIRE_H

#include <stdint.h>
#include <string.h>

enum { FRAME_METHOD = 1, FRAME_HEADER = 2, FRAME_BODY = 3, FRAME_HEARTBEAT = 8 };
enum { FRAME_END = 0xCE, FRAME_PREFIX_BYTES = 7, FRAME_OVERHEAD_BYTES = 8 };
enum { CLASS_CONNECTION = 10, CLASS_CHANNEL = 20, CLASS_EXCHANGE = 40, CLASS_QUEUE = 50 };
enum { CLASS_BASIC = 60, CLASS_CONFIRM = 85 };
enum { BASIC_QOS = 10, BASIC_CONSUME = 20, BASIC_CANCEL = 30, BASIC_PUBLISH = 40 };
enum { BASIC_DELIVER = 60, BASIC_ACK = 80, BASIC_NACK = 120 };
enum { CONNECTION_CLOSE = 50, CONNECTION_BLOCKED = 60, CHANNEL_CLOSE = 40 };

// Room for any method frame or message head written here: three 255-byte names and a small table.
enum { METHOD_BYTES_MAX = 2048 };

static inline uint8_t *put_u8(uint8_t *p, unsigned v) {
    *p = (uint8_t)v;
    return p + 1;
}

static inline uint8_t *put_u16(uint8_t *p, unsigned v) {
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
    return p + 2;
}

static inline uint8_t *put_u32(uint8_t *p, uint32_t v) {
    p[0] = (uint8_t)(v >> 24);
    p[1] = (uint8_t)(v >> 16);
    p[2] = (uint8_t)(v >> 8);
    p[3] = (uint8_t)v;
    return p + 4;
}

static inline uint8_t *put_u64(uint8_t *p, uint64_t v) {
    return put_u32(put_u32(p, (uint32_t)(v >> 32)), (uint32_t)v);
}

static inline uint8_t *put_bytes(uint8_t *p, const void *bytes, size_t n) {
    memcpy(p, bytes, n);
    return p + n;
}

static inline uint8_t *put_short_string(uint8_t *p, const char *s) {
    size_t n = strlen(s);
    return put_bytes(put_u8(p, (unsigned)n), s, n);
}

static inline uint8_t *put_long_string(uint8_t *p, const char *s) {
    size_t n = strlen(s);
    return put_bytes(put_u32(p, (uint32_t)n), s, n);
}

// One field of a table: name, then a long string as its value.
static inline uint8_t *put_string_field(uint8_t *p, const char *name, const char *value) {
    return put_long_string(put_u8(put_short_string(p, name), 'S'), value);
}

static inline unsigned get_u16(const uint8_t *p) { return (unsigned)p[0] << 8 | p[1]; }

static inline uint32_t get_u32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline uint64_t get_u64(const uint8_t *p) {
    return (uint64_t)get_u32(p) << 32 | get_u32(p + 4);
}

// Opens a frame; close_frame writes its length and end mark once the payload is known.
static inline uint8_t *open_frame(uint8_t *p, unsigned type, unsigned channel) {
    return put_u16(put_u8(p, type), channel) + 4;
}

static inline uint8_t *close_frame(uint8_t *start, uint8_t *p) {
    put_u32(start + 3, (uint32_t)(p - start - FRAME_PREFIX_BYTES));
    return put_u8(p, FRAME_END);
}

static inline uint8_t *open_method(uint8_t *p, unsigned channel, unsigned cls, unsigned method) {
    return put_u16(put_u16(open_frame(p, FRAME_METHOD, channel), cls), method);
}

#endif
