/*
 * How fast a copy of a block to a random place in memory can be made durable: by single instructions without a call, by libpmem, and
 * by bulkmem. What the bare instructions gain over libpmem is the most that any library can gain.
 *
 *   cc -O2 -mavx512f -mclwb -mmovdir64b -o persist-floor scripts/persist-floor.c -lbulkmem -lpmem
 *
 * Prints the medians of 61 interleaved rounds of 20,000 blocks: ns per block, and × libpmem, by the ratios within rounds. The
 * processor needs AVX-512, CLWB and MOVDIR64B; the blocks are in 1 GiB of ordinary memory in huge pages, where there are some.
 */
#include <bulkmem.h>
#include <immintrin.h>
#include <libpmem.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { BLOCKS = 20000, ROUNDS = 61, LINE = 64 };

static const size_t MEMORY = (size_t)1 << 30, HUGE_PAGE = 2 << 20;
static _Alignas(LINE) char source[4096];

static void nontemporal(char *to, size_t length)
{
    for (size_t at = 0; at < length; at += LINE)
        _mm512_stream_si512((void *)(to + at), _mm512_load_si512(source + at));
    _mm_sfence();
}

static void movdir64b(char *to, size_t length)
{
    for (size_t at = 0; at < length; at += LINE)
        _movdir64b(to + at, source + at);
    _mm_sfence();
}

static void store_clwb(char *to, size_t length)
{
    for (size_t at = 0; at < length; at += LINE) {
        _mm512_store_si512(to + at, _mm512_load_si512(source + at));
        _mm_clwb(to + at);
    }
    _mm_sfence();
}

static void libpmem(char *to, size_t length)
{
    pmem_memcpy_persist(to, source, length);
}

static void bulkmem(char *to, size_t length)
{
    if (bulkmem_copy_persist(to, source, length) < 0) {
        fprintf(stderr, "%s\n", bulkmem_last_error());
        exit(1);
    }
}

static const struct {
    const char *name;
    void (*copy)(char *to, size_t length);
} ways[] = { { "libpmem", libpmem }, { "bulkmem", bulkmem }, { "non-temporal store", nontemporal },
             { "MOVDIR64B", movdir64b }, { "store and CLWB", store_clwb } };

enum { WAYS = sizeof ways / sizeof *ways };

static double nanoseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof *values, compare);
    return values[ROUNDS / 2];
}

int main(void)
{
    static const size_t lengths[] = { 64, 128, 256, 1024, 4096 };
    static double taken[WAYS][ROUNDS], ratios[WAYS][ROUNDS];
    static uint32_t places[BLOCKS];
    char *memory = mmap(NULL, MEMORY + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        perror("1 GiB of memory");
        return 1;
    }
    memory += -(uintptr_t)memory % HUGE_PAGE;
    madvise(memory, MEMORY, MADV_HUGEPAGE);
    memset(memory, 1, MEMORY);
    srandom(7);
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        for (int round = 0; round < ROUNDS; round++) {
            for (int block = 0; block < BLOCKS; block++)
                places[block] = random() % (MEMORY / lengths[l]);
            for (int turn = 0; turn < WAYS; turn++) {
                int way = (turn + round) % WAYS;
                double begin = nanoseconds();

                for (int block = 0; block < BLOCKS; block++)
                    ways[way].copy(memory + places[block] * lengths[l], lengths[l]);
                taken[way][round] = (nanoseconds() - begin) / BLOCKS;
            }
            for (int way = 0; way < WAYS; way++)
                ratios[way][round] = taken[0][round] / taken[way][round];
        }
        for (int way = 0; way < WAYS; way++)
            printf("%5zu bytes  %-18s %7.1f ns  %.2f x libpmem\n", lengths[l], ways[way].name, median(taken[way]), median(ratios[way]));
    }
    return 0;
}
