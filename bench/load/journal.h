// A file that a measure of the disk itself appends to.
#ifndef AMQPLOAD_JOURNAL_H
#define AMQPLOAD_JOURNAL_H

#include <stddef.h>

#include "options.h"

// As large as a log segment would be, and allocated before: a sync need not record that it grew.
enum { JOURNAL_BYTES = 64 << 20 };

// Creates --file with room for --messages of --size; refuses what would outgrow it.
int journal_create(const struct options *o);

// One append and its fdatasync.
void journal_append(int fd, const char *bytes, size_t n);

#endif
