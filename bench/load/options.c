#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"

const char *const MODE_NAMES[] = {"flow",    "fill",  "drain", "declare", "delete",
                                  "connect", "count", "sync",  "floor",   NULL};
static const char *const KEY_NAMES[] = {"fixed", "cycle", "random", NULL};

// Names carry six digits, so that every message of a run has the same length.
enum { INDEX_MAX = 999999 };

static const char USAGE[] =
    "usage: amqpload [options]\n"
    "  --mode flow      publish and consume for --seconds (default)\n"
    "         fill      publish --messages with no consumer, wait for the confirms\n"
    "         drain     consume --messages\n"
    "         declare   declare --queues queues, --window outstanding at a time\n"
    "         delete    delete them\n"
    "         connect   open --producers connections, hold them for --seconds\n"
    "         count     how many messages the first queue has ready\n"
    "         sync      no broker: append --messages of --size to --file, each with fdatasync\n"
    "         floor     no broker: send them at --rate to a server that does only that and answers\n"
    "  --endpoints HOST:PORT[,...]   IPv4 addresses, taken in turn (127.0.0.1:5672)\n"
    "  --producer-endpoints LIST     of the publishing connections, if not the same\n"
    "  --consumer-endpoints LIST     of the consuming ones; the first of --endpoints declares\n"
    "  --user U --password P --vhost V --prefix NAME\n"
    "  --producers N --consumers N   connections of each kind (1)\n"
    "  --threads N                   threads of each kind at most (2)\n"
    "  --queues N                    queues; consumers share them evenly (1)\n"
    "  --exchange TYPE               direct, fanout, topic or headers; without: default exchange\n"
    "  --bindings N                  bindings, spread over the queues (one a queue)\n"
    "  --keys fixed|cycle|random     which binding each message is for (fixed)\n"
    "  --size BYTES                  of the body (200); latencies need 8 or more\n"
    "  --persistent --transient      delivery mode 2; queues that are not durable\n"
    "  --window N                    publisher confirms, at most N unconfirmed a connection\n"
    "  --auto-ack                    or: --prefetch N (500) --ack-every N (100)\n"
    "  --rate N                      messages a second over all; latency from the due time\n"
    "  --tick-us N                   messages of a --rate fall due together this often (1000)\n"
    "  --messages N                  for fill, drain, sync and floor\n"
    "  --file PATH                   for sync and floor; must not exist, removed afterwards\n"
    "  --warm S --seconds S          before and during measuring (1, 5); SIGINT ends a flow early\n"
    "  --keep                        leave the queues and the exchange\n"
    "One JSON object a line on stdout: measuring, measured, result.\n";

static long number(const char *name, const char *text, long low, long high) {
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < low || value > high)
        die("--%s takes a whole number from %ld to %ld, not '%s'", name, low, high, text);
    return value;
}

static double duration(const char *name, const char *text) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= 0 && value <= 86400))
        die("--%s takes seconds from 0 to 86400, not '%s'", name, text);
    return value;
}

static int one_of(const char *name, const char *text, const char *const *names) {
    for (int i = 0; names[i]; i++)
        if (!strcmp(names[i], text)) return i;
    die("--%s does not know '%s' (see amqpload --help)", name, text);
}

static void parse_endpoints(struct endpoints *to, const char *name, char *list) {
    to->count = 0;
    for (char *rest, *item = strtok_r(list, ",", &rest); item; item = strtok_r(NULL, ",", &rest)) {
        char *colon = strrchr(item, ':');
        if (!colon || colon == item || colon - item >= HOST_CHARS_MAX)
            die("--%s takes HOST:PORT[,...], not '%s'", name, item);
        if (to->count == ENDPOINTS_MAX) die("--%s takes %d at most", name, ENDPOINTS_MAX);
        struct endpoint *e = &to->nodes[to->count++];
        *colon = 0;
        strcpy(e->host, item);
        e->port = (int)number(name, colon + 1, 1, 65535);
    }
    if (!to->count) die("--%s names no endpoint", name);
}

static const struct option LONG_OPTIONS[] = {
    {"mode", 1, 0, 'm'},       {"endpoints", 1, 0, 'h'}, {"user", 1, 0, 'u'},
    {"password", 1, 0, 'P'},   {"vhost", 1, 0, 'V'},     {"prefix", 1, 0, 'Q'},
    {"producers", 1, 0, 'x'},  {"consumers", 1, 0, 'y'}, {"threads", 1, 0, 'j'},
    {"queues", 1, 0, 'N'},     {"exchange", 1, 0, 'e'},  {"bindings", 1, 0, 'b'},
    {"keys", 1, 0, 'K'},       {"size", 1, 0, 's'},      {"persistent", 0, 0, 'p'},
    {"transient", 0, 0, 'T'},  {"window", 1, 0, 'c'},    {"auto-ack", 0, 0, 'a'},
    {"prefetch", 1, 0, 'q'},   {"ack-every", 1, 0, 'k'}, {"rate", 1, 0, 'r'},
    {"tick-us", 1, 0, 'i'},    {"messages", 1, 0, 'n'},  {"warm", 1, 0, 'w'},
    {"seconds", 1, 0, 't'},    {"keep", 0, 0, 'l'},      {"file", 1, 0, 'f'},
    {"producer-endpoints", 1, 0, 'X'},  {"consumer-endpoints", 1, 0, 'Y'},
    {"help", 0, 0, 'H'},       {0, 0, 0, 0}};

static void apply_text(struct options *o, int letter, char *v) {
    switch (letter) {
        case 'h': parse_endpoints(&o->endpoints, "endpoints", v); break;
        case 'X': parse_endpoints(&o->producer_endpoints, "producer-endpoints", v); break;
        case 'Y': parse_endpoints(&o->consumer_endpoints, "consumer-endpoints", v); break;
        case 'u': o->user = v; break;
        case 'P': o->password = v; break;
        case 'V': o->vhost = v; break;
        case 'Q': o->prefix = v; break;
        case 'f': o->file = v; break;
        case 'e': o->exchange_type = v; break;
        case 'm': o->mode = (enum mode)one_of("mode", v, MODE_NAMES); break;
        case 'K': o->keys = (enum key_choice)one_of("keys", v, KEY_NAMES); break;
        case 'w': o->warm_s = duration("warm", v); break;
        case 't': o->measure_s = duration("seconds", v); break;
        case 'p': o->persistent = true; break;
        case 'T': o->durable = false; break;
        case 'a': o->auto_ack = true; break;
        case 'l': o->keep = true; break;
        case 'H': fputs(USAGE, stdout); exit(0);
        default: fputs(USAGE, stderr); exit(2);
    }
}

static bool apply_number(struct options *o, int letter, const char *v) {
    switch (letter) {
        case 'x': o->producers = (int)number("producers", v, 0, 100000); break;
        case 'y': o->consumers = (int)number("consumers", v, 0, 100000); break;
        case 'j': o->threads = (int)number("threads", v, 1, 64); break;
        case 'N': o->queues = (int)number("queues", v, 1, INDEX_MAX); break;
        case 'b': o->bindings = (int)number("bindings", v, 1, INDEX_MAX); break;
        case 's': o->size_bytes = (int)number("size", v, 0, 128 << 20); break;
        case 'c': o->window = (int)number("window", v, 0, 1 << 20); break;
        case 'q': o->prefetch = (int)number("prefetch", v, 0, 65535); break;
        case 'k': o->ack_every = (int)number("ack-every", v, 1, 65535); break;
        case 'r': o->rate_per_s = number("rate", v, 1, 100000000); break;
        case 'i': o->tick_us = (int)number("tick-us", v, 10, 1000000); break;
        case 'n': o->messages = number("messages", v, 1, LONG_MAX); break;
        default: return false;
    }
    return true;
}

// The floor has one client, whose messages the server tells apart by their size alone.
static void settle_floor(struct options *o) {
    if (!o->rate_per_s) die("--mode floor needs --rate");
    if (!o->size_bytes) die("--mode floor needs a --size");
    o->producers = 1;
}

// Settings that only make sense together, completed or refused.
static void settle(struct options *o) {
    if (!o->producer_endpoints.count) o->producer_endpoints = o->endpoints;
    if (!o->consumer_endpoints.count) o->consumer_endpoints = o->endpoints;
    if (strlen(o->user) + strlen(o->password) > 255) die("--user and --password are too long");
    if (strlen(o->vhost) > 255) die("--vhost is too long (255 bytes at most)");
    if (strlen(o->prefix) >= PREFIX_CHARS_MAX)
        die("--prefix is too long (%d characters at most)", PREFIX_CHARS_MAX - 1);
    if (o->exchange_type) {
        static const char *const types[] = {"direct", "fanout", "topic", "headers", NULL};
        one_of("exchange", o->exchange_type, types);
    }
    if (!o->bindings || (o->exchange_type && !strcmp(o->exchange_type, "fanout")))
        o->bindings = o->queues;
    // A consumer that waits for more deliveries than its prefetch allows would wait for ever.
    if (o->prefetch && o->ack_every > (o->prefetch + 1) / 2) o->ack_every = (o->prefetch + 1) / 2;
    if (o->mode == MODE_FILL && !o->window) o->window = 1000;
    bool journalled = o->mode == MODE_SYNC || o->mode == MODE_FLOOR;
    bool counted = o->mode == MODE_FILL || o->mode == MODE_DRAIN || journalled;
    if (counted && !o->messages)
        die("--mode %s needs --messages", MODE_NAMES[o->mode]);
    if (o->mode == MODE_FILL && !o->producers) die("--mode fill needs a producer");
    if (o->mode == MODE_DRAIN && !o->consumers) die("--mode drain needs a consumer");
    if (o->mode == MODE_CONNECT && !o->producers) die("--mode connect needs --producers");
    if (journalled && !o->file) die("--mode %s needs --file", MODE_NAMES[o->mode]);
    if (o->mode == MODE_FLOOR) settle_floor(o);
}

void options_parse(struct options *o, int argc, char **argv) {
    *o = (struct options){
        .endpoints = {.nodes = {{"127.0.0.1", 5672}}, .count = 1},
        .user = "guest", .password = "guest", .vhost = "/", .prefix = "load",
        .producers = 1, .consumers = 1, .threads = 2, .queues = 1,
        .size_bytes = 200, .durable = true, .prefetch = 500, .ack_every = 100,
        .tick_us = 1000, .warm_s = 1, .measure_s = 5,
    };
    int letter;
    while ((letter = getopt_long(argc, argv, "", LONG_OPTIONS, NULL)) != -1)
        if (!apply_number(o, letter, optarg)) apply_text(o, letter, optarg);
    if (optind < argc) die("'%s' is no option (see amqpload --help)", argv[optind]);
    settle(o);
}

int options_key_count(const struct options *o) {
    return o->exchange_type ? o->bindings : o->queues;
}
