#define _GNU_SOURCE
#include "journal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"

int journal_create(const struct options *o) {
    if (o->size_bytes && o->messages > JOURNAL_BYTES / o->size_bytes)
        die("--messages of --size would outgrow the %d MiB file", JOURNAL_BYTES >> 20);
    int fd = open(o->file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) die("cannot create %s: %s", o->file, strerror(errno));
    if (fallocate(fd, 0, 0, JOURNAL_BYTES) || fsync(fd))
        die("cannot allocate %s: %s", o->file, strerror(errno));
    return fd;
}

void journal_append(int fd, const char *bytes, size_t n) {
    if (write(fd, bytes, n) != (ssize_t)n) die("cannot append: %s", strerror(errno));
    if (fdatasync(fd)) die("cannot sync: %s", strerror(errno));
}
