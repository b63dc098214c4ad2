/* Prefaulting memory and files: contents, progress, cancellation, and the codes for bad input. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define LENGTH ((8u << 20) + 4096)

static int calls;
static uint64_t reported;

static int count(const struct bulkmem_prefault_progress *progress, void *context)
{
    CHECK(progress->total == *(uint64_t *)context && progress->ready >= reported && progress->ready <= progress->total);
    CHECK(progress->remaining_ns != 0 || progress->ready == progress->total);
    CHECK(progress->ready == 0 || progress->elapsed_ns > 0);
    reported = progress->ready;
    calls++;
    return 0;
}

static int cancel(const struct bulkmem_prefault_progress *progress, void *context)
{
    (void)progress;
    (void)context;
    return 1;
}

/* Options of a later version: members that this one does not know must be 0. */
static void later_version(void *memory)
{
    struct {
        struct bulkmem_prefault_options options;
        uint64_t later;
    } longer = {BULKMEM_PREFAULT_OPTIONS_INIT, 0};

    longer.options.size = sizeof longer;
    RETURNS(0, bulkmem_prefault(memory, 4096, &longer.options, NULL));
    longer.later = 1;
    RETURNS(BULKMEM_ERROR_ARGUMENT, bulkmem_prefault(memory, 4096, &longer.options, NULL));
}

int main(void)
{
    struct bulkmem_prefault_options options = BULKMEM_PREFAULT_OPTIONS_INIT;
    char path[] = "/tmp/bulkmem-prefault-XXXXXX";
    uint64_t ready = 1, total = LENGTH;
    unsigned char resident[LENGTH / 4096 + 1];
    size_t at;
    int file = mkstemp(path);
    char *memory = (char *)mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(memory != MAP_FAILED && file >= 0);
    memory[5000] = 7;
    RETURNS(0, bulkmem_prefault(memory, LENGTH, NULL, &ready));
    CHECK(ready == LENGTH && memory[5000] == 7 && memory[5001] == 0);
    CHECK(mincore(memory, LENGTH, resident) == 0);
    for (at = 0; at < LENGTH / 4096; at++)
        CHECK(resident[at] & 1);
    RETURNS(0, bulkmem_prefault(memory, LENGTH, NULL, NULL));
    RETURNS(0, bulkmem_prefault(NULL, 0, NULL, &ready));
    CHECK(ready == 0);

    later_version(memory);
    options.progress = count;
    options.context = &total;
    options.flags = BULKMEM_PREFAULT_ALL_PROCESSORS | BULKMEM_PREFAULT_INTERLEAVE;
    options.cpu_percent = 90;
    options.keep_free = 1;
    options.rate = 1u << 30;
    RETURNS(0, bulkmem_prefault(memory, LENGTH, &options, &ready));
    CHECK(calls > 0 && reported == LENGTH);

    options.flags = 0;
    options.threads = 2;
    options.rate = 1u << 20;
    options.progress = cancel;
    RETURNS(BULKMEM_ERROR_CANCELLED, bulkmem_prefault(memory, LENGTH, &options, &ready));
    CHECK(ready < LENGTH && strstr(bulkmem_last_error(), "cancelled"));
    options.progress = NULL;
    options.rate = 0;

    CHECK(ftruncate(file, LENGTH) == 0);
    RETURNS(0, bulkmem_prefault_file(file, 4096, LENGTH - 4096, &options, &ready));
    CHECK(ready == LENGTH - 4096);
    RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_prefault_file(file, 0, LENGTH + 1, &options, &ready));
    CHECK(ready == 0 && strstr(bulkmem_last_error(), "extend the file"));
    RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_prefault_file(file, UINT64_MAX, 1, NULL, NULL));
    RETURNS(BULKMEM_ERROR_ARGUMENT, bulkmem_prefault_file(-1, 0, 1, NULL, NULL));
    options.flags = BULKMEM_PREFAULT_LOCK;
    RETURNS(BULKMEM_ERROR_ARGUMENT, bulkmem_prefault_file(file, 0, 1, &options, NULL));
    RETURNS(0, bulkmem_prefault(memory, 4096, &options, NULL));

    options.flags = 8;
    RETURNS(BULKMEM_ERROR_ARGUMENT, bulkmem_prefault(memory, 1, &options, NULL));
    options.flags = BULKMEM_PREFAULT_ALL_PROCESSORS;
    RETURNS(BULKMEM_ERROR_ARGUMENT, bulkmem_prefault(memory, 1, &options, NULL));
    options.flags = 0;
    options.nodes = "1000";
    RETURNS(BULKMEM_ERROR_ARGUMENT, bulkmem_prefault(memory, 1, &options, NULL));
    options.nodes = "zero";
    RETURNS(BULKMEM_ERROR_ARGUMENT, bulkmem_prefault(memory, 1, &options, NULL));
    CHECK(strstr(bulkmem_last_error(), "`zero`"));
    options.nodes = "0";
    RETURNS(0, bulkmem_prefault(memory, 1, &options, NULL));
    options.cpu_percent = 101;
    RETURNS(BULKMEM_ERROR_ARGUMENT, bulkmem_prefault(memory, 1, &options, NULL));
    options.size = 3;
    RETURNS(BULKMEM_ERROR_ARGUMENT, bulkmem_prefault(memory, 1, &options, NULL));
    RETURNS(BULKMEM_ERROR_NULL, bulkmem_prefault(NULL, 1, NULL, NULL));
    RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_prefault(memory, (size_t)-1, NULL, NULL));
    CHECK(munmap(memory, LENGTH) == 0);
    RETURNS(BULKMEM_ERROR_ARGUMENT, bulkmem_prefault(memory, LENGTH, NULL, &ready));
    CHECK(ready == 0 && strstr(bulkmem_last_error(), "nothing is mapped"));
    CHECK(unlink(path) == 0 && close(file) == 0);
    return 0;
}
