#include "modes.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "report.h"
#include "topology.h"
#include "worker.h"

// Set-up and tear-down requests in flight.
enum { SETUP_OUTSTANDING = 64 };

// fill and drain give up when nothing has moved for this long.
enum { STALL_S = 60 };

// Set by an interrupt: what is measured lasts as long as something that only the caller sees.
static volatile sig_atomic_t is_interrupted;

static void on_interrupt(int number) {
    (void)number;
    is_interrupted = 1;
}

struct totals {
    uint64_t published, confirmed, nacked, consumed, blocked;
    double cpu_s;
    uint64_t at_ns;
};

struct crew {
    struct worker *workers;
    int count;
};

static struct crew crew_new(struct run *run, int connections) {
    int threads = run->options->threads;
    struct crew crew = {.count = connections < threads ? connections : threads};
    size_t bytes = (size_t)(crew.count ? crew.count : 1) * sizeof *crew.workers;
    crew.workers = aligned_alloc(_Alignof(struct worker), bytes);
    if (!crew.workers) die("out of memory");
    memset(crew.workers, 0, bytes);
    for (int i = 0; i < crew.count; i++) {
        struct worker *w = &crew.workers[i];
        w->run = run;
        w->first = (int)((long)connections * i / crew.count);
        w->count = (int)((long)connections * (i + 1) / crew.count) - w->first;
    }
    return crew;
}

static void crew_start(struct crew *crew, void *(*body)(void *)) {
    for (int i = 0; i < crew->count; i++)
        if (pthread_create(&crew->workers[i].thread, NULL, body, &crew->workers[i]))
            die("cannot start a thread");
}

static void crew_join(struct crew *crew, struct histogram *latency) {
    for (int i = 0; i < crew->count; i++) {
        pthread_join(crew->workers[i].thread, NULL);
        histogram_merge(latency, &crew->workers[i].latency);
    }
}

static void add_crew(struct totals *t, struct crew *crew) {
    for (int i = 0; i < crew->count; i++) {
        struct worker *w = &crew->workers[i];
        t->published += atomic_load_explicit(&w->published, memory_order_relaxed);
        t->confirmed += atomic_load_explicit(&w->confirmed, memory_order_relaxed);
        t->nacked += atomic_load_explicit(&w->nacked, memory_order_relaxed);
        t->consumed += atomic_load_explicit(&w->consumed, memory_order_relaxed);
        t->blocked += atomic_load_explicit(&w->blocked, memory_order_relaxed);
    }
}

// Sleeps in slices: the signal may have come to any of the threads.
static void sleep_until_interrupt(double seconds) {
    const uint64_t end_ns = now_ns() + (uint64_t)(seconds * 1e9);
    const double slice_s = 0.01;
    for (uint64_t now = now_ns(); now < end_ns && !is_interrupted; now = now_ns()) {
        double left_s = (double)(end_ns - now) / 1e9;
        sleep_s(left_s < slice_s ? left_s : slice_s);
    }
}

static double own_cpu_s(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static struct totals sample(struct crew *producers, struct crew *consumers) {
    struct totals t = {.cpu_s = own_cpu_s(), .at_ns = now_ns()};
    add_crew(&t, producers);
    add_crew(&t, consumers);
    return t;
}

// Waits until every message of a fill is confirmed, or every message of a drain consumed.
static void await_messages(const struct options *o, struct crew *producers,
                           struct crew *consumers) {
    uint64_t seen = 0, moved_ns = now_ns();
    while (seen < (uint64_t)o->messages) {
        struct totals t = sample(producers, consumers);
        uint64_t done = o->mode == MODE_FILL ? t.confirmed + t.nacked : t.consumed;
        if (done != seen) moved_ns = t.at_ns;
        seen = done;
        if (t.at_ns - moved_ns > STALL_S * 1000000000ull)
            die("nothing moved for %d s: %llu of %ld messages %s, publishers blocked %llu times",
                STALL_S, (unsigned long long)done, o->messages,
                o->mode == MODE_FILL ? "confirmed" : "consumed", (unsigned long long)t.blocked);
        sleep_s(0.001);
    }
}

static struct result difference(const struct totals *a, const struct totals *b) {
    return (struct result){
        .seconds = (double)(b->at_ns - a->at_ns) / 1e9,
        .generator_cpu_s = b->cpu_s - a->cpu_s,
        .published = b->published - a->published,
        .confirmed = b->confirmed - a->confirmed,
        .consumed = b->consumed - a->consumed,
        .nacked = b->nacked - a->nacked,
        .blocked = b->blocked,
    };
}

// The measured part: a stretch of time in a flow, a number of messages otherwise.
static struct result measure(struct run *run, struct crew *producers, struct crew *consumers) {
    const struct options *o = run->options;
    if (o->mode == MODE_FLOW) sleep_s(o->warm_s);
    atomic_store(&run->phase, PHASE_MEASURE);
    report_event("measuring");
    struct totals before = sample(producers, consumers);
    if (o->mode == MODE_FLOW) {
        sleep_until_interrupt(o->measure_s);
    } else {
        // These count from the first message: the workers started a moment ago.
        before = (struct totals){.cpu_s = before.cpu_s, .at_ns = before.at_ns};
        await_messages(o, producers, consumers);
    }
    struct totals after = sample(producers, consumers);
    report_event("measured");
    return difference(&before, &after);
}

void run_traffic(const struct options *o) {
    struct run run = {.options = o};
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    if (o->mode == MODE_FLOW) sigaction(SIGINT, &action, NULL);
    struct conn *control = conn_dial(o, &o->endpoints, 0);
    if (o->mode != MODE_DRAIN) {
        declare_queues(control, o, SETUP_OUTSTANDING, ALL_QUEUES);
        declare_exchange(control, o);
    }
    struct crew consumers = crew_new(&run, o->mode == MODE_FILL ? 0 : o->consumers);
    struct crew producers = crew_new(&run, o->mode == MODE_DRAIN ? 0 : o->producers);
    unsigned threads = (unsigned)(consumers.count + producers.count);
    pthread_barrier_init(&run.connected, NULL, threads + 1);
    uint64_t start_ns = now_ns();
    crew_start(&consumers, consumer_thread);
    crew_start(&producers, producer_thread);
    pthread_barrier_wait(&run.connected);
    double connect_s = (double)(now_ns() - start_ns) / 1e9;
    struct result result = measure(&run, &producers, &consumers);
    atomic_store(&run.phase, PHASE_STOP);
    struct histogram confirm = {0}, deliver = {0};
    crew_join(&producers, &confirm);
    crew_join(&consumers, &deliver);
    result.published_in_all = sample(&producers, &consumers).published;
    if (!o->keep) {
        delete_exchange(control, o);
        delete_queues(control, o, SETUP_OUTSTANDING, ALL_QUEUES);
    }
    result.connect_s = connect_s;
    result.deliver = &deliver;
    result.confirm = &confirm;
    result.broker_version = control->version;
    report_result(o, &result);
    conn_close(control);
    free(producers.workers);
    free(consumers.workers);
}

// One connection's part in declaring or deleting the queues, on a thread of its own.
struct declarer {
    const struct options *o;
    struct conn *c;
    struct share share;
    pthread_t thread;
};

static void *declare_share(void *argument) {
    struct declarer *d = argument;
    int outstanding = d->o->window ? d->o->window : 1;
    if (d->o->mode == MODE_DECLARE)
        declare_queues(d->c, d->o, outstanding, d->share);
    else
        delete_queues(d->c, d->o, outstanding, d->share);
    return NULL;
}

void run_queues(const struct options *o) {
    struct declarer *all = allocate((size_t)o->producers, sizeof *all);
    for (int i = 0; i < o->producers; i++)
        all[i] = (struct declarer){o, conn_dial(o, &o->endpoints, i), {i, o->producers}, 0};
    report_event("measuring");
    double cpu_s = own_cpu_s();
    uint64_t start_ns = now_ns();
    for (int i = 0; i < o->producers; i++)
        if (pthread_create(&all[i].thread, NULL, declare_share, &all[i])) die("no more threads");
    for (int i = 0; i < o->producers; i++) pthread_join(all[i].thread, NULL);
    struct result result = {
        .seconds = (double)(now_ns() - start_ns) / 1e9,
        .generator_cpu_s = own_cpu_s() - cpu_s,
        .declared = (uint64_t)o->queues,
        .broker_version = all[0].c->version,
    };
    report_event("measured");
    if (o->mode == MODE_DECLARE && !o->keep)
        delete_queues(all[0].c, o, SETUP_OUTSTANDING, ALL_QUEUES);
    report_result(o, &result);
    for (int i = 0; i < o->producers; i++) conn_close(all[i].c);
    free(all);
}

void run_count(const struct options *o) {
    struct conn *c = conn_dial(o, &o->endpoints, 0);
    struct result result = {.ready = count_ready(c, o), .broker_version = c->version};
    report_result(o, &result);
    conn_close(c);
}

void run_connections(const struct options *o) {
    struct conn **open = allocate((size_t)o->producers, sizeof *open);
    uint64_t start_ns = now_ns();
    double cpu_s = own_cpu_s();
    for (int i = 0; i < o->producers; i++) open[i] = conn_dial(o, &o->endpoints, i);
    struct result result = {.connect_s = (double)(now_ns() - start_ns) / 1e9};
    result.generator_cpu_s = own_cpu_s() - cpu_s;
    // What is measured from outside is the cost of holding them.
    report_event("measuring");
    sleep_s(o->measure_s);
    report_event("measured");
    result.seconds = o->measure_s;
    result.broker_version = open[0]->version;
    report_result(o, &result);
    for (int i = 0; i < o->producers; i++) conn_close(open[i]);
    free(open);
}
