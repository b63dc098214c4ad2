/* Many threads call every function at the same time, each on memory of its own; they share workers and a policy. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "every_call.h"
#include <pthread.h>

#define THREADS 8
#define ROUNDS 20
#define LENGTH 200000

static struct bulkmem_workers *workers;
static struct bulkmem_policy *policy;
static unsigned char memory[THREADS][LENGTH], copies[THREADS][LENGTH];

static void *calls(void *argument)
{
    const size_t number = (size_t)argument;
    unsigned char *mine = memory[number], *copy = copies[number];
    struct bulkmem_options options = BULKMEM_OPTIONS_INIT;
    char text[40];
    size_t round, i;

    for (round = 0; round < ROUNDS; round++) {
        int byte = (int)(number * ROUNDS + round);

        /* The first of these loads the policy of the process. */
        RETURNS(0, bulkmem_fill(mine, byte, LENGTH));
        if (number == round % THREADS) {
            every_call(mine, copy, LENGTH, workers);
            RETURNS(0, bulkmem_fill(mine, byte, LENGTH));
        }
        if (number == 0 && round == ROUNDS - 1)
            bulkmem_stop_looking();
        options.intent = 100 + (uint32_t)byte;
        RETURNS(BULKMEM_ERROR_ARGUMENT, bulkmem_clear_with(mine, LENGTH, &options));
        options.intent = 0;
        options.workers = workers;
        options.policy = policy;
        RETURNS(0, bulkmem_copy_with(copy, mine, LENGTH, &options));
        options.workers = NULL;
        options.threads = 2;
        RETURNS(0, bulkmem_fill_with(mine, byte + 1, LENGTH, &options));
        options.threads = 0;
        options.total_len = (size_t)1 << 30;
        RETURNS(0, bulkmem_fill_with(mine, byte + 2, 8192, &options));
        options.total_len = 0;
        for (i = 0; i < LENGTH; i++) {
            CHECK(copy[i] == (unsigned char)byte);
            CHECK(mine[i] == (unsigned char)(byte + (i < 8192 ? 2 : 1)));
        }
        /* Each thread has a text of its own. */
        snprintf(text, sizeof text, "unknown intent %d", 100 + byte);
        CHECK(strcmp(bulkmem_last_error(), text) == 0);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    size_t i;

    CHECK(bulkmem_workers_new(2, &workers) == 0);
    CHECK(bulkmem_policy_load(getenv("POLICY"), &policy) == 0);
    for (i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, calls, (void *)i) == 0);
    for (i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    bulkmem_policy_free(policy);
    bulkmem_workers_free(workers);
    return 0;
}
