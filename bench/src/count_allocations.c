/* Counts what is allocated, and tells it when the process ends. For the GNU C library. */
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static atomic_ulong calls;
static atomic_ulong bytes;

static void count(size_t size) {
    atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&bytes, size, memory_order_relaxed);
}

void *malloc(size_t size) {
    count(size);
    return __libc_malloc(size);
}

void *calloc(size_t number, size_t size) {
    count(number * size);
    return __libc_calloc(number, size);
}

void *realloc(void *old, size_t size) {
    count(size);
    return __libc_realloc(old, size);
}

int posix_memalign(void **made, size_t alignment, size_t size) {
    count(size);
    *made = __libc_memalign(alignment, size);
    return *made == NULL ? ENOMEM : 0;
}

void *aligned_alloc(size_t alignment, size_t size) {
    count(size);
    return __libc_memalign(alignment, size);
}

__attribute__((destructor)) static void tell(void) {
    fprintf(stderr, "allocated %lu %lu\n", atomic_load(&calls), atomic_load(&bytes));
}
