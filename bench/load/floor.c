// The least that a confirm takes here: a server that appends what it reads, syncs it and answers.
//
// Client and server are two processes on loopback, as generator and broker are, and the client has
// the rhythm of a paced flow. So it has in it what a bare sync leaves out: both sides have to be
// woken, and whatever falls due while one sync is late waits for it.
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "journal.h"
#include "modes.h"
#include "report.h"
#include "schedule.h"
#include "worker.h"

// One read of the server, and one write of the client unless a single message is larger.
enum { READ_BYTES = 64 * 1024 };
// A server that has not answered for this long never will.
enum { FLOOR_STALL_S = 60 };

struct client {
    const struct options *options;
    int fd, timer;
    char *bytes;
    uint64_t capacity;  // messages that one write carries
    uint64_t start_ns, sent, answered;
    // How many messages are on disk, as the server says it: may arrive in pieces.
    union {
        uint64_t messages;
        char bytes[sizeof(uint64_t)];
    } answer;
    size_t answer_bytes;
    struct histogram *latency;
};

static void send_all(int fd, const void *bytes, size_t n) {
    for (size_t sent = 0; sent < n;) {
        ssize_t k = send(fd, (const char *)bytes + sent, n - sent, MSG_NOSIGNAL);
        if (k >= 0) sent += (size_t)k;
        else if (errno != EINTR) die("sending over loopback failed: %s", strerror(errno));
    }
}

static ssize_t receive(int fd, void *bytes, size_t n) {
    ssize_t k;
    while ((k = recv(fd, bytes, n, 0)) < 0 && errno == EINTR) continue;
    if (k < 0) die("receiving over loopback failed: %s", strerror(errno));
    return k;
}

// Both ends of a TCP connection, made before there are two processes: nobody waits for the other.
static void open_pair(int *near, int *far) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    *near = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || *near < 0 || bind(listener, (struct sockaddr *)&at, sizeof at) ||
        listen(listener, 1) || getsockname(listener, (struct sockaddr *)&at, &length) ||
        connect(*near, (struct sockaddr *)&at, sizeof at) ||
        (*far = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0 ||
        setsockopt(*near, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) ||
        setsockopt(*far, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on))
        die("cannot connect over loopback: %s", strerror(errno));
    close(listener);
}

// The whole server. Every read is one sync, whatever has piled up: no broker groups better.
static void serve(int fd, int journal, uint64_t size_bytes) {
    char *bytes = allocate(1, READ_BYTES);
    uint64_t kept_bytes = 0, answered = 0;
    for (ssize_t n; (n = receive(fd, bytes, READ_BYTES)) > 0;) {
        journal_append(journal, bytes, (size_t)n);
        kept_bytes += (uint64_t)n;
        uint64_t messages = kept_bytes / size_bytes;
        if (messages == answered) continue;
        send_all(fd, &messages, sizeof messages);
        answered = messages;
    }
    free(bytes);
}

// The server gets its own process, and nothing of the client's: it ends when the client does.
static pid_t start_server(int near, int far, int journal, uint64_t size_bytes) {
    pid_t pid = fork();
    if (pid < 0) die("cannot start the server: %s", strerror(errno));
    if (pid) return pid;
    close(near);
    serve(far, journal, size_bytes);
    _exit(0);
}

static void send_due(struct client *c) {
    const struct options *o = c->options;
    uint64_t now = now_ns(), left = (uint64_t)o->messages - c->sent, n;
    do {
        uint64_t most = left < c->capacity ? left : c->capacity;
        n = 0;
        while (n < most && schedule_due_ns(o, c->start_ns, c->sent + n) <= now) n++;
        send_all(c->fd, c->bytes, n * (size_t)o->size_bytes);
        c->sent += n;
        left -= n;
    } while (n == c->capacity);
}

static void take_answer(struct client *c, uint64_t now) {
    if (c->answer.messages > c->sent) die("the server answered a message never sent");
    for (; c->answered < c->answer.messages; c->answered++) {
        uint64_t due_ns = schedule_due_ns(c->options, c->start_ns, c->answered);
        histogram_add(c->latency, now > due_ns ? now - due_ns : 0, 1);
    }
}

static void read_answers(struct client *c) {
    char bytes[4096];
    ssize_t n = receive(c->fd, bytes, sizeof bytes);
    if (!n) die("the server ended early");
    uint64_t now = now_ns();
    for (ssize_t i = 0; i < n; i++) {
        c->answer.bytes[c->answer_bytes++] = bytes[i];
        if (c->answer_bytes < sizeof c->answer) continue;
        c->answer_bytes = 0;
        take_answer(c, now);
    }
}

static void drive(struct client *c) {
    uint64_t moved_ns = now_ns();
    while (c->answered < (uint64_t)c->options->messages) {
        struct pollfd ready[] = {{c->fd, POLLIN, 0}, {c->timer, POLLIN, 0}};
        if (poll(ready, 2, 1000) < 0 && errno != EINTR) die("poll failed: %s", strerror(errno));
        uint64_t ticks, answered = c->answered;
        if (ready[0].revents) read_answers(c);
        if (ready[1].revents && read(c->timer, &ticks, sizeof ticks) > 0) send_due(c);
        // Nothing is owed while nothing has fallen due.
        if (c->answered != answered || c->answered == c->sent) moved_ns = now_ns();
        else if (now_ns() - moved_ns > FLOOR_STALL_S * 1000000000ull)
            die("no answer for %d s", FLOOR_STALL_S);
    }
}

void run_floor(const struct options *o) {
    uint64_t size_bytes = (uint64_t)o->size_bytes;
    struct client c = {.options = o, .latency = allocate(1, sizeof *c.latency)};
    c.capacity = READ_BYTES / size_bytes ? READ_BYTES / size_bytes : 1;
    c.bytes = allocate(c.capacity, size_bytes);
    memset(c.bytes, 'x', c.capacity * size_bytes);
    int far, journal = journal_create(o);
    open_pair(&c.fd, &far);
    pid_t server = start_server(c.fd, far, journal, size_bytes);
    close(far);
    prctl(PR_SET_TIMERSLACK, 1000);
    c.start_ns = now_ns();
    c.timer = schedule_timer(o);
    drive(&c);
    struct result result = {.seconds = (double)(now_ns() - c.start_ns) / 1e9,
                            .published = c.sent,
                            .published_in_all = c.sent,
                            .confirmed = c.answered,
                            .floor = c.latency};
    close(c.fd);
    waitpid(server, NULL, 0);
    report_result(o, &result);
    close(c.timer);
    close(journal);
    unlink(o->file);
    free(c.latency);
    free(c.bytes);
}
