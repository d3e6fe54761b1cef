#include "batch.h"

#include <stdio.h>
#include <stdlib.h>

enum { HAS_HEADERS = 0x2000, HAS_DELIVERY_MODE = 0x1000 };

static void note_digits(struct batch *b, const uint8_t *start, const uint8_t *digits) {
    b->digits_at[b->digit_spots++] = (size_t)(digits - start);
}

// basic.publish; the key is the queue's name on the default exchange.
static uint8_t *put_publish(struct batch *b, const struct options *o, uint8_t *start) {
    uint8_t *p = put_u16(open_method(start, 1, CLASS_BASIC, BASIC_PUBLISH), 0);
    char exchange[NAME_CHARS_MAX] = "", key[NAME_CHARS_MAX] = "";
    if (o->exchange_type) exchange_name(o, exchange);
    p = put_short_string(p, exchange);
    if (!o->exchange_type) {
        queue_name(o, 0, key);
        note_digits(b, start, p + 1 + strlen(key) - INDEX_DIGITS);
    } else if (!strcmp(o->exchange_type, "direct")) {
        snprintf(key, sizeof key, "k%06d", 0);
        note_digits(b, start, p + 2);
    } else if (!strcmp(o->exchange_type, "topic")) {
        snprintf(key, sizeof key, "k%06d.w%06d.x", 0, 0);
        note_digits(b, start, p + 2);
        note_digits(b, start, p + 2 + INDEX_DIGITS + 2);
    }
    return close_frame(start, put_u8(put_short_string(p, key), 0));
}

static uint8_t *put_header(struct batch *b, const struct options *o, uint8_t *start,
                           const uint8_t *message) {
    bool headers = o->exchange_type && !strcmp(o->exchange_type, "headers");
    uint8_t *p = put_u16(put_u16(open_frame(start, FRAME_HEADER, 1), CLASS_BASIC), 0);
    p = put_u64(p, (uint64_t)o->size_bytes);
    p = put_u16(p, headers ? HAS_HEADERS | HAS_DELIVERY_MODE : HAS_DELIVERY_MODE);
    if (headers) {
        uint8_t *table = p;
        p = put_string_field(p + 4, "kind", "load");
        p = put_string_field(p, "id", "v000000");
        note_digits(b, message, p - INDEX_DIGITS);
        put_u32(table, (uint32_t)(p - table - 4));
    }
    return close_frame(start, put_u8(p, o->persistent ? 2 : 1));
}

static size_t body_frames_bytes(const struct options *o, uint32_t frame_max) {
    size_t part = frame_max - FRAME_OVERHEAD_BYTES, size = (size_t)o->size_bytes;
    return size + (size + part - 1) / part * FRAME_OVERHEAD_BYTES;
}

static void put_body(uint8_t *p, const struct options *o, uint32_t frame_max) {
    size_t part = frame_max - FRAME_OVERHEAD_BYTES;
    for (size_t left = (size_t)o->size_bytes; left;) {
        size_t n = left < part ? left : part;
        uint8_t *start = p;
        p = open_frame(p, FRAME_BODY, 1);
        memset(p, 'x', n);
        p = close_frame(start, p + n);
        left -= n;
    }
}

// A batch never holds more than half a window, so that confirms and publishes overlap.
static int batch_capacity(const struct options *o, size_t stride) {
    int capacity = stride < BATCH_BYTES ? (int)(BATCH_BYTES / stride) : 1;
    int half = (o->window + 1) / 2;
    return o->window && capacity > half ? half : capacity;
}

void batch_init(struct batch *b, const struct options *o, uint32_t frame_max) {
    uint8_t head[METHOD_BYTES_MAX];
    uint8_t *p = put_publish(b, o, head);
    p = put_header(b, o, p, head);
    size_t head_bytes = (size_t)(p - head);
    b->stride = head_bytes + body_frames_bytes(o, frame_max);
    b->capacity = batch_capacity(o, b->stride);
    b->bytes = allocate((size_t)b->capacity, b->stride);
    b->stamp_at = (size_t)o->size_bytes < sizeof(uint64_t) ? 0 : head_bytes + FRAME_PREFIX_BYTES;
    for (int i = 0; i < b->capacity; i++) {
        uint8_t *message = b->bytes + (size_t)i * b->stride;
        put_body(put_bytes(message, head, head_bytes), o, frame_max);
    }
}

void batch_prepare(struct batch *b, int slot, uint64_t stamp_ns, uint32_t key) {
    uint8_t *message = b->bytes + (size_t)slot * b->stride;
    if (b->stamp_at) memcpy(message + b->stamp_at, &stamp_ns, sizeof stamp_ns);
    for (int spot = 0; spot < b->digit_spots; spot++) {
        uint32_t rest = key;
        uint8_t *digits = message + b->digits_at[spot];
        for (int i = INDEX_DIGITS - 1; i >= 0; i--, rest /= 10) digits[i] = (uint8_t)('0' + rest % 10);
    }
}
