/* Preloaded into a node: its disk and its clock go bad when the control file says so.
 *
 * NODE_SHIM_CONTROL names a file that holds a struct control; it is mapped, so a change counts from
 * the next call on. Only regular files (and directories, for syncs) beyond the standard streams are
 * touched: sockets and the node's own output are not the disk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct control {
    int32_t sync_error;    /* errno of every sync, 0: none */
    int32_t sync_delay_ms; /* that every sync takes first */
    int32_t write_error;   /* errno of every write that is left no room */
    int32_t write_bytes;   /* what is written before that error comes */
    int32_t is_full;       /* whether the file system says that it has no room */
    int32_t clock_offset_ms;
};

static volatile struct control *control;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("NODE_SHIM_CONTROL");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *found;
    if (fd < 0)
        return;
    found = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (found != MAP_FAILED)
        control = found;
}

static int is_on_disk(int fd)
{
    struct stat found;
    return fd > 2 && fstat(fd, &found) == 0 && (S_ISREG(found.st_mode) || S_ISDIR(found.st_mode));
}

/* 0, or the error that a sync must fail with. */
static int sync_fault(int fd)
{
    if (!control || !(control->sync_delay_ms || control->sync_error) || !is_on_disk(fd))
        return 0;
    if (control->sync_delay_ms)
        usleep((useconds_t)control->sync_delay_ms * 1000);
    return control->sync_error;
}

int fdatasync(int fd)
{
    static int (*real)(int);
    int fault = sync_fault(fd);
    if (!real)
        real = REAL(fdatasync);
    if (fault) {
        errno = fault;
        return -1;
    }
    return real(fd);
}

int fsync(int fd)
{
    static int (*real)(int);
    int fault = sync_fault(fd);
    if (!real)
        real = REAL(fsync);
    if (fault) {
        errno = fault;
        return -1;
    }
    return real(fd);
}

/* How much of a write may be done; -1: none, and errno says why. A full disk takes what fits of one
 * write, and refuses the next. */
static ssize_t room(int fd, size_t wanted)
{
    int32_t left;
    if (!control || !control->write_error || !is_on_disk(fd))
        return (ssize_t)wanted;
    left = control->write_bytes;
    if (left <= 0) {
        errno = control->write_error;
        return -1;
    }
    if ((size_t)left > wanted)
        left = (int32_t)wanted;
    control->write_bytes -= left;
    return left;
}

ssize_t write(int fd, const void *data, size_t wanted)
{
    static ssize_t (*real)(int, const void *, size_t);
    ssize_t most = room(fd, wanted);
    if (!real)
        real = REAL(write);
    return most < 0 ? -1 : real(fd, data, (size_t)most);
}

ssize_t pwrite(int fd, const void *data, size_t wanted, off_t at)
{
    static ssize_t (*real)(int, const void *, size_t, off_t);
    ssize_t most = room(fd, wanted);
    if (!real)
        real = REAL(pwrite);
    return most < 0 ? -1 : real(fd, data, (size_t)most, at);
}

ssize_t pwrite64(int, const void *, size_t, off_t) __attribute__((alias("pwrite")));

ssize_t writev(int fd, const struct iovec *pieces, int count)
{
    static ssize_t (*real)(int, const struct iovec *, int);
    ssize_t most = count > 0 ? room(fd, pieces[0].iov_len) : 0;
    if (!real)
        real = REAL(writev);
    if (most < 0)
        return -1;
    if (count > 0 && control && control->write_error && is_on_disk(fd))
        return write(fd, pieces[0].iov_base, (size_t)most);
    return real(fd, pieces, count);
}

int fallocate(int fd, int mode, off_t at, off_t length)
{
    static int (*real)(int, int, off_t, off_t);
    if (!real)
        real = REAL(fallocate);
    if (control && control->write_error && is_on_disk(fd)) {
        errno = control->write_error;
        return -1;
    }
    return real(fd, mode, at, length);
}

int fallocate64(int, int, off_t, off_t) __attribute__((alias("fallocate")));

static int no_room(int result, struct statvfs *found)
{
    if (result == 0 && control && control->is_full)
        found->f_bfree = found->f_bavail = 0;
    return result;
}

int statvfs(const char *path, struct statvfs *found)
{
    static int (*real)(const char *, struct statvfs *);
    if (!real)
        real = REAL(statvfs);
    return no_room(real(path, found), found);
}

int fstatvfs(int fd, struct statvfs *found)
{
    static int (*real)(int, struct statvfs *);
    if (!real)
        real = REAL(fstatvfs);
    return no_room(real(fd, found), found);
}

/* The same on 64 bits, by the names that programs with large files call. */
int statvfs64(const char *, struct statvfs64 *) __attribute__((alias("statvfs")));
int fstatvfs64(int, struct statvfs64 *) __attribute__((alias("fstatvfs")));

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*real)(clockid_t, struct timespec *);
    int result;
    if (!real)
        real = REAL(clock_gettime);
    result = real(clock, now);
    if (result == 0 && clock == CLOCK_REALTIME && control && control->clock_offset_ms) {
        int64_t ns = now->tv_nsec + (int64_t)control->clock_offset_ms % 1000 * 1000000;
        now->tv_sec += control->clock_offset_ms / 1000;
        if (ns >= 1000000000) {
            ns -= 1000000000;
            now->tv_sec++;
        } else if (ns < 0) {
            ns += 1000000000;
            now->tv_sec--;
        }
        now->tv_nsec = (long)ns;
    }
    return result;
}

time_t time(time_t *into)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into)
        *into = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict into, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    into->tv_sec = now.tv_sec;
    into->tv_usec = now.tv_nsec / 1000;
    return 0;
}
