// What this disk itself takes to keep a few bytes: the measure for a broker's confirms.
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "journal.h"
#include "modes.h"
#include "report.h"
#include "worker.h"

static void sleep_until(uint64_t due_ns) {
    struct timespec at = {(time_t)(due_ns / 1000000000), (long)(due_ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) continue;
}

// One append and its sync. The time is that of the two calls alone, not from a due time: a disk
// slower than the pace would otherwise be measured on its own queue.
static uint64_t append_ns(int fd, const char *bytes, size_t n) {
    uint64_t start_ns = now_ns();
    journal_append(fd, bytes, n);
    return now_ns() - start_ns;
}

void run_sync(const struct options *o) {
    int fd = journal_create(o);
    char *bytes = allocate(1, (size_t)o->size_bytes + 1);
    memset(bytes, 'x', (size_t)o->size_bytes);
    struct histogram *sync = allocate(1, sizeof *sync);
    prctl(PR_SET_TIMERSLACK, 1000);
    uint64_t gap_ns = o->rate_per_s ? 1000000000ull / (uint64_t)o->rate_per_s : 0;
    uint64_t start_ns = now_ns(), due_ns = start_ns;
    for (long i = 0; i < o->messages; i++) {
        // A disk that cannot keep the pace goes as fast as it can, without catching up in a burst.
        due_ns += gap_ns;
        uint64_t now = now_ns();
        if (due_ns > now) sleep_until(due_ns);
        else due_ns = now;
        histogram_add(sync, append_ns(fd, bytes, (size_t)o->size_bytes), 1);
    }
    struct result result = {.seconds = (double)(now_ns() - start_ns) / 1e9, .sync = sync};
    report_result(o, &result);
    close(fd);
    unlink(o->file);
    free(sync);
    free(bytes);
}
