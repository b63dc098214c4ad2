/* Calls every function of the library but bulkmem_stop_looking, which would change what other threads do. */
#ifndef EVERY_CALL_H
#define EVERY_CALL_H

#include "check.h"
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

/* The workers are shared with other threads; the memory is the caller's: two ranges of this length. */
static void every_call(unsigned char *memory, unsigned char *other, size_t length, const struct bulkmem_workers *shared)
{
    struct bulkmem_options options = BULKMEM_OPTIONS_INIT;
    struct bulkmem_pool_options pool = BULKMEM_POOL_OPTIONS_INIT;
    struct bulkmem_looks counts = BULKMEM_LOOKS_INIT;
    struct bulkmem_workers *own;
    struct bulkmem_mapping *mapping;
    struct bulkmem_policy *policy;
    int running_on = sched_getcpu();
    size_t processor = (size_t)running_on, page = 0;
    uint64_t ready = 0;
    int file, fresh = -1;
    char text[80];

    CHECK(running_on >= 0);
    RETURNS(0, bulkmem_init());
    RETURNS(0, bulkmem_clear(memory, length));
    RETURNS(0, bulkmem_fill(memory, 1, length));
    RETURNS(0, bulkmem_copy(other, memory, length));
    CHECK(other[0] == 1 && other[length - 1] == 1);
    RETURNS(0, bulkmem_move(memory + 1, memory, length - 1));
    RETURNS(0, bulkmem_fill_persist(memory, 7, length));
    RETURNS(0, bulkmem_copy_persist(other, memory, length));
    CHECK(other[0] == 7 && other[length - 1] == 7);
    RETURNS(0, bulkmem_clear_persist(memory, length));
    RETURNS(0, bulkmem_persist(memory, length));
    RETURNS(0, bulkmem_clear_hot(memory, length, 0, 4096, NULL));
    CHECK(memory[0] == 0 && memory[length - 1] == 0);

    /* By threads that are shared, that start for the call, and that the caller keeps, by a method and a policy. */
    options.workers = shared;
    RETURNS(0, bulkmem_fill_with(memory, 5, length, &options));
    CHECK(memory[0] == 5 && memory[length - 1] == 5);
    options.workers = NULL;
    options.threads = 2;
    RETURNS(0, bulkmem_copy_with(other, memory, length, &options));
    CHECK(other[0] == 5 && other[length - 1] == 5);
    options.threads = 0;
    RETURNS(0, bulkmem_workers_new(1, &own));
    options.workers = own;
    RETURNS(0, bulkmem_clear_with(memory, length, &options));
    bulkmem_workers_free(own);
    RETURNS(0, bulkmem_workers_new_pinned(&processor, 1, &own));
    options.workers = own;
    RETURNS(0, bulkmem_fill_persist_with(memory, 6, length, &options));
    bulkmem_workers_free(own);
    options.workers = NULL;
    options.method = "c_library";
    RETURNS(0, bulkmem_move_with(other, memory, length, &options));
    CHECK(other[0] == 6 && other[length - 1] == 6);
    options.method = NULL;
    RETURNS(0, bulkmem_policy_defaults(&policy));
    bulkmem_policy_free(policy);
    RETURNS(0, bulkmem_policy_load(getenv("POLICY"), &policy));
    RETURNS(0, bulkmem_policy_force(policy, "clear:c_library"));
    options.policy = policy;
    options.flags = BULKMEM_NO_FENCE;
    RETURNS(0, bulkmem_clear_persist_with(memory, length, &options));
    RETURNS(0, bulkmem_copy_persist_with(other, memory, length, &options));
    RETURNS(0, bulkmem_persist_with(memory, length, &options));
    bulkmem_fence();
    CHECK(other[0] == 0 && other[length - 1] == 0);
    CHECK(bulkmem_policy_choose(policy, BULKMEM_OPERATION_CLEAR, length, 0, text, sizeof text) > 0);
    CHECK(bulkmem_policy_choose(NULL, BULKMEM_OPERATION_CLEAR, length, 0, text, sizeof text) > 0);
    bulkmem_policy_free(policy);

    RETURNS(0, bulkmem_map(length, BULKMEM_PAGES_TRANSPARENT, &mapping));
    RETURNS(0, bulkmem_mapping_page_size(mapping, &page));
    RETURNS(0, bulkmem_mapping_prefault(mapping));
    RETURNS(0, bulkmem_copy(bulkmem_mapping_memory(mapping), memory, length));
    RETURNS(0, bulkmem_prefault(bulkmem_mapping_memory(mapping), length, NULL, &ready));
    CHECK(page >= 4096 && ready == length);
    bulkmem_unmap(mapping);
    file = memfd_create("every_call", MFD_CLOEXEC);
    CHECK(file >= 0 && ftruncate(file, 8192) == 0);
    RETURNS(0, bulkmem_prefault_file(file, 0, 8192, NULL, &ready));
    CHECK(ready == 8192 && close(file) == 0);
    pool.socket = "/nonexistent/socket";
    RETURNS(0, bulkmem_pool_memory(8192, &pool, &fresh, NULL));
    CHECK(close(fresh) == 0);

    RETURNS(0, bulkmem_problems(text, sizeof text));
    RETURNS(0, bulkmem_look_counts(BULKMEM_OPERATION_FILL, &counts));
    CHECK(bulkmem_is_looking() == 0 || bulkmem_is_looking() == 1);
    RETURNS(BULKMEM_ERROR_NULL, bulkmem_clear(NULL, 1));
    CHECK(bulkmem_last_error()[0] && bulkmem_strerror(-1)[0] && bulkmem_version()[0]);
}

#endif
