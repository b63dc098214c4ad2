/* Many threads call every function at the same time, each on memory of its own; they share workers and a policy. */
#include "check.h"
#include <pthread.h>

#define THREADS 8
#define ROUNDS 20
#define LENGTH 200000

static struct bulkmem_workers *workers;
static struct bulkmem_policy *policy;
static unsigned char memory[THREADS][LENGTH], copies[THREADS][LENGTH];

static void policies(struct bulkmem_options *options, unsigned char *mine)
{
    struct bulkmem_look_counts counts = BULKMEM_LOOK_COUNTS_INIT;
    struct bulkmem_policy *own;
    char text[80];

    RETURNS(0, bulkmem_policy_load(getenv("POLICY"), &own));
    RETURNS(0, bulkmem_policy_force(own, "clear:c_library"));
    options->policy = own;
    RETURNS(0, bulkmem_clear_with(mine, LENGTH, options));
    bulkmem_policy_free(own);
    RETURNS(0, bulkmem_policy_defaults(&own));
    bulkmem_policy_free(own);
    CHECK(bulkmem_policy_choose(policy, 0, LENGTH, 0, text, sizeof text) > 0);
    CHECK(bulkmem_policy_choose(NULL, 0, LENGTH, 0, text, sizeof text) > 0);
    RETURNS(0, bulkmem_problems(text, sizeof text));
    RETURNS(0, bulkmem_look_counts(BULKMEM_OPERATION_FILL, &counts));
    options->policy = policy;
}

static void *calls(void *argument)
{
    const size_t number = (size_t)argument;
    unsigned char *mine = memory[number], *copy = copies[number];
    struct bulkmem_options options = BULKMEM_OPTIONS_INIT;
    struct bulkmem_mapping *mapping;
    struct bulkmem_workers *own;
    char text[40];
    size_t round, i;

    for (round = 0; round < ROUNDS; round++) {
        int byte = (int)(number * ROUNDS + round);

        /* The first of these loads the policy of the process. */
        RETURNS(0, bulkmem_fill(mine, byte, LENGTH));
        options.intent = 100 + (uint32_t)byte;
        RETURNS(BULKMEM_ERROR_ARGUMENT, bulkmem_clear_with(mine, LENGTH, &options));
        options.intent = 0;
        if (number == round % THREADS) {
            RETURNS(0, bulkmem_init());
            policies(&options, copy);
            RETURNS(0, bulkmem_workers_new(1, &own));
            options.workers = own;
            RETURNS(0, bulkmem_fill_with(copy, byte, LENGTH, &options));
            bulkmem_workers_free(own);
            RETURNS(0, bulkmem_map(LENGTH, BULKMEM_PAGES_BASE, &mapping));
            RETURNS(0, bulkmem_copy(bulkmem_mapping_memory(mapping), mine, LENGTH));
            bulkmem_unmap(mapping);
        }
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
