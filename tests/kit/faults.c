/* Makes the writes of a program fail on demand: preloaded (LD_PRELOAD) by tests of full and failing disks.
 *
 * FAULT_MARK     only files whose path holds this text fail; those that end with ".log" never do
 * FAULT_CONTROL  while FAULT_CONTROL.full exists, writes fail with ENOSPC;
 *                while FAULT_CONTROL.io exists, writes and syncs fail with EIO
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int is_on(const char *ending)
{
    char path[4096];
    const char *control = getenv("FAULT_CONTROL");

    if (!control)
        return 0;
    snprintf(path, sizeof path, "%s.%s", control, ending);
    return access(path, F_OK) == 0;
}

/* The error that an operation on this file fails with; 0: none. */
static int fault(int fd, int syncs)
{
    char link[64], path[4096];
    const char *mark = getenv("FAULT_MARK");
    int error = is_on("io") ? EIO : !syncs && is_on("full") ? ENOSPC : 0;
    ssize_t length;

    if (!error || !mark)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    if (length < 4)
        return 0;
    path[length] = 0;
    if (!strstr(path, mark) || !strcmp(path + length - 4, ".log"))
        return 0;
    return error;
}

#define FAILING(type, name, syncs, parameters, arguments)                \
    type name parameters                                                 \
    {                                                                    \
        static type(*next) parameters;                                   \
        int before = errno, error = fault(fd, syncs);                    \
        errno = error ? error : before;                                  \
        if (error)                                                       \
            return -1;                                                   \
        if (!next)                                                       \
            next = (type(*) parameters)dlsym(RTLD_NEXT, #name);          \
        return next arguments;                                           \
    }

FAILING(ssize_t, write, 0, (int fd, const void *buf, size_t n), (fd, buf, n))
FAILING(ssize_t, writev, 0, (int fd, const struct iovec *v, int n), (fd, v, n))
FAILING(ssize_t, pwrite, 0, (int fd, const void *buf, size_t n, off_t at), (fd, buf, n, at))
FAILING(ssize_t, pwrite64, 0, (int fd, const void *buf, size_t n, off64_t at), (fd, buf, n, at))
FAILING(ssize_t, pwritev, 0, (int fd, const struct iovec *v, int n, off_t at), (fd, v, n, at))
FAILING(ssize_t, pwritev64, 0, (int fd, const struct iovec *v, int n, off64_t at), (fd, v, n, at))
FAILING(int, fsync, 1, (int fd), (fd))
FAILING(int, fdatasync, 1, (int fd), (fd))
