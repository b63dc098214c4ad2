/* Policies that the program loads, the counts of looks, and problems. The variable POLICY names a policy file that looks at
 * clears and fills of 8 KiB or more and always finds the memory uncached. "problems" as argument prints the problems.
 */
#include "check.h"

#define LENGTH 100000

static unsigned char memory[LENGTH];

static uint64_t looks(void)
{
    struct bulkmem_looks counts = BULKMEM_LOOKS_INIT;

    RETURNS(0, bulkmem_look_counts(BULKMEM_OPERATION_CLEAR, &counts));
    CHECK(counts.size == sizeof counts);
    return counts.cached + counts.uncached + counts.unmapped;
}

static void loading(void)
{
    struct bulkmem_policy *policy = NULL;

    RETURNS(BULKMEM_ERROR_NULL, bulkmem_policy_load(NULL, &policy));
    RETURNS(BULKMEM_ERROR_NULL, bulkmem_policy_load(getenv("POLICY"), NULL));
    RETURNS(BULKMEM_ERROR_NULL, bulkmem_policy_defaults(NULL));
    RETURNS(BULKMEM_ERROR_POLICY, bulkmem_policy_load("/nowhere/some.policy", &policy));
    CHECK(strstr(bulkmem_last_error(), "no such file"));
    RETURNS(BULKMEM_ERROR_POLICY, bulkmem_policy_load("", &policy));
    RETURNS(BULKMEM_ERROR_POLICY, bulkmem_policy_load("/", &policy));
    RETURNS(BULKMEM_ERROR_POLICY, bulkmem_policy_load("/dev/zero", &policy));
    RETURNS(BULKMEM_ERROR_POLICY, bulkmem_policy_load("/proc/self/exe", &policy));
    CHECK(policy == NULL);
    errno = 1234;
    bulkmem_policy_free(NULL);
    CHECK(errno == 1234);
}

/* The method that a policy chooses for clears. */
static int clears_by(const struct bulkmem_policy *policy, const char *method)
{
    char text[80];
    int length = bulkmem_policy_choose(policy, BULKMEM_OPERATION_CLEAR, 99, BULKMEM_INTENT_THROUGHPUT, text, sizeof text);

    CHECK(length == (int)strlen(text));
    return strcmp(text, method) == 0;
}

static void choosing(void)
{
    struct bulkmem_policy *policy;
    uint32_t operation;
    char text[8];

    RETURNS(0, bulkmem_policy_load(getenv("POLICY"), &policy));
    CHECK(clears_by(policy, "portable"));
    CHECK(!clears_by(NULL, "portable"));
#define CHOOSE(operation, intent, size) bulkmem_policy_choose(policy, operation, 1, intent, text, size)
    memset(text, 'x', sizeof text);
    RETURNS(8, CHOOSE(0, 0, 4));
    CHECK(strcmp(text, "por") == 0 && text[4] == 'x');
    RETURNS(8, CHOOSE(0, 0, 1));
    CHECK(strcmp(text, "") == 0);
    RETURNS(8, bulkmem_policy_choose(policy, 0, 1, 0, NULL, 0));
    RETURNS(BULKMEM_ERROR_NULL, bulkmem_policy_choose(policy, 0, 1, 0, NULL, 1));
    RETURNS(BULKMEM_ERROR_LENGTH, CHOOSE(0, 0, SIZE_MAX));
    RETURNS(BULKMEM_ERROR_ARGUMENT, CHOOSE(BULKMEM_OPERATION_PERSIST + 1, 0, sizeof text));
    RETURNS(BULKMEM_ERROR_ARGUMENT, CHOOSE(0, 3, sizeof text));
    for (operation = 0; operation <= BULKMEM_OPERATION_PERSIST; operation++)
        CHECK(CHOOSE(operation, BULKMEM_INTENT_STREAM, sizeof text) > 0);
#undef CHOOSE

    RETURNS(BULKMEM_ERROR_NULL, bulkmem_policy_force(NULL, "clear:c_library"));
    RETURNS(BULKMEM_ERROR_NULL, bulkmem_policy_force(policy, NULL));
    RETURNS(BULKMEM_ERROR_METHOD, bulkmem_policy_force(policy, "clear:c_library,fill:nonsense"));
    CHECK(strstr(bulkmem_last_error(), "nonsense"));
    RETURNS(BULKMEM_ERROR_METHOD, bulkmem_policy_force(policy, "\xFF"));
    CHECK(clears_by(policy, "portable"));
    RETURNS(0, bulkmem_policy_force(policy, "clear:c_library"));
    CHECK(clears_by(policy, "c_library"));
    bulkmem_policy_free(policy);
    RETURNS(0, bulkmem_policy_defaults(&policy));
    CHECK(!clears_by(policy, "portable"));
    bulkmem_policy_free(policy);
}

static void counts(void)
{
    struct {
        struct bulkmem_looks known;
        unsigned char later[64];
    } future;
    struct bulkmem_looks some = BULKMEM_LOOKS_INIT;
    size_t i;

    RETURNS(BULKMEM_ERROR_NULL, bulkmem_look_counts(0, NULL));
    RETURNS(BULKMEM_ERROR_ARGUMENT, bulkmem_look_counts(BULKMEM_OPERATION_PERSIST + 1, &some));
    for (i = 0; i < sizeof some; i++) {
        some.size = i;
        RETURNS(BULKMEM_ERROR_ARGUMENT, bulkmem_look_counts(0, &some));
    }
    CHECK(strstr(bulkmem_last_error(), "BULKMEM_LOOKS_INIT"));
    memset(&future, 0xFF, sizeof future);
    future.known.size = sizeof future - 1;
    RETURNS(0, bulkmem_look_counts(0, &future.known));
    CHECK(future.known.size == sizeof future - 1 && future.known.cached != UINT64_MAX);
    for (i = 0; i < sizeof future.later; i++)
        CHECK(future.later[i] == (i + 1 < sizeof future.later ? 0 : 0xFF));
}

static void clear(const struct bulkmem_options *options)
{
    size_t i;

    memset(memory, 0xEE, sizeof memory);
    RETURNS(0, bulkmem_clear_with(memory + 1, sizeof memory - 2, options));
    for (i = 1; i < sizeof memory - 1; i++)
        CHECK(memory[i] == 0);
    CHECK(memory[0] == 0xEE && memory[i] == 0xEE);
}

static void looking(void)
{
    struct bulkmem_options options = BULKMEM_OPTIONS_INIT;
    struct bulkmem_policy *policy;
    struct bulkmem_workers *workers;
    uint64_t before = looks();

    /* The policy of the process does not look. */
    clear(NULL);
    CHECK(looks() == before);
    RETURNS(0, bulkmem_policy_load(getenv("POLICY"), &policy));
    options.policy = policy;
    clear(&options);
    /* Not if the clock cannot be used. */
    CHECK((looks() > before) == bulkmem_is_looking());
    before = looks();
    options.intent = BULKMEM_INTENT_STREAM;
    clear(&options);
    options.intent = 0;
    options.flags = BULKMEM_NO_LOOK;
    clear(&options);
    options.flags = 0;
    options.method = "c_library";
    clear(&options);
    options.method = NULL;
    CHECK(looks() == before);
    RETURNS(0, bulkmem_workers_new(1, &workers));
    options.workers = workers;
    clear(&options);
    bulkmem_workers_free(workers);
    options.workers = NULL;
    options.threads = 2;
    clear(&options);
    options.threads = 0;
    RETURNS(0, bulkmem_fill_persist_with(memory, 7, sizeof memory, &options));
    CHECK(memory[0] == 7 && memory[sizeof memory - 1] == 7);
    bulkmem_stop_looking();
    CHECK(bulkmem_is_looking() == 0);
    before = looks();
    clear(&options);
    CHECK(looks() == before);
    bulkmem_policy_free(policy);
}

int main(int count, char **arguments)
{
    char text[4096];

    if (count > 1 && strcmp(arguments[1], "problems") == 0) {
        int length = bulkmem_problems(text, sizeof text);

        CHECK(length == (int)strlen(text));
        CHECK(bulkmem_problems(NULL, 0) == length);
        fputs(text, stdout);
        return 0;
    }
    RETURNS(0, bulkmem_problems(text, sizeof text));
    CHECK(strcmp(text, "") == 0);
    RETURNS(BULKMEM_ERROR_NULL, bulkmem_problems(NULL, 1));
    CHECK(bulkmem_is_looking() == 0);
    loading();
    choosing();
    counts();
    looking();
    return 0;
}
