/* Preloaded into a process: every fdatasync first takes SHIM_DELAY_MS, and from call SHIM_FAIL_AT on
 * it fails with EIO. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int calls;

int fdatasync(int fd)
{
    static int (*real)(int);
    const char *delay = getenv("SHIM_DELAY_MS"), *fail = getenv("SHIM_FAIL_AT");
    if (!real)
        real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    calls++;
    if (delay)
        usleep((useconds_t)atoi(delay) * 1000);
    if (fail && calls >= atoi(fail)) {
        errno = EIO;
        return -1;
    }
    return real(fd);
}

int shim_calls(void)
{
    return calls;
}
