/* Children of a process whose threads are within calls of the library can call every function. A child that hangs is
 * ended by an alarm, and the test fails.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "every_call.h"
#include <pthread.h>
#include <sys/wait.h>

#define LENGTH (1u << 20)

static int stop; /* C++ has no _Atomic */
static struct bulkmem_workers *workers;

static void *busy(void *unused)
{
    unsigned char *memory = (unsigned char *)malloc(2 * LENGTH);

    CHECK(memory);
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
        every_call(memory, memory + LENGTH, LENGTH, workers);
    free(memory);
    return unused;
}

int main(void)
{
    static unsigned char memory[2 * LENGTH];
    pthread_t threads[2];
    int i, status;

    CHECK(bulkmem_workers_new(2, &workers) == 0);
    for (i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, busy, NULL) == 0);
    for (i = 0; i < 40; i++) {
        pid_t child = fork();

        CHECK(child >= 0);
        if (child == 0) {
            alarm(60);
            every_call(memory, memory + LENGTH, LENGTH, workers);
            bulkmem_stop_looking();
            bulkmem_workers_free(workers);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    bulkmem_workers_free(workers);
    return 0;
}
