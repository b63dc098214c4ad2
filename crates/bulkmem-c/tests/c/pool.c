/*
 * Memory of the pool: fresh without a pool, and the codes for bad input. With the path of a socket as argument: from the pool
 * that listens there and has one unit of 1 MiB in base pages.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LENGTH (1u << 20)

/* Checks a file of this length, page size and allocated bytes, and that it is zeroed and can be written. */
static void check(int fd, off_t length, long page, off_t allocated)
{
    struct stat about;
    char *memory = (char *)mmap(NULL, (size_t)length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    off_t at;

    CHECK(memory != MAP_FAILED && fstat(fd, &about) == 0);
    CHECK(about.st_size == length && about.st_blksize == page && (about.st_mode & 07777) == 0600);
    CHECK(about.st_blocks * 512 == allocated);
    CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
    for (at = 0; at < length; at++)
        CHECK(memory[at] == 0);
    memory[length - 1] = 7;
    CHECK(munmap(memory, (size_t)length) == 0 && close(fd) == 0);
}

/* The pool's only unit, then, while that is in use, a fresh file. */
static void with_pool(const char *socket)
{
    struct bulkmem_pool_options options = BULKMEM_POOL_OPTIONS_INIT;
    int unit = -7, fresh = -7, source = -7, seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

    options.socket = socket;
    options.patience_ms = 60000;
    RETURNS(0, bulkmem_pool_memory(LENGTH, &options, &unit, &source));
    CHECK(source == BULKMEM_POOL_SOURCE_UNIT && unit > 2);
    CHECK((fcntl(unit, F_GET_SEALS) & seals) == seals && ftruncate(unit, 0) < 0);
    RETURNS(0, bulkmem_pool_memory(LENGTH, &options, &fresh, &source));
    CHECK(source == BULKMEM_POOL_SOURCE_FRESH && fresh > 2 && fresh != unit);
    CHECK(strstr(bulkmem_last_error(), "fresh") && strstr(bulkmem_last_error(), "quota"));
    RETURNS(0, bulkmem_pool_memory(2 * LENGTH, &options, &source, NULL));
    CHECK(strstr(bulkmem_last_error(), "keeps no units of this length") && close(source) == 0);
    check(unit, LENGTH, sysconf(_SC_PAGESIZE), LENGTH);
    check(fresh, LENGTH, sysconf(_SC_PAGESIZE), 0);
}

/* Options of a later version: members that this one does not know must be 0. */
static void later_version(void)
{
    struct {
        struct bulkmem_pool_options options;
        uint64_t later;
    } longer = {BULKMEM_POOL_OPTIONS_INIT, 0};
    int fd = -7;

    longer.options.size = sizeof longer;
    longer.options.socket = "/nonexistent/socket";
    RETURNS(0, bulkmem_pool_memory(LENGTH, &longer.options, &fd, NULL));
    CHECK(close(fd) == 0);
    longer.later = 1;
    fd = -7;
    RETURNS(BULKMEM_ERROR_ARGUMENT, bulkmem_pool_memory(LENGTH, &longer.options, &fd, NULL));
    CHECK(fd == -7);
}

int main(int count, char **arguments)
{
    struct bulkmem_pool_options options = BULKMEM_POOL_OPTIONS_INIT;
    int fd = -7, source = -7, code;
    struct stat about;

    if (count > 1) {
        with_pool(arguments[1]);
        return 0;
    }
    options.socket = "/nonexistent/socket";
    options.patience_ms = UINT64_MAX;
    RETURNS(0, bulkmem_pool_memory(LENGTH, &options, &fd, &source));
    CHECK(source == BULKMEM_POOL_SOURCE_FRESH && strstr(bulkmem_last_error(), "no pool listens at /nonexistent/socket"));
    check(fd, LENGTH, sysconf(_SC_PAGESIZE), 0);
    RETURNS(0, bulkmem_pool_memory(LENGTH, &options, &fd, NULL));
    CHECK(close(fd) == 0);

    later_version();
    /* Huge pages, if there are some. */
    options.page_size = 2 << 20;
    RETURNS(0, bulkmem_pool_memory(2 * LENGTH, &options, &fd, &source));
    CHECK(source == BULKMEM_POOL_SOURCE_FRESH || source == BULKMEM_POOL_SOURCE_FRESH_BASE);
    CHECK(fstat(fd, &about) == 0 && about.st_size == 2 * LENGTH);
    if (source == BULKMEM_POOL_SOURCE_FRESH)
        CHECK(about.st_blksize == 2 << 20);
    else
        CHECK(about.st_blksize == sysconf(_SC_PAGESIZE) && strstr(bulkmem_last_error(), "too few huge pages"));
    CHECK(close(fd) == 0);
    /* More than any machine has. */
    RETURNS(0, bulkmem_pool_memory(UINT64_C(1) << 46, &options, &fd, &source));
    CHECK(source == BULKMEM_POOL_SOURCE_FRESH_BASE && strstr(bulkmem_last_error(), "pages of 4K, not 2M"));
    CHECK(close(fd) == 0);

    /* Nodes: a container may forbid to choose one. */
    options.page_size = 0;
    options.flags = BULKMEM_POOL_ON_NODE;
    fd = -7;
    code = bulkmem_pool_memory(LENGTH, &options, &fd, NULL);
    if (code == 0)
        CHECK(close(fd) == 0);
    else
        CHECK(code == BULKMEM_ERROR_SYSTEM && strstr(bulkmem_last_error(), "not permitted") && fd == -7);

    fd = source = -7;
    options.node = 1023;
    code = bulkmem_pool_memory(LENGTH, &options, &fd, &source);
    CHECK(code == BULKMEM_ERROR_ARGUMENT || (code == BULKMEM_ERROR_SYSTEM && strstr(bulkmem_last_error(), "not permitted")));
    options.node = 1024;
    RETURNS(BULKMEM_ERROR_ARGUMENT, bulkmem_pool_memory(LENGTH, &options, &fd, &source));
    options.node = UINT64_MAX;
    RETURNS(BULKMEM_ERROR_ARGUMENT, bulkmem_pool_memory(LENGTH, &options, &fd, &source));
    options.flags = 0;
    options.node = 1;
    RETURNS(BULKMEM_ERROR_ARGUMENT, bulkmem_pool_memory(LENGTH, &options, &fd, &source));
    CHECK(strstr(bulkmem_last_error(), "BULKMEM_POOL_ON_NODE"));
    options.node = 0;
    options.flags = 2;
    RETURNS(BULKMEM_ERROR_ARGUMENT, bulkmem_pool_memory(LENGTH, &options, &fd, &source));
    options.flags = 0;
    options.page_size = 8192;
    RETURNS(BULKMEM_ERROR_ARGUMENT, bulkmem_pool_memory(LENGTH, &options, &fd, &source));
    options.page_size = 2 << 20;
    RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_pool_memory(LENGTH, &options, &fd, &source));
    RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_pool_memory(UINT64_MAX, NULL, &fd, &source));
    RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_pool_memory(0, NULL, &fd, &source));
    RETURNS(BULKMEM_ERROR_NULL, bulkmem_pool_memory(LENGTH, NULL, NULL, &source));
    options.size = 3;
    RETURNS(BULKMEM_ERROR_ARGUMENT, bulkmem_pool_memory(LENGTH, &options, &fd, &source));
    CHECK(strstr(bulkmem_last_error(), "BULKMEM_POOL_OPTIONS_INIT"));
    CHECK(fd == -7 && source == -7);
    return 0;
}
