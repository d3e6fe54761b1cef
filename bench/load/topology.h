// The exchange, the queues and the bindings of a run, and the names that all parts agree on.
#ifndef AMQPLOAD_TOPOLOGY_H
#define AMQPLOAD_TOPOLOGY_H

#include "conn.h"

// Six digits that a publisher overwrites in place to choose another key.
enum { INDEX_DIGITS = 6 };

void queue_name(const struct options *o, int index, char name[NAME_CHARS_MAX]);
void exchange_name(const struct options *o, char name[NAME_CHARS_MAX]);

// Declare or delete every queue, at most `outstanding` requests unanswered.
void declare_queues(struct conn *c, const struct options *o, int outstanding);
void delete_queues(struct conn *c, const struct options *o, int outstanding);

// How many messages the first queue has ready; the queue must exist.
uint32_t count_ready(struct conn *c, const struct options *o);

// The exchange with all its bindings; nothing for the default exchange.
void declare_exchange(struct conn *c, const struct options *o);
void delete_exchange(struct conn *c, const struct options *o);

#endif
