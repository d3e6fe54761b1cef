// What the command line asks for; read-only once the threads run.
#ifndef AMQPLOAD_OPTIONS_H
#define AMQPLOAD_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

enum mode {
    MODE_FLOW, MODE_FILL, MODE_DRAIN, MODE_DECLARE, MODE_DELETE, MODE_CONNECT, MODE_COUNT,
    MODE_SYNC, MODE_FLOOR
};
enum key_choice { KEYS_FIXED, KEYS_CYCLE, KEYS_RANDOM };

enum { ENDPOINTS_MAX = 16, HOST_CHARS_MAX = 64, NAME_CHARS_MAX = 96, PREFIX_CHARS_MAX = 64 };

struct endpoint {
    char host[HOST_CHARS_MAX];
    int port;
};

// Nodes that connections are dealt to in turn.
struct endpoints {
    struct endpoint nodes[ENDPOINTS_MAX];
    int count;
};

struct options {
    struct endpoints endpoints;  // everything that is neither producer nor consumer
    struct endpoints producer_endpoints, consumer_endpoints;
    const char *user, *password, *vhost, *prefix, *file;
    enum mode mode;
    int producers, consumers, threads;
    int queues, bindings;
    const char *exchange_type;  // NULL: the default exchange
    enum key_choice keys;
    int size_bytes;
    bool persistent, durable, auto_ack, keep;
    int window, prefetch, ack_every;
    long rate_per_s;
    int tick_us;
    long messages;
    double warm_s, measure_s;
};

extern const char *const MODE_NAMES[];

// Reads argv into `o`; ends the process with a readable message when something is wrong.
void options_parse(struct options *o, int argc, char **argv);

// How many different routing keys (or header values) a publisher chooses from.
int options_key_count(const struct options *o);

#endif
