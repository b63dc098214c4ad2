/* A library that is relocated before the preloaded one, whose relocation runs the resolver in resolver.c, and whose
 * constructor runs at another time than that of the preloaded library. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int resolved(void);
extern int resolver_work(size_t length);

/* Needs the address, so the resolver runs when this library is relocated. */
int (*const address)(void) = resolved;

__attribute__((constructor)) static void constructor(void)
{
    if (!resolver_work(100) || !resolver_work(20000))
        abort();
}

int early(void) { return address() && resolved() && resolver_work(600) && resolver_work(20000); }
