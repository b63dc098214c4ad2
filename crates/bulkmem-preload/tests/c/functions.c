/* Calls every function that the library replaces, and compares every byte between two guard pages with what a loop of
 * single bytes makes of them.
 *   functions short        all lengths up to 600
 *   functions long MOST    lengths from 16 KiB - 1 to MOST, MOST + 5
 *   functions aliased      copies of 2047 bytes to 80 KiB whose destination begins near the source modulo the page size
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void *__memcpy_chk(void *, const void *, size_t, size_t), *__memmove_chk(void *, const void *, size_t, size_t);
void *__mempcpy_chk(void *, const void *, size_t, size_t), *__memset_chk(void *, int, size_t, size_t);
void __explicit_bzero_chk(void *, size_t, size_t);

typedef uint8_t byte;
enum { PAGE = 4096 };

/* The memory that a function writes, which it also reads if ranges overlap; another one that it reads; what the first holds
 * before a call, and what it must hold after it. */
static byte *memory, *other, *before, *expected;
static size_t size;

enum function {
    MEMCPY, MEMMOVE, MEMPCPY, MEMCPY_CHK, MEMMOVE_CHK, MEMPCPY_CHK, COPIES,
    MEMSET = COPIES, MEMSET_CHK, BZERO, EXPLICIT_BZERO, EXPLICIT_BZERO_CHK, FUNCTIONS
};
static const char *const names[] = {
    "memcpy", "memmove", "mempcpy", "__memcpy_chk", "__memmove_chk", "__mempcpy_chk",
    "memset", "__memset_chk", "bzero", "explicit_bzero", "__explicit_bzero_chk",
};

/* Calls the function, and returns the address that it must return. */
static void *call(enum function function, byte *dst, const byte *src, int set, size_t length, void **expect)
{
    *expect = dst;
    switch (function) {
    case MEMCPY: return memcpy(dst, src, length);
    case MEMMOVE: return memmove(dst, src, length);
    case MEMCPY_CHK: return __memcpy_chk(dst, src, length, length);
    case MEMMOVE_CHK: return __memmove_chk(dst, src, length, length + 1);
    case MEMPCPY: *expect = dst + length; return mempcpy(dst, src, length);
    case MEMPCPY_CHK: *expect = dst + length; return __mempcpy_chk(dst, src, length, -1);
    case MEMSET: return memset(dst, set, length);
    case MEMSET_CHK: return __memset_chk(dst, set, length, length);
    case BZERO: bzero(dst, length); return dst;
    case EXPLICIT_BZERO: explicit_bzero(dst, length); return dst;
    default: __explicit_bzero_chk(dst, length, length); return dst;
    }
}

static byte *map(size_t length)
{
    byte *start = mmap(NULL, length + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED || mprotect(start + PAGE, length, PROT_READ | PROT_WRITE) != 0)
        abort();
    return start + PAGE;
}

static void check(enum function function, size_t to, const byte *src, int set, size_t length)
{
    void *expect, *returned;
    size_t at;
    /* By what memory holds now: src may be part of it. */
    for (at = 0; at < length; at++)
        expected[to + at] = function < COPIES ? src[at] : function <= MEMSET_CHK ? (byte)set : 0;
    returned = call(function, memory + to, src, set, length, &expect);
    if (returned != expect || memcmp(memory, expected, size) != 0) {
        for (at = 0; at < size && memory[at] == expected[at]; at++) {}
        fprintf(stderr, "%s of %zu bytes to %zu, %#x, from %zd: returned %p instead of %p, byte %zu is wrong\n",
                names[function], length, to, set, src - memory, returned, expect, at);
        exit(1);
    }
    /* Nothing else has changed. */
    for (at = to; at < to + length; at++)
        memory[at] = expected[at] = before[at];
}

static void copies(size_t to, size_t from, size_t length)
{
    enum function function;
    for (function = 0; function < COPIES; function++)
        check(function, to, other + from, 0, length);
}

/* All may overlap: old programs call memcpy where they mean memmove. */
static void overlaps(size_t length, size_t distance)
{
    enum function function;
    size_t middle = size / 2 / 64 * 64 - length / 2;
    if (middle < distance || middle + distance + length > size)
        return;
    for (function = 0; function < COPIES; function++) {
        check(function, middle + distance, memory + middle, 0, length);
        check(function, middle - distance, memory + middle, 0, length);
    }
}

static void sets(size_t to, size_t length)
{
    static const int bytes[] = {0, 0xa5, 0x100, -1};
    enum function function;
    size_t at;
    for (function = COPIES; function < FUNCTIONS; function++)
        for (at = 0; at < (function <= MEMSET_CHK ? 4 : 1); at++)
            check(function, to, NULL, bytes[at], length);
}

/* Next to both guard pages and at some offsets, fewer of them for lengths that take long. */
static void places(size_t length)
{
    static const size_t offsets[] = {0, 1, 17, 32, 63};
    size_t at, from;
    for (at = 0; at < 5; at += length > 1 << 20 ? 3 : 1) {
        size_t end = size - length - offsets[at];
        for (from = 0; from < 5; from++) {
            if (length > 600 && from != at * 3 % 5)
                continue;
            copies(offsets[at], offsets[from], length);
            copies(end, size - length - offsets[from], length);
        }
        sets(offsets[at], length);
        sets(end, length);
    }
    overlaps(length, 0);
    overlaps(length, 1);
    overlaps(length, 64);
    overlaps(length, 4097);
    overlaps(length, length / 2);
    overlaps(length, length - 1);
    overlaps(length, length);
}

/* Some distances are those of aliased copies, and those before and after them. */
static void aliased(size_t length)
{
    static const size_t distances[] = {0, 1, 2, 8, 15, 16, 30, 31, 32, 33, 2048, PAGE - 32, PAGE - 1};
    enum function function;
    size_t at, from;
    for (at = 0; at < sizeof distances / sizeof *distances; at++)
        for (from = 0; from <= PAGE; from += PAGE - 24) {
            copies((from + distances[at]) % PAGE, from, length);
            copies(size - length - (PAGE - distances[at]) % PAGE, size - length, length);
        }
    /* The same distances modulo the page size between ranges that overlap. */
    for (at = 0; at < sizeof distances / sizeof *distances; at++) {
        overlaps(length, distances[at]);
        overlaps(length, PAGE + distances[at]);
        overlaps(length, length / PAGE * PAGE + distances[at]);
    }
    for (function = 0; function < COPIES; function++)
        check(function, 8, memory + 8, 0, length);
}

int main(int count, char **arguments)
{
    static const size_t lengths[] = {2047, 2048, 2049, 4095, 4096, 4097, 16383, 16384, 65535, 65536, 70001, 81920};
    int are_aliased = count > 1 && strcmp(arguments[1], "aliased") == 0;
    size_t length, most = are_aliased ? 81920 : count > 2 ? strtoul(arguments[2], NULL, 0) : 600, at;
    size = (2 * most + 3 * PAGE) / PAGE * PAGE;
    memory = map(size), other = map(size), before = map(size), expected = map(size);
    for (at = 0; at < size; at++) {
        memory[at] = before[at] = expected[at] = (byte)(at * 7 % 7919 + 1);
        other[at] = (byte)(at * 31 % 7907);
    }
    if (are_aliased) {
        for (at = 0; at < sizeof lengths / sizeof *lengths; at++)
            aliased(lengths[at]);
    } else if (count == 2) {
        for (length = 0; length <= most; length++)
            places(length);
    } else {
        for (length = 16 << 10; length <= most; length *= 4) {
            places(length - 1);
            places(length);
            places(length + 1 + length / 5);
        }
        places(most + 5);
    }
    puts("right");
    return 0;
}
