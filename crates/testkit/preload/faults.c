/* Faults of a disk, preloaded into a process: one planned call fails, comes late or is cut short.
 *
 * PORTCULLIS_FAULT=CALL:N:ACTION[:VALUE], where CALL is `sync` (fsync and fdatasync together) or `write` (pwrite), N counts
 * from 1 over all threads (0: never), and ACTION is one of
 *   fail:ERRNO   the call does nothing and fails, this once
 *   stay:ERRNO   the same, and so does every later call
 *   torn:ERRNO   a write leaves half of its bytes and fails
 *   short        a write leaves half of its bytes and says so
 *   late:MS      the call comes so much later
 * PORTCULLIS_FAULT_FILES is a text that the names of the files have to contain whose calls are counted.
 * PORTCULLIS_FAULT_LOG names a file that gets one line a call: `sync 3`, or `fired sync 3` where the plan struck.
 *
 * PORTCULLIS_FAULT_DISK names a folder that holds, of each file that is written here, what a loss of power would leave: a
 * sync that succeeds takes over what was written since the last one, and one that fails forgets it, as Linux does. Sizes and
 * names reach it at once. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum action { NOTHING, FAIL, STAY, TORN, SHORT, LATE };

/* A range that was written and not synced. */
struct dirty {
    char path[PATH_MAX];
    off64_t at;
    size_t size;
    struct dirty *next;
};

static atomic_long syncs, writes;
static struct dirty *dirty;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(type, name, ...) ((type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))

static void note(const char *call, long n, int fired) {
    const char *path = getenv("PORTCULLIS_FAULT_LOG");
    char line[64];
    int log, size;
    if (!path) return;
    log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log < 0) return;
    size = snprintf(line, sizeof line, "%s%s %ld\n", fired ? "fired " : "", call, n);
    if (write(log, line, (size_t)size) != size) abort();
    close(log);
}

static int path_of(int fd, char *path) {
    char link[64];
    ssize_t size;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    size = readlink(link, path, PATH_MAX - 1);
    path[size < 0 ? 0 : size] = 0;
    return size > 0;
}

/* What the plan has for the next call on `fd`. */
static enum action planned(const char *call, atomic_long *count, int fd, long *value) {
    static const char *names[] = {"", "fail", "stay", "torn", "short", "late"};
    const char *plan = getenv("PORTCULLIS_FAULT");
    char of[16], what[16];
    const char *files = getenv("PORTCULLIS_FAULT_FILES");
    char path[PATH_MAX], *name;
    long n, at = 0;
    enum action action = NOTHING;
    *value = 0;
    if (!path_of(fd, path) || !(name = strrchr(path, '/')) || (files && !strstr(name, files))) return NOTHING;
    n = atomic_fetch_add(count, 1) + 1;
    if (plan && sscanf(plan, "%15[a-z]:%ld:%15[a-z]:%ld", of, &at, what, value) >= 3 && !strcmp(of, call))
        for (int i = FAIL; i <= LATE; i++)
            if (!strcmp(what, names[i])) action = (enum action)i;
    if (n != at && !(action == STAY && at && n > at)) action = NOTHING;
    note(call, n, action != NOTHING);
    return action;
}

static void late(long ms) {
    struct timespec wait = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&wait, NULL);
}

/* The file that a loss of power would leave of `path`; 0 when nobody asked for it. */
static int left(const char *path, char *name) {
    const char *folder = getenv("PORTCULLIS_FAULT_DISK");
    const char *file = strrchr(path, '/');
    return folder && file && snprintf(name, PATH_MAX, "%s%s", folder, file) < PATH_MAX;
}

static void wrote(int fd, off64_t at, ssize_t size) {
    struct dirty *range;
    if (size <= 0 || !getenv("PORTCULLIS_FAULT_DISK")) return;
    range = malloc(sizeof *range);
    if (!range) abort();
    if (!path_of(fd, range->path)) { free(range); return; }
    range->at = at;
    range->size = (size_t)size;
    pthread_mutex_lock(&lock);
    /* In the order of writing, so that the later one wins. */
    struct dirty **end = &dirty;
    while (*end) end = &(*end)->next;
    range->next = NULL;
    *end = range;
    pthread_mutex_unlock(&lock);
}

/* Forgets what was written to `path`, and keeps it on the disk first when it was synced. */
static void settle(const char *path, int fd, int synced) {
    char name[PATH_MAX];
    int disk = synced && left(path, name) ? open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;
    pthread_mutex_lock(&lock);
    for (struct dirty **at = &dirty; *at;) {
        struct dirty *range = *at;
        if (strcmp(range->path, path)) { at = &range->next; continue; }
        if (disk >= 0) {
            char *bytes = malloc(range->size);
            ssize_t size = bytes ? pread64(fd, bytes, range->size, range->at) : -1;
            if (size > 0 && REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t)(disk, bytes, (size_t)size, range->at) != size) abort();
            free(bytes);
        }
        *at = range->next;
        free(range);
    }
    pthread_mutex_unlock(&lock);
    if (disk >= 0) close(disk);
}

static int synced(const char *call, int fd) {
    char path[PATH_MAX];
    long value;
    int known = getenv("PORTCULLIS_FAULT_DISK") && path_of(fd, path);
    switch (planned("sync", &syncs, fd, &value)) {
    case FAIL:
    case STAY:
        if (known) settle(path, fd, 0);
        errno = (int)value;
        return -1;
    case LATE: late(value); break;
    default: break;
    }
    if (REAL(int, call, int)(fd)) return -1;
    if (known) settle(path, fd, 1);
    return 0;
}

int fsync(int fd) { return synced("fsync", fd); }
int fdatasync(int fd) { return synced("fdatasync", fd); }

static ssize_t written(const char *call, int fd, const void *bytes, size_t size, off64_t at) {
    long value;
    ssize_t (*real)(int, const void *, size_t, off64_t) = REAL(ssize_t, call, int, const void *, size_t, off64_t);
    enum action action = planned("write", &writes, fd, &value);
    if (action == FAIL || action == STAY) { errno = (int)value; return -1; }
    if (action == LATE) late(value);
    if (action == TORN || action == SHORT) size = (size + 1) / 2;
    ssize_t done = real(fd, bytes, size, at);
    wrote(fd, at, done);
    if (action == TORN && done >= 0) { errno = (int)value; return -1; }
    return done;
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at) { return written("pwrite", fd, bytes, size, at); }
ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at) { return written("pwrite64", fd, bytes, size, at); }

static int cut(const char *call, int fd, off64_t size) {
    char path[PATH_MAX], name[PATH_MAX];
    if (REAL(int, call, int, off64_t)(fd, size)) return -1;
    if (path_of(fd, path) && left(path, name)) {
        int disk = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (disk < 0 || REAL(int, "ftruncate64", int, off64_t)(disk, size)) abort();
        close(disk);
    }
    return 0;
}

int ftruncate(int fd, off_t size) { return cut("ftruncate", fd, size); }
int ftruncate64(int fd, off64_t size) { return cut("ftruncate64", fd, size); }

int unlink(const char *path) {
    char name[PATH_MAX];
    int gone = REAL(int, "unlink", const char *)(path);
    if (!gone && left(path, name)) {
        REAL(int, "unlink", const char *)(name);
        settle(path, -1, 0);
    }
    return gone;
}
