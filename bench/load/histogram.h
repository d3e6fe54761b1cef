// Latencies in nanoseconds, in buckets that are at most 1/64 of their value wide.
#ifndef AMQPLOAD_HISTOGRAM_H
#define AMQPLOAD_HISTOGRAM_H

#include <stdint.h>

enum { HISTOGRAM_SUB_BITS = 6, HISTOGRAM_SUBS = 1 << HISTOGRAM_SUB_BITS };
enum { HISTOGRAM_BUCKETS = (64 - HISTOGRAM_SUB_BITS + 1) * HISTOGRAM_SUBS };

struct histogram {
    uint64_t count[HISTOGRAM_BUCKETS];
    uint64_t total;
    uint64_t max_ns;
};

static inline void histogram_add(struct histogram *h, uint64_t ns, uint64_t times) {
    unsigned bucket = (unsigned)ns;
    if (ns >= HISTOGRAM_SUBS) {
        unsigned shift = 63u - (unsigned)__builtin_clzll(ns) - HISTOGRAM_SUB_BITS;
        bucket = (shift + 1) * HISTOGRAM_SUBS + (unsigned)((ns >> shift) & (HISTOGRAM_SUBS - 1));
    }
    h->count[bucket] += times;
    h->total += times;
    if (ns > h->max_ns) h->max_ns = ns;
}

void histogram_merge(struct histogram *into, const struct histogram *from);

// The latency that `fraction` of the values do not exceed, in milliseconds; 0 when empty.
double histogram_quantile_ms(const struct histogram *h, double fraction);

#endif
