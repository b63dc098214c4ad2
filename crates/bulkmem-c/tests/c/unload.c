/* A program loads the library by dlopen, uses it, and unloads it while there are workers and a thread with the text of an
 * error. The library stays where it is, so that neither crashes, and can be loaded again.
 */
#define _POSIX_C_SOURCE 200809L
#include <bulkmem.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                              \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                           \
            exit(1);                                                                                                  \
        }                                                                                                             \
    } while (0)

#define LENGTH (1u << 20)
#define LIBRARY "libbulkmem.so.0"

static pthread_barrier_t barrier;
static void *library;

/* ISO C has no conversion of a pointer to a function. */
static void find(const char *name, void *function)
{
    void *address = dlsym(library, name);

    CHECK(address);
    memcpy(function, &address, sizeof address);
}

static void *fails(void *unused)
{
    int (*clear)(void *, size_t);
    const char *(*last_error)(void);
    const char *text;

    find("bulkmem_clear", &clear);
    find("bulkmem_last_error", &last_error);
    CHECK(clear(NULL, 1) == BULKMEM_ERROR_NULL);
    text = last_error();
    pthread_barrier_wait(&barrier);
    /* The library is closed here. */
    pthread_barrier_wait(&barrier);
    CHECK(strstr(text, "null pointer"));
    return unused;
}

int main(void)
{
    unsigned char *memory = (unsigned char *)malloc(LENGTH);
    struct bulkmem_workers *workers = NULL;
    struct bulkmem_options options = BULKMEM_OPTIONS_INIT;
    int (*new_workers)(size_t, struct bulkmem_workers **);
    void (*free_workers)(struct bulkmem_workers *);
    int (*fill)(void *, int, size_t, const struct bulkmem_options *);
    pthread_t thread;
    int round;

    CHECK(memory && pthread_barrier_init(&barrier, NULL, 2) == 0);
    CHECK(dlopen(LIBRARY, RTLD_NOW | RTLD_NOLOAD) == NULL);
    for (round = 0; round < 5; round++) {
        library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
        CHECK(library);
        find("bulkmem_fill_with", &fill);
        if (round == 0) {
            /* glibc does not unload a library that has thread-local objects, which this call does not create. */
            CHECK(fill(memory, 1, LENGTH, NULL) == 0);
            CHECK(dlclose(library) == 0);
            library = dlopen(LIBRARY, RTLD_NOW | RTLD_NOLOAD);
            CHECK(library);
        }
        find("bulkmem_workers_new", &new_workers);
        find("bulkmem_workers_free", &free_workers);
        if (!workers)
            CHECK(new_workers(2, &workers) == 0);
        options.workers = workers;
        CHECK(fill(memory, round, LENGTH, &options) == 0);
        CHECK(memory[0] == round && memory[LENGTH - 1] == round);
        CHECK(pthread_create(&thread, NULL, fails, NULL) == 0);
        pthread_barrier_wait(&barrier);
        CHECK(dlclose(library) == 0);
        pthread_barrier_wait(&barrier);
        CHECK(pthread_join(thread, NULL) == 0);

        library = dlopen(LIBRARY, RTLD_NOW | RTLD_NOLOAD);
        CHECK(library && dlclose(library) == 0);
        /* What it returned before can still be used. */
        CHECK(fill(memory, 7, LENGTH, &options) == 0);
        if (round % 2) {
            free_workers(workers);
            workers = NULL;
        }
    }
    /* The workers of the last round still exist. */
    free(memory);
    return 0;
}
