/*
 * What a look waits for: the ticks from stores to lines of four pages until the clock is read, by the instructions in between. If they
 * let the clock be read before the stores have their lines, uncached memory looks cached.
 *
 *   cc -O2 -o look-waits scripts/look-waits.c
 *
 * Prints the 5th, 50th and 95th percentiles of 301 interleaved rounds, of four stores together and of the fastest of four single
 * ones, to pages that were reached before. Memory is cached, where the lines were just written; uncached, after CLFLUSH; or cached,
 * but after 1 MiB of non-temporal stores elsewhere and an SFENCE, which the first stores must wait for, and not those that are timed.
 */
#include <emmintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <x86intrin.h>

enum { ROUNDS = 301, PLACES = 4, LINE = 64, PAGE = 4096, HUGE_PAGE = 2 << 20, LENGTH = 1 << 20, STREAMED = 1 << 20 };
enum state { CACHED, UNCACHED, AFTER_STREAM, STATES };
enum barrier { ONE_LOCK, TWO_LOCKS, MFENCE, SFENCE, BARRIERS };

static const size_t MEMORY = (size_t)1 << 30;
static const char *const states[] = { "cached", "uncached", "cached, after a stream" };
static const char *const barriers[] = { "one locked OR", "two locked ORs", "MFENCE", "SFENCE" };

static inline uint64_t ticks(void)
{
    _mm_lfence();
    return __rdtsc();
}

static inline __attribute__((always_inline)) void wait(enum barrier barrier)
{
    switch (barrier) {
    case ONE_LOCK:
        __asm__ volatile("lock orl $0, (%%rsp)" ::: "memory", "cc");
        break;
    case TWO_LOCKS:
        __asm__ volatile("lock orl $0, (%%rsp)\n\tlock orl $0, (%%rsp)" ::: "memory", "cc");
        break;
    case MFENCE:
        _mm_mfence();
        break;
    default:
        _mm_sfence();
    }
}

struct times {
    uint64_t together, fastest;
};

/* One function for each barrier, without a jump between the stores and the clock. */
static inline __attribute__((always_inline)) struct times look(char *range, enum barrier barrier)
{
    struct times times = { 0, UINT64_MAX };
    uint64_t start, now;

    /* Reaches the pages. */
    for (int place = 0; place < PLACES; place++)
        *(volatile uint64_t *)(range + place * (LENGTH / PLACES)) = 0;
    wait(barrier);
    start = ticks();
    for (int place = 0; place < PLACES; place++)
        *(volatile uint64_t *)(range + place * (LENGTH / PLACES) + PAGE / 8) = 0;
    wait(barrier);
    now = ticks();
    times.together = now - start;
    for (int place = 0; place < PLACES; place++) {
        start = now;
        *(volatile uint64_t *)(range + place * (LENGTH / PLACES) + PAGE / 2) = 0;
        wait(barrier);
        now = ticks();
        if (now - start < times.fastest)
            times.fastest = now - start;
    }
    return times;
}

static __attribute__((noinline)) struct times one_lock(char *range)
{
    return look(range, ONE_LOCK);
}

static __attribute__((noinline)) struct times two_locks(char *range)
{
    return look(range, TWO_LOCKS);
}

static __attribute__((noinline)) struct times mfence(char *range)
{
    return look(range, MFENCE);
}

static __attribute__((noinline)) struct times sfence(char *range)
{
    return look(range, SFENCE);
}

static struct times (*const looks[])(char *range) = { one_lock, two_locks, mfence, sfence };

static void prepare(char *range, char *elsewhere, enum state state)
{
    for (int twice = 0; twice < 2; twice++)
        memset(range, 1, LENGTH);
    if (state == UNCACHED)
        for (size_t at = 0; at < LENGTH; at += LINE)
            _mm_clflush(range + at);
    _mm_mfence();
    if (state == AFTER_STREAM) {
        for (size_t at = 0; at < STREAMED; at += sizeof(__m128i))
            _mm_stream_si128((__m128i *)(elsewhere + at), _mm_setzero_si128());
        _mm_sfence();
    }
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void print(uint64_t *values)
{
    qsort(values, ROUNDS, sizeof *values, compare);
    printf("%7lu %5lu %5lu", values[ROUNDS / 20], values[ROUNDS / 2], values[ROUNDS - 1 - ROUNDS / 20]);
}

int main(void)
{
    static uint64_t together[STATES][BARRIERS][ROUNDS], fastest[STATES][BARRIERS][ROUNDS];
    char *memory = mmap(NULL, MEMORY + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const size_t places = MEMORY / LENGTH;

    if (memory == MAP_FAILED) {
        perror("1 GiB of memory");
        return 1;
    }
    memory += -(uintptr_t)memory % HUGE_PAGE;
    madvise(memory, MEMORY, MADV_HUGEPAGE);
    memset(memory, 1, MEMORY);
    srandom(7);
    for (int round = 0; round < ROUNDS; round++)
        for (int state = 0; state < STATES; state++)
            for (int turn = 0; turn < BARRIERS; turn++) {
                int barrier = round % 2 ? turn : BARRIERS - 1 - turn;
                size_t place = random() % places;
                char *range = memory + place * LENGTH;
                char *elsewhere = memory + (place + places / 2) % places * LENGTH;
                struct times times;

                prepare(range, elsewhere, state);
                times = looks[barrier](range);
                together[state][barrier][round] = times.together;
                fastest[state][barrier][round] = times.fastest;
            }
    printf("%-24s %-16s %19s  %19s\n", "memory", "barrier", "four together", "fastest single");
    for (int state = 0; state < STATES; state++)
        for (int barrier = 0; barrier < BARRIERS; barrier++) {
            printf("%-24s %-16s ", states[state], barriers[barrier]);
            print(together[state][barrier]);
            printf("  ");
            print(fastest[state][barrier]);
            printf("\n");
        }
    return 0;
}
