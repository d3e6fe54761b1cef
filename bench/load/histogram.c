#include "histogram.h"

void histogram_merge(struct histogram *into, const struct histogram *from) {
    for (int i = 0; i < HISTOGRAM_BUCKETS; i++) into->count[i] += from->count[i];
    into->total += from->total;
    if (from->max_ns > into->max_ns) into->max_ns = from->max_ns;
}

// The middle of a bucket, so that the rounding has no direction.
static double bucket_ns(int bucket) {
    if (bucket < HISTOGRAM_SUBS) return bucket;
    int shift = bucket / HISTOGRAM_SUBS - 1;
    uint64_t low = (uint64_t)(HISTOGRAM_SUBS + bucket % HISTOGRAM_SUBS) << shift;
    return (double)low + (double)(1ull << shift) / 2;
}

double histogram_quantile_ms(const struct histogram *h, double fraction) {
    double wanted = (double)h->total * fraction;
    uint64_t seen = 0;
    for (int i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += h->count[i];
        if (seen && (double)seen >= wanted) {
            double ns = bucket_ns(i);
            return (ns < (double)h->max_ns ? ns : (double)h->max_ns) / 1e6;
        }
    }
    return 0;
}
