/* Children of a process whose threads are within calls of the library can call every function. A child that hangs is
 * ended by an alarm, and the test fails.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define LENGTH (1u << 20)

static int stop; /* C++ has no _Atomic */
static struct bulkmem_workers *workers;

static void every_call(unsigned char *memory)
{
    struct bulkmem_options options = BULKMEM_OPTIONS_INIT;
    struct bulkmem_workers *own;
    struct bulkmem_mapping *mapping;
    struct bulkmem_policy *policy;
    char text[80];

    RETURNS(0, bulkmem_clear(memory, LENGTH));
    RETURNS(0, bulkmem_fill_persist(memory, 7, LENGTH));
    options.workers = workers;
    RETURNS(0, bulkmem_fill_with(memory, 5, LENGTH, &options));
    CHECK(memory[0] == 5 && memory[LENGTH - 1] == 5);
    options.workers = NULL;
    options.threads = 2;
    RETURNS(0, bulkmem_fill_with(memory, 6, LENGTH, &options));
    CHECK(memory[0] == 6 && memory[LENGTH - 1] == 6);
    RETURNS(BULKMEM_ERROR_NULL, bulkmem_clear(NULL, 1));
    CHECK(bulkmem_last_error()[0]);
    RETURNS(0, bulkmem_workers_new(1, &own));
    options.workers = own;
    RETURNS(0, bulkmem_clear_with(memory, LENGTH, &options));
    bulkmem_workers_free(own);
    RETURNS(0, bulkmem_map(LENGTH, BULKMEM_PAGES_TRANSPARENT, &mapping));
    RETURNS(0, bulkmem_mapping_prefault(mapping));
    bulkmem_unmap(mapping);
    RETURNS(0, bulkmem_init());
    RETURNS(0, bulkmem_problems(text, sizeof text));
    CHECK(bulkmem_policy_choose(NULL, BULKMEM_OPERATION_CLEAR, LENGTH, 0, text, sizeof text) > 0);
    RETURNS(0, bulkmem_policy_load(getenv("POLICY"), &policy));
    options.workers = NULL;
    options.threads = 0;
    options.policy = policy;
    RETURNS(0, bulkmem_clear_with(memory, LENGTH, &options));
    bulkmem_policy_free(policy);
}

static void *busy(void *unused)
{
    unsigned char *memory = (unsigned char *)malloc(LENGTH);

    CHECK(memory);
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
        every_call(memory);
    free(memory);
    return unused;
}

int main(void)
{
    static unsigned char memory[LENGTH];
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
            every_call(memory);
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
