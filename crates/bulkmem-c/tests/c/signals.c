/* The functions that are documented as async-signal-safe call, in a handler, none of the functions that are not: those
 * that allocate, lock, or look up symbols. The first argument is what comes first: the handler, or a call of bulkmem_init.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

/* Of this thread: workers that end free memory at any time. */
static _Thread_local volatile sig_atomic_t in_handler;
static volatile sig_atomic_t handled;

/* Ends the program if a handler called the function of that name. */
static void not_in_handler(const char *name)
{
    if (in_handler) {
        (void)!write(2, name, strlen(name));
        _exit(3);
    }
}

/* Programs may define these. The C library's own are found by their other names, since dlsym allocates. */
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

void *malloc(size_t size)
{
    not_in_handler("malloc\n");
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    not_in_handler("calloc\n");
    return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
    not_in_handler("realloc\n");
    return __libc_realloc(memory, size);
}

void free(void *memory)
{
    not_in_handler("free\n");
    __libc_free(memory);
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
    not_in_handler("posix_memalign\n");
    *memory = __libc_memalign(alignment, size);
    return *memory ? 0 : ENOMEM;
}

#define LENGTH ((2u << 20) + 7)
static unsigned char to[LENGTH], from[LENGTH];
static struct bulkmem_policy *policy;

/* Long calls only in the first handler, so that later ones leave time for what they interrupt. */
static void every_safe_call(void)
{
    static struct bulkmem_looks counts = BULKMEM_LOOKS_INIT;
    static const struct bulkmem_options defaults = BULKMEM_OPTIONS_INIT;
    static const size_t lengths[] = {1, 4096, LENGTH};
    size_t some = handled == 0 ? 3 : 2;
    struct bulkmem_options options = defaults;
    size_t i;

    for (i = 0; i < some; i++) {
        size_t n = lengths[i];

        options.flags = i % 2 ? BULKMEM_NO_FENCE : 0;
        options.intent = i == 2 ? BULKMEM_INTENT_STREAM : 0;
        options.total_len = (size_t)1 << 32;
        options.policy = i % 2 ? policy : NULL;
        RETURNS(0, bulkmem_clear(to, n));
        RETURNS(0, bulkmem_clear_with(to, n, &options));
        RETURNS(0, bulkmem_clear_hot(to, n, 0, 1, &options));
        RETURNS(0, bulkmem_fill(to, 1, n));
        RETURNS(0, bulkmem_fill_with(to, 1, n, &options));
        RETURNS(0, bulkmem_copy(to, from, n));
        RETURNS(0, bulkmem_copy_with(to, from, n, &options));
        RETURNS(0, bulkmem_move(to, from, n));
        RETURNS(0, bulkmem_move_with(to, from, n, &options));
        RETURNS(0, bulkmem_move(to + 1, to, n - 1));
        RETURNS(0, bulkmem_persist(to, n));
        RETURNS(0, bulkmem_persist_with(to, n, &options));
        RETURNS(0, bulkmem_copy_persist(to, from, n));
        RETURNS(0, bulkmem_copy_persist_with(to, from, n, &options));
        RETURNS(0, bulkmem_fill_persist(to, 1, n));
        RETURNS(0, bulkmem_fill_persist_with(to, 1, n, &options));
        RETURNS(0, bulkmem_clear_persist(to, n));
        RETURNS(0, bulkmem_clear_persist_with(to, n, &options));
        bulkmem_fence();
    }
    /* Those that fail. */
    RETURNS(BULKMEM_ERROR_NULL, bulkmem_clear(NULL, 1));
    RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_fill(to, 1, SIZE_MAX));
    RETURNS(BULKMEM_ERROR_OVERLAP, bulkmem_copy(to, to, 1));
    options.flags = ~(uint64_t)0;
    RETURNS(BULKMEM_ERROR_ARGUMENT, bulkmem_clear_with(to, 1, &options));
    CHECK(bulkmem_last_error()[0] && bulkmem_strerror(-1)[0] && bulkmem_version()[0]);
    CHECK(bulkmem_mapping_memory(NULL) == NULL);
    RETURNS(0, bulkmem_look_counts(BULKMEM_OPERATION_CLEAR, &counts));
    CHECK(bulkmem_is_looking() == 0 || policy);
    if (handled > 50)
        bulkmem_stop_looking();
}

static void handler(int number)
{
    int before = errno;

    (void)number;
    in_handler = 1;
    every_safe_call();
    handled++;
    in_handler = 0;
    errno = before;
}

int main(int count, char **arguments)
{
    static const struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    struct sigaction action;
    struct bulkmem_workers *workers;
    struct bulkmem_mapping *mapping;
    struct bulkmem_policy *other;

    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    if (count > 1 && strcmp(arguments[1], "init") == 0)
        CHECK(bulkmem_init() == 0);
    raise(SIGALRM);
    CHECK(handled == 1);
    /* Later handlers use a policy of the program. */
    CHECK(bulkmem_policy_load(getenv("POLICY"), &policy) == 0);

    /* Handlers that interrupt everything else. */
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    while (handled < 100) {
        CHECK(bulkmem_init() == 0);
        CHECK(bulkmem_workers_new(1, &workers) == 0);
        bulkmem_workers_free(workers);
        CHECK(bulkmem_map(1, BULKMEM_PAGES_BASE, &mapping) == 0);
        bulkmem_unmap(mapping);
        CHECK(bulkmem_policy_defaults(&other) == 0);
        bulkmem_policy_free(other);
        CHECK(bulkmem_map(1, 12345, &mapping) == BULKMEM_ERROR_ARGUMENT);
        free(malloc(99999));
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    return 0;
}
