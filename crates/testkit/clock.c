/* A wall clock with an offset, for one process: preloaded into servers by Clock (src/clock.rs).
 *
 * The file named by REDISLOCK_CLOCK holds the offset in nanoseconds as a native 64-bit integer. It is mapped, so that a
 * test can step the clock of a running server. Only the wall clock is shifted; monotonic clocks are the real ones.
 *
 * Why not libfaketime: its start-up calls an allocator that may ask for the time (jemalloc in Debian's server), and the
 * two wait for one another for ever. Nothing here allocates. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static const volatile int64_t *offset;

__attribute__((constructor)) static void map_offset(void) {
    const char *file = getenv("REDISLOCK_CLOCK");
    int fd = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (page != MAP_FAILED) offset = page;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (failed || !offset || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return failed;
    int64_t shifted = now->tv_sec * SECOND + now->tv_nsec + *offset;
    now->tv_sec = shifted / SECOND;
    now->tv_nsec = shifted % SECOND;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec fine;
    int failed = clock_gettime(CLOCK_REALTIME, &fine);
    now->tv_sec = fine.tv_sec;
    now->tv_usec = fine.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *now) {
    struct timespec fine;
    clock_gettime(CLOCK_REALTIME, &fine);
    if (now) *now = fine.tv_sec;
    return fine.tv_sec;
}

/* Valkey loads modules so that they find libc before this library, and would read the real clock. */
void *dlopen(const char *file, int flags) {
    void *(*next)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    return next ? next(file, flags & ~RTLD_DEEPBIND) : NULL;
}
