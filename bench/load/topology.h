// The exchange, the queues and the bindings of a run, and the names that all parts agree on.
#ifndef AMQPLOAD_TOPOLOGY_H
#define AMQPLOAD_TOPOLOGY_H

#include "conn.h"

// Six digits that a publisher overwrites in place to choose another key.
enum { INDEX_DIGITS = 6 };

void queue_name(const struct options *o, int index, char name[NAME_CHARS_MAX]);
void exchange_name(const struct options *o, char name[NAME_CHARS_MAX]);

// Every `step`th queue from `first` on: what one of several connections sees to.
struct share {
    int first, step;
};
static const struct share ALL_QUEUES = {0, 1};

// Declare or delete a share of the queues, at most `outstanding` requests unanswered.
void declare_queues(struct conn *c, const struct options *o, int outstanding, struct share share);
void delete_queues(struct conn *c, const struct options *o, int outstanding, struct share share);

// How many messages the first queue has ready; the queue must exist.
uint32_t count_ready(struct conn *c, const struct options *o);

// The exchange with all its bindings; nothing for the default exchange.
void declare_exchange(struct conn *c, const struct options *o);
void delete_exchange(struct conn *c, const struct options *o);

#endif
