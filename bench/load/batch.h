// A row of equal publishes, encoded once; per message only the stamp and the key digits change.
#ifndef AMQPLOAD_BATCH_H
#define AMQPLOAD_BATCH_H

#include "options.h"
#include "topology.h"

// One write's worth: large enough to spare system calls, small enough to stay in cache.
enum { BATCH_BYTES = 32 * 1024, BATCH_DIGIT_SPOTS = 2 };

struct batch {
    uint8_t *bytes;
    size_t stride;
    int capacity;
    size_t stamp_at;  // 0: the body is too short for a stamp
    size_t digits_at[BATCH_DIGIT_SPOTS];
    int digit_spots;
};

void batch_init(struct batch *b, const struct options *o, uint32_t frame_max);

// Message `slot` of the batch: due (or sent) at stamp_ns, for binding or queue `key`.
void batch_prepare(struct batch *b, int slot, uint64_t stamp_ns, uint32_t key);

#endif
