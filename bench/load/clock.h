// The one clock, and the one way to give up.
#ifndef AMQPLOAD_CLOCK_H
#define AMQPLOAD_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

void sleep_s(double seconds);

// Prints "amqpload: ..." and ends the process with status 1.
__attribute__((format(printf, 1, 2), noreturn)) void die(const char *format, ...);

// malloc that cannot fail quietly; the memory is zero.
void *allocate(size_t count, size_t size);

#endif
