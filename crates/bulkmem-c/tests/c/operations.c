/* Every function: what it does, the codes for bad input, and errno. */
#include "check.h"

#define LARGE ((3u << 20) + 5)
#define HUGE_PAGE ((size_t)2 << 20)

static unsigned char *dst, *src;

static const size_t lengths[] = {0, 1, 63, 64, 65, 4096, 4097, 200000, LARGE};
static const size_t some = sizeof lengths / sizeof *lengths;

/* The bytes of `dst` from 1 on, after a call with that length, which left the bytes around them. */
static void expect(size_t length, const unsigned char *from, int byte)
{
    size_t at;

    CHECK(dst[0] == 0xEE && dst[length + 1] == 0xEE);
    for (at = 0; at < length; at++)
        CHECK(dst[at + 1] == (from ? from[at] : byte));
    memset(dst, 0xEE, length + 2);
}

static void operations(const struct bulkmem_options *options)
{
    size_t i;

    for (i = 0; i < some; i++) {
        size_t n = lengths[i];
        unsigned char *to = dst + 1, *from = src + 3;

        RETURNS(0, bulkmem_clear_with(to, n, options));
        expect(n, NULL, 0);
        RETURNS(0, bulkmem_fill_with(to, 0x1A5, n, options));
        expect(n, NULL, 0xA5);
        RETURNS(0, bulkmem_copy_with(to, from, n, options));
        expect(n, from, 0);
        RETURNS(0, bulkmem_move_with(to, from, n, options));
        expect(n, from, 0);
        RETURNS(0, bulkmem_clear_hot(to, n, n / 3, n / 2, options));
        expect(n, NULL, 0);
        RETURNS(0, bulkmem_clear_persist_with(to, n, options));
        expect(n, NULL, 0);
        RETURNS(0, bulkmem_fill_persist_with(to, 0x1A5, n, options));
        expect(n, NULL, 0xA5);
        RETURNS(0, bulkmem_copy_persist_with(to, from, n, options));
        expect(n, from, 0);
        RETURNS(0, bulkmem_persist_with(to, n, options));
        bulkmem_fence();
    }
}

static void plain_operations(void)
{
    size_t i;

    for (i = 0; i < some; i++) {
        size_t n = lengths[i];
        unsigned char *to = dst + 1, *from = src + 3;

        RETURNS(0, bulkmem_clear(to, n));
        expect(n, NULL, 0);
        RETURNS(0, bulkmem_fill(to, 0x1A5, n));
        expect(n, NULL, 0xA5);
        RETURNS(0, bulkmem_copy(to, from, n));
        expect(n, from, 0);
        RETURNS(0, bulkmem_move(to, from, n));
        expect(n, from, 0);
        RETURNS(0, bulkmem_clear_persist(to, n));
        expect(n, NULL, 0);
        RETURNS(0, bulkmem_fill_persist(to, 0x1A5, n));
        expect(n, NULL, 0xA5);
        RETURNS(0, bulkmem_copy_persist(to, from, n));
        expect(n, from, 0);
        RETURNS(0, bulkmem_persist(to, n));
    }
}

static void overlapping(void)
{
    struct bulkmem_options options = BULKMEM_OPTIONS_INIT;
    size_t i, shift;

    for (i = 2; i < some; i++) {
        for (shift = 1; shift < 4; shift++) {
            size_t n = lengths[i] - shift;

            memcpy(dst + 1, src, n + shift);
            RETURNS(0, bulkmem_move(dst + 1 + shift, dst + 1, n));
            CHECK(memcmp(dst + 1 + shift, src, n) == 0);
            RETURNS(0, bulkmem_move(dst + 1, dst + 1 + shift, n));
            CHECK(memcmp(dst + 1, src, n) == 0);
            options.flags = BULKMEM_NO_FENCE;
            RETURNS(0, bulkmem_move_with(dst + 1 + shift, dst + 1, n, &options));
            CHECK(memcmp(dst + 1 + shift, src, n) == 0);
            RETURNS(BULKMEM_ERROR_OVERLAP, bulkmem_copy(dst + 1 + shift, dst + 1, n));
            RETURNS(BULKMEM_ERROR_OVERLAP, bulkmem_copy_with(dst + 1, dst + 1 + shift, n, &options));
            RETURNS(BULKMEM_ERROR_OVERLAP, bulkmem_copy_persist(dst + 1, dst + 1, n));
            CHECK(strstr(bulkmem_last_error(), "bulkmem_move"));
            CHECK(memcmp(dst + 1 + shift, src, n) == 0);
        }
    }
    memset(dst, 0xEE, LARGE + 2);
}

/* No call reads or writes anything. */
static void bad_ranges(const struct bulkmem_options *options)
{
    static char byte = 7;
    const size_t wrapping[] = {SIZE_MAX, SIZE_MAX - 1, (size_t)PTRDIFF_MAX + 1, SIZE_MAX - (size_t)&byte + 1};
    size_t i;

    RETURNS(BULKMEM_ERROR_NULL, bulkmem_clear(NULL, 1));
    RETURNS(BULKMEM_ERROR_NULL, bulkmem_fill(NULL, 1, SIZE_MAX));
    RETURNS(BULKMEM_ERROR_NULL, bulkmem_copy(NULL, &byte, 1));
    RETURNS(BULKMEM_ERROR_NULL, bulkmem_copy(&byte, NULL, 1));
    RETURNS(BULKMEM_ERROR_NULL, bulkmem_move(NULL, NULL, 1));
    RETURNS(BULKMEM_ERROR_NULL, bulkmem_persist(NULL, 1));
    RETURNS(BULKMEM_ERROR_NULL, bulkmem_clear_persist(NULL, 1));
    RETURNS(BULKMEM_ERROR_NULL, bulkmem_fill_persist(NULL, 1, 1));
    RETURNS(BULKMEM_ERROR_NULL, bulkmem_copy_persist(&byte, NULL, 1));
    RETURNS(BULKMEM_ERROR_NULL, bulkmem_clear_hot(NULL, 1, 0, 1, options));
    RETURNS(0, bulkmem_clear(NULL, 0));
    RETURNS(0, bulkmem_copy(NULL, NULL, 0));
    RETURNS(0, bulkmem_persist(NULL, 0));
    for (i = 0; i < sizeof wrapping / sizeof *wrapping; i++) {
        size_t n = wrapping[i];

        RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_clear(&byte, n));
        RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_clear_with(&byte, n, options));
        RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_fill(&byte, 1, n));
        RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_fill_with(&byte, 1, n, options));
        RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_copy(&byte, src, n));
        RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_copy_with(&byte, src, n, options));
        RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_move(&byte, src, n));
        RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_move_with(&byte, src, n, options));
        RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_persist(&byte, n));
        RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_persist_with(&byte, n, options));
        RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_clear_persist(&byte, n));
        RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_clear_persist_with(&byte, n, options));
        RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_fill_persist(&byte, 1, n));
        RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_fill_persist_with(&byte, 1, n, options));
        RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_copy_persist(&byte, src, n));
        RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_copy_persist_with(&byte, src, n, options));
        RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_clear_hot(&byte, n, 0, 1, options));
    }
    RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_clear_hot(&byte, 1, 1, 1, options));
    RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_clear_hot(&byte, 1, 1, SIZE_MAX, options));
    CHECK(byte == 7);
}

static void bad_options(void)
{
    static const char *const methods[] = {"", "nonsense", "c_library[distance=1]", "c_library[", "\xFF\xFE"};
    struct {
        struct bulkmem_options known;
        unsigned char later[64];
    } future;
    struct bulkmem_options older;
    struct bulkmem_options options = BULKMEM_OPTIONS_INIT;
    char byte = 7;
    size_t i;

#define REFUSED(code) RETURNS(code, bulkmem_fill_with(&byte, 1, 1, &options))
    for (i = 4; i < 64; i++) {
        options.flags = (uint64_t)1 << i;
        REFUSED(BULKMEM_ERROR_ARGUMENT);
    }
    options.flags = BULKMEM_AUTO_THREADS;
    options.threads = 2;
    REFUSED(BULKMEM_ERROR_ARGUMENT);
    options.flags = 0;
    options.threads = 0;
    options.intent = 3;
    REFUSED(BULKMEM_ERROR_ARGUMENT);
    options.intent = UINT32_MAX;
    REFUSED(BULKMEM_ERROR_ARGUMENT);
    options.intent = 0;
    options.durability = 3;
    REFUSED(BULKMEM_ERROR_ARGUMENT);
    CHECK(strstr(bulkmem_last_error(), "durability 3"));
    options.durability = 0;
    for (i = 0; i < sizeof methods / sizeof *methods; i++) {
        options.method = methods[i];
        REFUSED(BULKMEM_ERROR_METHOD);
        CHECK(strstr(bulkmem_last_error(), "the method in the options: "));
        CHECK(!strstr(bulkmem_last_error(), "operation:method"));
    }
    options.method = NULL;
    for (i = 0; i < sizeof options; i++) {
        options.size = i;
        if (i != offsetof(struct bulkmem_options, policy))
            REFUSED(BULKMEM_ERROR_ARGUMENT);
    }
    options.size = SIZE_MAX;
    REFUSED(BULKMEM_ERROR_ARGUMENT);
#undef REFUSED

    /* From a version without policies, whose options end before what is no policy. */
    memset(&older, 0xFF, sizeof older);
    memset(&older, 0, offsetof(struct bulkmem_options, policy));
    older.size = offsetof(struct bulkmem_options, policy);
    RETURNS(0, bulkmem_fill_with(&byte, 6, 1, &older));
    CHECK(byte == 6);

    /* From a later version, whose new members are 0, and then not. */
    memset(&future, 0, sizeof future);
    future.known.size = sizeof future;
    RETURNS(0, bulkmem_fill_with(&byte, 7, 1, &future.known));
    for (i = 0; i < sizeof future.later; i++) {
        future.later[i] = 1;
        RETURNS(BULKMEM_ERROR_ARGUMENT, bulkmem_fill_with(&byte, 1, 1, &future.known));
        future.later[i] = 0;
    }
    CHECK(strstr(bulkmem_last_error(), "later version"));
    CHECK(byte == 7);
}

static void workers(void)
{
    const size_t missing = SIZE_MAX;
    struct bulkmem_workers *threads = NULL;
    struct bulkmem_options options = BULKMEM_OPTIONS_INIT;

    RETURNS(BULKMEM_ERROR_NULL, bulkmem_workers_new(1, NULL));
    RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_workers_new(0, &threads));
    RETURNS(BULKMEM_ERROR_NULL, bulkmem_workers_new_pinned(NULL, 1, &threads));
    RETURNS(BULKMEM_ERROR_NULL, bulkmem_workers_new_pinned(&missing, 1, NULL));
    RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_workers_new_pinned(&missing, 0, &threads));
    RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_workers_new_pinned(&missing, SIZE_MAX, &threads));
    RETURNS(BULKMEM_ERROR_SYSTEM, bulkmem_workers_new_pinned(&missing, 1, &threads));
    CHECK(threads == NULL);
    RETURNS(0, bulkmem_workers_new(2, &threads));
    options.workers = threads;
    operations(&options);
    options.threads = 2;
    operations(&options);
    errno = 1234;
    bulkmem_workers_free(threads);
    bulkmem_workers_free(NULL);
    CHECK(errno == 1234);
}

static void mappings(void)
{
    static const uint64_t kinds[] = {BULKMEM_PAGES_BASE, BULKMEM_PAGES_TRANSPARENT};
    struct bulkmem_mapping *mapping = NULL;
    size_t i, size, length = (2u << 20) + 1;

    for (i = 0; i < 2; i++) {
        unsigned char *memory;

        RETURNS(0, bulkmem_map(length, kinds[i], &mapping));
        memory = (unsigned char *)bulkmem_mapping_memory(mapping);
        CHECK(memory && memory[0] == 0 && memory[length - 1] == 0);
        RETURNS(0, bulkmem_mapping_prefault(mapping));
        RETURNS(0, bulkmem_fill(memory, 7, length));
        CHECK(memory[0] == 7 && memory[length - 1] == 7);
        RETURNS(0, bulkmem_mapping_page_size(mapping, &size));
        CHECK(size >= 4096 && (size & (size - 1)) == 0);
        RETURNS(BULKMEM_ERROR_NULL, bulkmem_mapping_page_size(mapping, NULL));
        errno = 1234;
        bulkmem_unmap(mapping);
        CHECK(errno == 1234);
    }
    mapping = NULL;
    RETURNS(BULKMEM_ERROR_NULL, bulkmem_map(1, BULKMEM_PAGES_BASE, NULL));
    RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_map(0, BULKMEM_PAGES_BASE, &mapping));
    RETURNS(BULKMEM_ERROR_LENGTH, bulkmem_map(SIZE_MAX, BULKMEM_PAGES_BASE, &mapping));
    /* Valgrind refuses it with another code than the kernel. */
    CHECK(bulkmem_map((size_t)1 << 60, BULKMEM_PAGES_BASE, &mapping) < 0);
    RETURNS(BULKMEM_ERROR_ARGUMENT, bulkmem_map(1, 12345, &mapping));
    RETURNS(BULKMEM_ERROR_NULL, bulkmem_mapping_prefault(NULL));
    RETURNS(BULKMEM_ERROR_NULL, bulkmem_mapping_page_size(NULL, &size));
    CHECK(bulkmem_mapping_memory(NULL) == NULL && mapping == NULL);
    bulkmem_unmap(NULL);
}

/* Maps so many huge pages of 2 MiB, but for the last byte; prints the error. */
static void huge_pages(size_t pages)
{
    struct bulkmem_mapping *mapping = NULL;
    size_t size, length = pages * HUGE_PAGE - 1;
    int code = bulkmem_map(length, HUGE_PAGE, &mapping);

    if (code == 0) {
        unsigned char *memory = (unsigned char *)bulkmem_mapping_memory(mapping);

        RETURNS(0, bulkmem_mapping_page_size(mapping, &size));
        CHECK(size == HUGE_PAGE && (uintptr_t)memory % HUGE_PAGE == 0);
        CHECK(memory[0] == 0 && memory[length - 1] == 0);
        RETURNS(0, bulkmem_mapping_prefault(mapping));
        RETURNS(0, bulkmem_fill(memory, 7, length));
        CHECK(memory[0] == 7 && memory[length - 1] == 7 && memory[length] == 0);
        bulkmem_unmap(mapping);
    }
    printf("%d %s\n", code, bulkmem_last_error());
}

static void library(void)
{
    struct bulkmem_policy *policy;
    char version[32], text[80];
    int code;

    snprintf(version, sizeof version, "%d.%d.%d", BULKMEM_VERSION_MAJOR, BULKMEM_VERSION_MINOR, BULKMEM_VERSION_PATCH);
    CHECK(strcmp(bulkmem_version(), version) == 0);
    CHECK(strcmp(bulkmem_last_error(), "") == 0);
    for (code = BULKMEM_ERROR_CANCELLED; code <= 0; code++)
        CHECK(strcmp(bulkmem_strerror(code), bulkmem_strerror(1)) != 0);
    RETURNS(0, bulkmem_init());
    RETURNS(0, bulkmem_problems(text, sizeof text));
    RETURNS(0, bulkmem_policy_defaults(&policy));
    RETURNS(0, bulkmem_policy_force(policy, "clear:c_library"));
    RETURNS(9, bulkmem_policy_choose(policy, BULKMEM_OPERATION_CLEAR, 1, 0, text, sizeof text));
    CHECK(strcmp(text, "c_library") == 0);
    CHECK(bulkmem_policy_choose(NULL, BULKMEM_OPERATION_CLEAR, 1, 0, text, sizeof text) > 0);
    bulkmem_policy_free(policy);
    CHECK(strcmp(bulkmem_last_error(), "") == 0);
}

int main(int count, char **arguments)
{
    struct bulkmem_options options = BULKMEM_OPTIONS_INIT;
    size_t i;

    if (count > 1 && strcmp(arguments[1], "init") == 0) {
        int code = bulkmem_init();

        printf("%d %s\n", code, bulkmem_last_error());
        return 0;
    }
    if (count > 2 && strcmp(arguments[1], "huge") == 0) {
        huge_pages(strtoul(arguments[2], NULL, 10));
        return 0;
    }
    dst = (unsigned char *)malloc(LARGE + 2);
    src = (unsigned char *)malloc(LARGE + 3);
    CHECK(dst && src);
    memset(dst, 0xEE, LARGE + 2);
    for (i = 0; i < LARGE + 3; i++)
        src[i] = (unsigned char)(i * 31 % 251);

    /* The first operation loads the policy. */
    plain_operations();
    library();
    operations(NULL);
    for (options.intent = 0; options.intent < 3; options.intent++) {
        for (options.durability = 0; options.durability < 3; options.durability++) {
            options.flags = options.durability == 1 ? BULKMEM_NO_FENCE | BULKMEM_NO_LOOK : BULKMEM_POPULATE;
            options.total_len = options.durability == 2 ? (size_t)1 << 34 : 0;
            operations(&options);
        }
    }
    options.intent = options.durability = 0;
    options.total_len = 0;
    options.flags = BULKMEM_AUTO_THREADS;
    operations(&options);
    options.flags = 0;
    options.threads = 3;
    operations(&options);
    options.threads = 0;
    options.method = "c_library";
    RETURNS(0, bulkmem_copy_with(dst + 1, src, 99, &options));
    expect(99, src, 0);
    options.method = NULL;

    overlapping();
    bad_ranges(&options);
    bad_options();
    workers();
    mappings();
    bulkmem_stop_looking();
    plain_operations();
    free(dst);
    free(src);
    return 0;
}
