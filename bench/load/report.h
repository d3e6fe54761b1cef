// The JSON lines on stdout: one object a line, flushed at once, so that a harness can follow.
#ifndef AMQPLOAD_REPORT_H
#define AMQPLOAD_REPORT_H

#include "histogram.h"
#include "options.h"

// Rates are per second of the measured time.
struct result {
    double seconds, connect_s, generator_cpu_s;
    uint64_t published, confirmed, consumed, nacked, declared;
    uint64_t published_in_all;  // warm-up included
    uint64_t ready;    // messages in the queue that was looked at
    uint64_t blocked;  // how often the broker asked a publisher to hold back
    const struct histogram *deliver, *confirm, *sync, *floor;  // NULL when not measured
    const char *broker_version;
};

void report_event(const char *event);
void report_result(const struct options *o, const struct result *r);

#endif
