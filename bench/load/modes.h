// The kinds of run. Each opens what it needs, prints its result and leaves nothing behind
// unless asked to keep it.
#ifndef AMQPLOAD_MODES_H
#define AMQPLOAD_MODES_H

#include "options.h"

// flow, fill and drain: publishers and consumers at work.
void run_traffic(const struct options *o);

// declare and delete.
void run_queues(const struct options *o);

// connect.
void run_connections(const struct options *o);

// count.
void run_count(const struct options *o);

// sync: no broker, the disk alone.
void run_sync(const struct options *o);

// floor: no broker, the least that any server has to do before it may confirm.
void run_floor(const struct options *o);

#endif
