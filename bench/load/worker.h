// A thread that drives its share of the connections, and what it counts.
//
// Counters are written by their own thread only and read by the main thread: relaxed atomics on a
// cache line of their own. Histograms are read after the thread has been joined.
#ifndef AMQPLOAD_WORKER_H
#define AMQPLOAD_WORKER_H

#include <pthread.h>
#include <stdatomic.h>

#include "conn.h"
#include "histogram.h"
#include "options.h"

enum phase { PHASE_WARM, PHASE_MEASURE, PHASE_STOP };

// Shared by all workers of a run.
struct run {
    const struct options *options;
    _Atomic int phase;
    pthread_barrier_t connected;  // every worker and the main thread
};

struct worker {
    struct run *run;
    pthread_t thread;
    int first, count;  // which connections of its kind are its own
    _Alignas(64) _Atomic uint64_t published;
    _Atomic uint64_t confirmed, nacked, consumed, blocked;
    _Alignas(64) struct histogram latency;  // to the confirm, or to the delivery
};

static inline void worker_add(_Atomic uint64_t *counter, uint64_t n) {
    // Single writer: a plain load and store is enough, and cheaper than a locked add.
    uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, value + n, memory_order_relaxed);
}

static inline int run_phase(struct run *run) {
    return atomic_load_explicit(&run->phase, memory_order_relaxed);
}

// Thread bodies; the argument is the worker.
void *producer_thread(void *worker);
void *consumer_thread(void *worker);

#endif
