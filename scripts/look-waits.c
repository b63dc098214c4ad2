/*
 * What a look waits for: the ticks from stores to lines of four pages until the clock is read, by the instructions in between. If they
 * let the clock be read before the stores have their lines, uncached memory looks cached.
 *
 *   cc -O2 -o look-waits scripts/look-waits.c
 *
 * Prints the least, the median and the 95th percentile of 1001 interleaved rounds, of four stores together and of the fastest of four
 * single ones. Memory is cached, because it was just written; uncached, after CLFLUSH; cached but for the line of the last of the four
 * stores; or cached, but after 1 MiB of non-temporal stores elsewhere and an SFENCE. Stores that are not timed come first: they reach
 * the pages, and should wait for what was before them. Uses transparent huge pages, where there are some.
 */
#include <emmintrin.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <x86intrin.h>

enum { ROUNDS = 1001, PLACES = 4, LINE = 64, PAGE = 4096, HUGE_PAGE = 2 << 20, LENGTH = 1 << 20 };
enum { APART = LENGTH / PLACES, SECOND = PAGE / 8, THIRD = PAGE / 2 };
enum state { CACHED, UNCACHED, ONE_UNCACHED, AFTER_STREAM, STATES };
enum barrier { ONE_LOCK, TWO_LOCKS, MFENCE, SFENCE, BARRIERS };

static const size_t MEMORY = (size_t)1 << 30;
static const char *const states[] = { "cached", "uncached", "one of four uncached", "cached, after a stream" };
static const char *const barriers[] = { "a locked OR", "two locked ORs", "MFENCE", "SFENCE" };

#define INLINE static inline __attribute__((always_inline))

INLINE uint64_t ticks(void)
{
    _mm_lfence();
    return __rdtsc();
}

INLINE void wait(enum barrier barrier)
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

INLINE void store(char *to)
{
    *(volatile uint64_t *)to = 0;
}

INLINE void store_all(char *range)
{
    store(range);
    store(range + APART);
    store(range + 2 * APART);
    store(range + 3 * APART);
}

struct times {
    uint64_t together, fastest;
};

INLINE struct times look(char *range, enum barrier barrier)
{
    struct times times = { 0, UINT64_MAX };
    uint64_t start, now;

    store_all(range);
    wait(barrier);
    start = ticks();
    store_all(range + SECOND);
    wait(barrier);
    now = ticks();
    times.together = now - start;
    for (int place = 0; place < PLACES; place++) {
        start = now;
        store(range + THIRD + place * APART);
        wait(barrier);
        now = ticks();
        if (now - start < times.fastest)
            times.fastest = now - start;
    }
    return times;
}

/* A function for each, so that no jump by barrier is timed. */
#define LOOK(name, barrier) \
    static __attribute__((noinline)) struct times name(char *range) { return look(range, barrier); }
LOOK(one_lock, ONE_LOCK)
LOOK(two_locks, TWO_LOCKS)
LOOK(mfence, MFENCE)
LOOK(sfence, SFENCE)

static struct times (*const looks[])(char *range) = { one_lock, two_locks, mfence, sfence };

static void prepare(char *range, char *elsewhere, enum state state)
{
    for (int twice = 0; twice < 2; twice++)
        memset(range, 1, LENGTH);
    if (state == UNCACHED)
        for (size_t at = 0; at < LENGTH; at += LINE)
            _mm_clflush(range + at);
    if (state == ONE_UNCACHED)
        _mm_clflush(range + SECOND + (PLACES - 1) * APART);
    _mm_mfence();
    if (state == AFTER_STREAM) {
        for (size_t at = 0; at < LENGTH; at += sizeof(__m128i))
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
    printf("%7" PRIu64 " %5" PRIu64 " %5" PRIu64, values[0], values[ROUNDS / 2], values[ROUNDS - 1 - ROUNDS / 20]);
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
    if (madvise(memory, MEMORY, MADV_HUGEPAGE))
        perror("huge pages, so that base pages are used");
    memset(memory, 1, MEMORY);
    srandom(7);
    for (int round = 0; round < ROUNDS; round++)
        for (int state = 0; state < STATES; state++)
            for (int turn = 0; turn < BARRIERS; turn++) {
                int barrier = round % 2 ? turn : BARRIERS - 1 - turn;
                size_t place = random() % places;
                char *range = memory + place * LENGTH;
                struct times times;

                prepare(range, memory + (place + places / 2) % places * LENGTH, state);
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
