/* A library with an IFUNC whose resolver calls memcpy and its relatives. */
#define _GNU_SOURCE
#include <string.h>

static char from[20000], to[20000];

static int right(void) { return 1; }
static int wrong(void) { return 0; }

static int same(size_t length, int byte)
{
    size_t at;
    for (at = 0; at < length; at++)
        if (to[at] != (char)byte)
            return 0;
    return 1;
}

/* By single bytes; before relocation no other function can be called. */
static void set(char *memory, size_t length, int byte)
{
    size_t at;
    for (at = 0; at < length; at++)
        memory[at] = (char)byte;
}

/* Copies, moves and fills of a length. Returns whether the bytes are right. */
static int work(size_t length)
{
    int done = 1;
    set(from, length, 1);
    done &= memcpy(to, from, length) == to && same(length, 1);
    set(from, length, 2);
    done &= memmove(to, from, length) == to && same(length, 2);
    set(from, length, 3);
    done &= mempcpy(to, from, length) == to + length && same(length, 3);
    to[0] = 7;
    done &= memmove(to + 1, to, length - 1) == to + 1 && to[1] == 7 && to[2] == 3;
    to[length - 1] = 9;
    done &= memmove(to, to + 1, length - 1) == to && to[0] == 7 && to[1] == 3 && to[length - 2] == 9;
    done &= memset(to, 0x105, length) == to && same(length, 5);
    bzero(to, length);
    done &= same(length, 0);
    set(to, length, 1);
    explicit_bzero(to, length);
    return done && same(length, 0);
}

static int (*resolve(void))(void) { return work(100) && work(sizeof to) ? right : wrong; }

int resolver_work(size_t length) { return work(length); }

int resolved(void) __attribute__((ifunc("resolve")));
