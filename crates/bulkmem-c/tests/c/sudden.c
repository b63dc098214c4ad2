/* Memory that runs out during a call does not end the process: each allocation of each call, and all after it, are refused.
 * Not of calls that start threads: Rust's standard library and glibc end the process if those get no memory.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../../../bulkmem-reserve/tests/refuse.h"
#include "check.h"
#include <sys/wait.h>
#include <unistd.h>

#define LENGTH (1u << 20)

static unsigned char memory[LENGTH];
static struct bulkmem_policy *loaded;

static int mapping(uint64_t pages)
{
    struct bulkmem_mapping *mapping = NULL;
    int result = bulkmem_map(LENGTH, pages, &mapping);

    if (result == 0)
        CHECK(*(unsigned char *)bulkmem_mapping_memory(mapping) == 0);
    bulkmem_unmap(mapping);
    return result;
}

static int base(void)
{
    return mapping(BULKMEM_PAGES_BASE);
}

static int transparent(void)
{
    return mapping(BULKMEM_PAGES_TRANSPARENT);
}

static int explicit_huge(void)
{
    return mapping(2 << 20);
}

static int defaults(void)
{
    struct bulkmem_policy *policy = NULL;
    int result = bulkmem_policy_defaults(&policy);

    bulkmem_policy_free(policy);
    return result;
}

static int load(void)
{
    struct bulkmem_policy *policy = NULL;
    struct bulkmem_options options = BULKMEM_OPTIONS_INIT;
    int result = bulkmem_policy_load(getenv("POLICY"), &policy);

    if (result == 0) {
        options.policy = policy;
        RETURNS(0, bulkmem_fill_with(memory, 3, LENGTH, &options));
        CHECK(memory[0] == 3 && memory[LENGTH - 1] == 3);
    }
    bulkmem_policy_free(policy);
    return result;
}

static int missing(void)
{
    struct bulkmem_policy *policy = NULL;

    return bulkmem_policy_load("/nonexistent/policy", &policy);
}

static int choose(void)
{
    char text[80];

    return bulkmem_policy_choose(loaded, BULKMEM_OPERATION_CLEAR, LENGTH, BULKMEM_INTENT_THROUGHPUT, text, sizeof text) < 0;
}

static int force(void)
{
    return bulkmem_policy_force(loaded, "clear:c_library");
}

static int problems(void)
{
    char text[300];

    return bulkmem_problems(text, sizeof text) < 0;
}

static int pool(void)
{
    int fd = -1, result = bulkmem_pool_memory(LENGTH, NULL, &fd, NULL);

    if (result == 0)
        close(fd);
    return result;
}

/* Returns true if the call made all its allocations. */
static int complete(const char *name, int (*call)(void), long allocations)
{
    int status;
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        int result;

        errno = 1234;
        refused = 0;
        left = allocations;
        result = call();
        left = EVERY_ALLOCATION;
        CHECK(errno == 1234);
        CHECK(result == 0 || refused > 0 || call == missing || call == explicit_huge);
        _exit(refused > 0 ? 3 : 0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 3)) {
        fprintf(stderr, "%s, after %ld allocations: status %#x\n", name, allocations, (unsigned)status);
        exit(1);
    }
    return WEXITSTATUS(status) == 0;
}

int main(void)
{
    static const struct {
        const char *name;
        int (*call)(void);
    } calls[] = {
        {"init", bulkmem_init}, {"base", base},         {"transparent", transparent}, {"explicit", explicit_huge},
        {"defaults", defaults}, {"load", load},         {"missing", missing},         {"choose", choose},
        {"force", force},       {"problems", problems}, {"pool", pool},
    };
    size_t number;

    CHECK(bulkmem_policy_load(getenv("POLICY"), &loaded) == 0);
    for (number = 0; number < sizeof calls / sizeof *calls; number++) {
        long allocations = 0;

        while (!complete(calls[number].name, calls[number].call, allocations))
            allocations++;
        if (allocations == 0) {
            fprintf(stderr, "%s allocates nothing, which shows nothing\n", calls[number].name);
            return 1;
        }
    }
    bulkmem_policy_free(loaded);
    return 0;
}
