/* Syncs that take as long as on a network disk: preloaded before the C library's own. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void wait_for_the_disk(void) {
    struct timespec left = {0, 2 * 1000 * 1000};
    while (nanosleep(&left, &left) != 0) {
    }
}

int fsync(int file) {
    wait_for_the_disk();
    return (int)syscall(SYS_fsync, file);
}

int fdatasync(int file) {
    wait_for_the_disk();
    return (int)syscall(SYS_fdatasync, file);
}
