#include "report.h"

#include <stdio.h>

void report_event(const char *event) {
    printf("{\"event\": \"%s\"}\n", event);
    fflush(stdout);
}

static void print_latency(const char *name, const struct histogram *h) {
    if (!h || !h->total) return;
    printf(", \"%s\": {\"count\": %llu, \"p50\": %.4f, \"p99\": %.4f, \"p999\": %.4f, "
           "\"max\": %.4f}",
           name, (unsigned long long)h->total, histogram_quantile_ms(h, 0.5),
           histogram_quantile_ms(h, 0.99), histogram_quantile_ms(h, 0.999),
           (double)h->max_ns / 1e6);
}

static void print_count(const char *name, uint64_t count, double seconds) {
    printf(", \"%s\": %llu, \"%s_per_s\": %.1f", name, (unsigned long long)count, name,
           seconds > 0 ? (double)count / seconds : 0);
}

static void print_total(const char *name, uint64_t count) {
    printf(", \"%s\": %llu", name, (unsigned long long)count);
}

// The broker's text goes into JSON: anything but plain printable characters is left out.
static void print_version(const char *version) {
    fputs(", \"broker_version\": \"", stdout);
    for (const char *p = version ? version : ""; *p; p++)
        if (*p >= ' ' && *p < 127 && *p != '"' && *p != '\\') putchar(*p);
    putchar('"');
}

void report_result(const struct options *o, const struct result *r) {
    printf("{\"event\": \"result\", \"mode\": \"%s\", \"seconds\": %.4f, \"connect_s\": %.4f",
           MODE_NAMES[o->mode], r->seconds, r->connect_s);
    print_count("published", r->published, r->seconds);
    print_count("confirmed", r->confirmed, r->seconds);
    print_count("consumed", r->consumed, r->seconds);
    print_count("declared", r->declared, r->seconds);
    print_total("published_in_all", r->published_in_all);
    print_total("nacked", r->nacked);
    print_total("blocked", r->blocked);
    print_total("ready", r->ready);
    printf(", \"generator_cpu_s\": %.4f", r->generator_cpu_s);
    print_latency("deliver_ms", r->deliver);
    print_latency("confirm_ms", r->confirm);
    print_latency("sync_ms", r->sync);
    print_latency("floor_ms", r->floor);
    print_version(r->broker_version);
    puts("}");
    fflush(stdout);
}
