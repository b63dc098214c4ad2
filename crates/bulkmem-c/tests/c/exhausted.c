/* Without memory, functions that need some fail, and operations work. */
#include "check.h"
#include <sys/resource.h>

int main(void)
{
    static unsigned char memory[1 << 20];
    struct rlimit limit = {64 << 20, 64 << 20};
    struct bulkmem_options options = BULKMEM_OPTIONS_INIT;
    struct bulkmem_workers *workers, *none = NULL;
    struct bulkmem_mapping *mapping = NULL;
    struct bulkmem_policy *policy = NULL, *loaded;
    char text[80];
    /* Compilers remove allocations that are not used. */
    void *volatile last;
    size_t size;
    int fd = -7;

    CHECK(bulkmem_workers_new(1, &workers) == 0);
    CHECK(bulkmem_policy_load(getenv("POLICY"), &loaded) == 0);
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    for (size = 1 << 20; size > 0; size /= 2) {
        do
            last = malloc(size);
        while (last);
    }
    options.threads = 3;
    RETURNS(0, bulkmem_fill_with(memory, 7, sizeof memory, &options));
    CHECK(memory[0] == 7 && memory[sizeof memory - 1] == 7);
    options.threads = 0;
    options.workers = workers;
    RETURNS(0, bulkmem_clear_with(memory, sizeof memory, &options));
    options.policy = loaded;
    RETURNS(0, bulkmem_clear_with(memory, sizeof memory, &options));
    RETURNS(0, bulkmem_fill(memory, 8, sizeof memory));
    CHECK(memory[0] == 8 && memory[sizeof memory - 1] == 8);
    RETURNS(BULKMEM_ERROR_MEMORY, bulkmem_workers_new(1, &none));
    RETURNS(BULKMEM_ERROR_MEMORY, bulkmem_map(1 << 20, BULKMEM_PAGES_BASE, &mapping));
    RETURNS(BULKMEM_ERROR_MEMORY, bulkmem_init());
    RETURNS(BULKMEM_ERROR_MEMORY, bulkmem_policy_defaults(&policy));
    RETURNS(BULKMEM_ERROR_MEMORY, bulkmem_policy_load(getenv("POLICY"), &policy));
    RETURNS(BULKMEM_ERROR_MEMORY, bulkmem_policy_force(loaded, "clear:c_library"));
    RETURNS(BULKMEM_ERROR_MEMORY, bulkmem_policy_choose(loaded, 0, 1, 0, text, sizeof text));
    RETURNS(BULKMEM_ERROR_MEMORY, bulkmem_problems(text, sizeof text));
    RETURNS(BULKMEM_ERROR_MEMORY, bulkmem_pool_memory(1 << 20, NULL, &fd, NULL));
    CHECK(fd == -7 && !none && !mapping && !policy);
    return 0;
}
