// amqpload: an AMQP 0-9-1 load generator that costs far less CPU than any broker it loads.
//
// How: few threads, many connections each; publishes encoded once and sent in large writes; replies
// parsed in place; one look at the clock a read. See options.c for what it can do.
#include <signal.h>
#include <sys/resource.h>

#include "modes.h"

// Thousands of connections need more descriptors than the usual soft limit gives.
static void raise_descriptor_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit)) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

int main(int argc, char **argv) {
    struct options options;
    options_parse(&options, argc, argv);
    signal(SIGPIPE, SIG_IGN);
    raise_descriptor_limit();
    switch (options.mode) {
        case MODE_DECLARE:
        case MODE_DELETE: run_queues(&options); break;
        case MODE_CONNECT: run_connections(&options); break;
        case MODE_COUNT: run_count(&options); break;
        case MODE_SYNC: run_sync(&options); break;
        case MODE_FLOOR: run_floor(&options); break;
        default: run_traffic(&options);
    }
    return 0;
}
