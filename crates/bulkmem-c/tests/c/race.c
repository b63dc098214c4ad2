/* What bulkmem_policy_force forbids: a thread uses the policy during the call. ThreadSanitizer must report it. */
#include "check.h"
#include <pthread.h>

static struct bulkmem_policy *policy;

static void *force(void *unused)
{
    int i;

    for (i = 0; i < 100; i++)
        CHECK(bulkmem_policy_force(policy, i % 2 ? "clear:portable" : "clear:c_library") == 0);
    return unused;
}

int main(void)
{
    pthread_t thread;
    char text[80];
    int i;

    CHECK(bulkmem_policy_defaults(&policy) == 0);
    CHECK(pthread_create(&thread, NULL, force, NULL) == 0);
    for (i = 0; i < 1000; i++)
        CHECK(bulkmem_policy_choose(policy, BULKMEM_OPERATION_CLEAR, 1, 0, text, sizeof text) > 0);
    CHECK(pthread_join(thread, NULL) == 0);
    bulkmem_policy_free(policy);
    return 0;
}
