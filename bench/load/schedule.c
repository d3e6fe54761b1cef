#define _GNU_SOURCE
#include "schedule.h"

#include <errno.h>
#include <string.h>
#include <sys/timerfd.h>

#include "clock.h"

static uint64_t tick_ns(const struct options *o) {
    return (uint64_t)o->tick_us * 1000;
}

uint64_t schedule_due_ns(const struct options *o, uint64_t start_ns, uint64_t index) {
    uint64_t tick = tick_ns(o);
    double gap_ns = 1e9 * o->producers / (double)o->rate_per_s;
    uint64_t due = start_ns + (uint64_t)((double)index * gap_ns);
    return (due + tick - 1) / tick * tick;
}

int schedule_timer(const struct options *o) {
    uint64_t tick = tick_ns(o);
    uint64_t next = (now_ns() / tick + 1) * tick;
    struct itimerspec at = {
        .it_interval = {(time_t)(tick / 1000000000), (long)(tick % 1000000000)},
        .it_value = {(time_t)(next / 1000000000), (long)(next % 1000000000)}};
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (timer < 0 || timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL))
        die("cannot arm the timer: %s", strerror(errno));
    return timer;
}
