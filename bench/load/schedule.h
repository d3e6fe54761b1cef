// The rhythm of a paced run: when each message falls due, and the timer that ticks with it.
#ifndef AMQPLOAD_SCHEDULE_H
#define AMQPLOAD_SCHEDULE_H

#include "options.h"

// When message `index` of one connection falls due: its place in an even schedule that began at
// start_ns, rounded up to the next tick. Latencies count from here, so a late generator or a server
// that pushes back shows.
uint64_t schedule_due_ns(const struct options *o, uint64_t start_ns, uint64_t index);

// A timer that becomes readable at every tick.
int schedule_timer(const struct options *o);

#endif
