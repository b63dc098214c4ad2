/* No function ends the process if malloc and its relatives return nothing. */
#define _GNU_SOURCE
#if defined __has_include && __has_include(<libpmem.h>)
#include <libpmem.h>
#else
#include "libpmem_abi.h"
#endif
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH (1u << 20)
#define CHECK(condition)                                                                                              \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, pmem_errormsg());                             \
            exit(1);                                                                                                  \
        }                                                                                                             \
    } while (0)

static int exhausted, refused;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static int granted(void)
{
    refused += exhausted;
    if (exhausted)
        errno = ENOMEM;
    return !exhausted;
}

void *malloc(size_t size)
{
    return granted() ? __libc_malloc(size) : NULL;
}

void *calloc(size_t count, size_t size)
{
    return granted() ? __libc_calloc(count, size) : NULL;
}

void *realloc(void *old, size_t size)
{
    return granted() ? __libc_realloc(old, size) : NULL;
}

int posix_memalign(void **place, size_t alignment, size_t size)
{
    *place = granted() ? __libc_memalign(alignment, size) : NULL;
    return *place ? 0 : ENOMEM;
}

int main(void)
{
    static unsigned char source[LENGTH];
    int round, persistent, flushes, auto_flush = pmem_has_auto_flush();
    unsigned char *memory;
    size_t length;

    memset(source, 7, sizeof source);
    /* What the library notes of a mapping remains. Without memory for that, mapping fails. */
    exhausted = 1;
    CHECK(!pmem_map_file("file", LENGTH, PMEM_FILE_CREATE, 0600, &length, &persistent) && errno == ENOMEM);
    exhausted = 0;
    memory = pmem_map_file("file", LENGTH, PMEM_FILE_CREATE, 0600, &length, &persistent);
    CHECK(memory && pmem_unmap(memory, length) == 0);
    exhausted = 1;
    for (round = 0; round < 10000; round++) {
        memory = pmem_map_file("file", LENGTH, PMEM_FILE_CREATE, 0600, &length, &persistent);
        CHECK(memory && length == LENGTH && !persistent);
        CHECK(pmem_is_pmem(memory, length) == 0);
        pmem_memcpy_nodrain(memory, source, length);
        CHECK(pmem_msync(memory, length) == 0);
        CHECK(memory[0] == 7 && memory[length - 1] == 7);
        CHECK(pmem_deep_persist(memory, length) == 0);
        /* It reads a folder, for which the C library allocates. */
        flushes = pmem_has_auto_flush();
        CHECK(flushes == auto_flush || (flushes == -1 && errno == ENOMEM));
        CHECK(pmem_unmap(memory, length) == 0);
        CHECK(!pmem_map_file("/nonexistent/file", 0, 0, 0, &length, &persistent) && errno == ENOENT);
    }
    exhausted = 0;
    CHECK(refused > 0);
    return 0;
}
