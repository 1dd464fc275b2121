/* Starts a program, counts the calls by which it changes what lies in one folder, and kills it there with all that it
 * started.
 *
 * killer LOG FOLDER N before|after PROGRAM [ARGUMENT…]
 *
 * It traces the program, so that it sees system calls that do not go through the C library, too. Calls of all threads are
 * counted together, from 1; with N 0 nothing is killed. SIGKILL comes before the kernel does anything about the N-th call,
 * or when the kernel is done with it. LOG gets
 *   try N CALL PATH[<tab>PATH]   the kernel is about to do this; the second path is the new name
 *   did N RESULT                 what it answered: 0 or more, or an error below 0
 *   killed N
 * Fields are separated by a tab. It ends as the program does: with its code, 137 where it was killed, 125 where it could
 * not trace. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum form { FD, FD3, PATH, AT, TWO, AT_AT, LINK, AT_LINK, OPEN, OPENAT, OPENAT2 };

/* How a call names what it changes. */
static const struct { long nr; const char *name; enum form form; } calls[] = {
    {SYS_write, "write", FD}, {SYS_writev, "writev", FD}, {SYS_pwrite64, "pwrite", FD},
    {SYS_pwritev, "pwritev", FD}, {SYS_pwritev2, "pwritev2", FD}, {SYS_sendfile, "sendfile", FD},
    {SYS_copy_file_range, "copy_file_range", FD3}, {SYS_splice, "splice", FD3},
    {SYS_fsync, "fsync", FD}, {SYS_fdatasync, "fdatasync", FD}, {SYS_sync_file_range, "sync_file_range", FD},
    {SYS_ftruncate, "ftruncate", FD}, {SYS_fallocate, "fallocate", FD}, {SYS_fchmod, "fchmod", FD},
    {SYS_truncate, "truncate", PATH}, {SYS_fchmodat, "fchmodat", AT},
    {SYS_mkdirat, "mkdir", AT}, {SYS_unlinkat, "unlink", AT}, {SYS_renameat2, "rename", AT_AT},
    {SYS_linkat, "link", AT_AT}, {SYS_symlinkat, "symlink", AT_LINK},
    {SYS_openat, "create", OPENAT}, {SYS_openat2, "create", OPENAT2},
#ifdef SYS_renameat
    {SYS_renameat, "rename", AT_AT},
#endif
#ifdef SYS_open
    {SYS_open, "create", OPEN}, {SYS_creat, "create", PATH}, {SYS_chmod, "chmod", PATH},
    {SYS_mkdir, "mkdir", PATH}, {SYS_rmdir, "rmdir", PATH}, {SYS_unlink, "unlink", PATH},
    {SYS_rename, "rename", TWO}, {SYS_link, "link", TWO}, {SYS_symlink, "symlink", LINK},
#endif
};

/* What a thread is in the middle of. */
struct thread { pid_t tid; long number; };
static struct thread threads[4096];

static const char *folder;
static int logged;
static long made;

static struct thread *thread(pid_t tid) {
    struct thread *free = NULL;
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        if (threads[i].tid == tid) return &threads[i];
        if (!threads[i].tid && !free) free = &threads[i];
    }
    if (!free) exit(125);
    free->tid = tid;
    free->number = 0;
    return free;
}

/* Kills the program and whatever it started. */
static void kill_all(void) {
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++)
        if (threads[i].tid) kill(threads[i].tid, SIGKILL);
}

static void tell(const char *line) {
    size_t size = strlen(line);
    if (write(logged, line, size) != (ssize_t)size) exit(125);
}

static int path_of(pid_t tid, int fd, char *path) {
    char link[64];
    ssize_t size;
    if (fd == AT_FDCWD) snprintf(link, sizeof link, "/proc/%d/cwd", tid);
    else snprintf(link, sizeof link, "/proc/%d/fd/%d", tid, fd);
    size = readlink(link, path, PATH_MAX - 1);
    path[size < 0 ? 0 : size] = 0;
    return size > 0;
}

/* Text or bytes of the program; a text may end earlier, and is read page by page, since the next may not be there. */
static size_t peek(pid_t tid, uint64_t from, char *to, size_t size) {
    size_t got = 0;
    while (got < size) {
        size_t part = 4096 - (from + got) % 4096;
        if (part > size - got) part = size - got;
        struct iovec here = {to + got, part}, there = {(void *)(from + got), part};
        if (process_vm_readv(tid, &here, 1, &there, 1, 0) != (ssize_t)part) break;
        if (memchr(to + got, 0, part)) return got + part;
        got += part;
    }
    return got;
}

static int joined(pid_t tid, int at, uint64_t name, char *path) {
    char text[PATH_MAX] = "";
    peek(tid, name, text, sizeof text - 1);
    if (*text == '/') return snprintf(path, PATH_MAX, "%s", text) < PATH_MAX;
    if (!path_of(tid, at, path)) return 0;
    size_t size = strlen(path);
    return snprintf(path + size, PATH_MAX - size, "/%s", text) < (int)(PATH_MAX - size);
}

/* Whether a path lies in the folder. */
static int watched(const char *path) {
    size_t size = strlen(folder);
    return !strncmp(path, folder, size) && (path[size] == '/' || !path[size]);
}

/* An open that makes a file: asked to, and there is none. */
static int creates(uint64_t flags, const char *path) { return (flags & O_CREAT) && access(path, F_OK); }

/* The paths of a call, if it may change what lies in the folder. */
static int changes(pid_t tid, enum form form, const uint64_t *args, char *path, char *to) {
    struct open_how how = {0};
    *to = 0;
    switch (form) {
    case FD: return path_of(tid, (int)args[0], path) && watched(path);
    case FD3: return path_of(tid, (int)args[2], path) && watched(path);
    case PATH: return joined(tid, AT_FDCWD, args[0], path) && watched(path);
    case AT: return joined(tid, (int)args[0], args[1], path) && watched(path);
    case LINK: return joined(tid, AT_FDCWD, args[1], path) && watched(path);
    case AT_LINK: return joined(tid, (int)args[1], args[2], path) && watched(path);
    case TWO:
        return joined(tid, AT_FDCWD, args[0], path) && joined(tid, AT_FDCWD, args[1], to) && (watched(path) || watched(to));
    case AT_AT:
        return joined(tid, (int)args[0], args[1], path) && joined(tid, (int)args[2], args[3], to) && (watched(path) || watched(to));
    case OPEN: return joined(tid, AT_FDCWD, args[0], path) && watched(path) && creates(args[1], path);
    case OPENAT: return joined(tid, (int)args[0], args[1], path) && watched(path) && creates(args[2], path);
    case OPENAT2: {
        struct iovec here = {&how, sizeof how}, there = {(void *)args[2], sizeof how};
        if (process_vm_readv(tid, &here, 1, &there, 1, 0) < 8) return 0;
        return joined(tid, (int)args[0], args[1], path) && watched(path) && creates(how.flags, path);
    }
    }
    return 0;
}

/* A thread enters a call or comes back from it; true when this is where the program is to die. */
static int stopped(pid_t tid, long nth, int after) {
    struct __ptrace_syscall_info info;
    struct thread *now = thread(tid);
    char path[PATH_MAX], to[PATH_MAX], line[2 * PATH_MAX + 64];
    if (ptrace(PTRACE_GET_SYSCALL_INFO, tid, sizeof info, &info) <= 0) return 0;
    if (info.op == PTRACE_SYSCALL_INFO_EXIT && now->number) {
        long number = now->number;
        now->number = 0;
        snprintf(line, sizeof line, "did\t%ld\t%lld\n", number, (long long)info.exit.rval);
        tell(line);
        return after && number == nth;
    }
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY) return 0;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        if (calls[i].nr != (long)info.entry.nr) continue;
        if (!changes(tid, calls[i].form, info.entry.args, path, to)) return 0;
        now->number = ++made;
        if (!after && made == nth) return 1;
        snprintf(line, sizeof line, "try\t%ld\t%s\t%s%s%s\n", made, calls[i].name, path, *to ? "\t" : "", to);
        tell(line);
        return 0;
    }
    return 0;
}

int main(int count, char **words) {
    const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                         PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC;
    if (count < 6) return 125;
    folder = words[2];
    long nth = atol(words[3]);
    int after = !strcmp(words[4], "after"), status, killed = 0, code = 125;
    logged = open(words[1], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (logged < 0) return 125;
    pid_t child = fork();
    if (child < 0) return 125;
    if (!child) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0)) _exit(125);
        raise(SIGSTOP);
        execv(words[5], words + 5);
        _exit(125);
    }
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return 125;
    if (ptrace(PTRACE_SETOPTIONS, child, 0, options)) { kill(child, SIGKILL); return 125; }
    thread(child);
    ptrace(PTRACE_SYSCALL, child, 0, 0);
    for (;;) {
        pid_t tid = waitpid(-1, &status, __WALL);
        if (tid < 0) break;
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            thread(tid)->tid = 0;
            if (tid == child) code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            continue;
        }
        int signal = WSTOPSIG(status), event = status >> 16;
        thread(tid);
        if (killed) {
            ptrace(PTRACE_SYSCALL, tid, 0, 0);
            continue;
        }
        if (signal == (SIGTRAP | 0x80)) {
            if (stopped(tid, nth, after)) {
                char line[64];
                kill_all();
                killed = 1;
                snprintf(line, sizeof line, "killed\t%ld\n", nth);
                tell(line);
            }
            signal = 0;
        } else if (event || signal == SIGSTOP) {
            /* A new thread's first stop, or the news of it. */
            signal = 0;
        }
        ptrace(PTRACE_SYSCALL, tid, 0, signal);
    }
    return code;
}
