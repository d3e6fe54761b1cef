#include "clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void sleep_s(double seconds) {
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

void die(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("amqpload: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    // Not exit(): other threads still run, and its clean-up would race with them.
    _exit(1);
}

void *allocate(size_t count, size_t size) {
    void *p = calloc(count, size);
    if (!p) die("out of memory (%zu bytes)", count * size);
    return p;
}
