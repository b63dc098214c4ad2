/* Included by C programs whose allocations are to fail: malloc and its relatives, of the program and of the libraries that it
 * is linked to. For the GNU C library.
 */
#ifndef REFUSE_H
#define REFUSE_H

#include <errno.h>
#include <stddef.h>

#define EVERY_ALLOCATION (1l << 40)

/* Allocations that succeed before all others fail; those that have failed. */
static long left = EVERY_ALLOCATION, refused;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static int granted(void)
{
    if (left > 0)
        return left-- > 0;
    refused++;
    errno = ENOMEM;
    return 0;
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

#endif
