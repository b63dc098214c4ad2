/* No function ends the process if malloc and its relatives return nothing. */
#define _GNU_SOURCE
#if defined __has_include && __has_include(<libpmem.h>)
#include <libpmem.h>
#else
#include "libpmem_abi.h"
#endif
#include "../../../bulkmem-reserve/tests/refuse.h"
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

int main(void)
{
    static unsigned char source[LENGTH];
    int round, persistent, flushes, auto_flush = pmem_has_auto_flush();
    unsigned char *memory;
    size_t length;

    memset(source, 7, sizeof source);
    /* What the library notes of a mapping remains. Without memory for that, mapping fails. */
    left = 0;
    CHECK(!pmem_map_file("file", LENGTH, PMEM_FILE_CREATE, 0600, &length, &persistent) && errno == ENOMEM);
    left = EVERY_ALLOCATION;
    memory = pmem_map_file("file", LENGTH, PMEM_FILE_CREATE, 0600, &length, &persistent);
    CHECK(memory && pmem_unmap(memory, length) == 0);
    left = 0;
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
    left = EVERY_ALLOCATION;
    CHECK(refused > 0);
    return 0;
}
