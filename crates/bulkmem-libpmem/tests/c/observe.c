/* Prints everything that a program can observe of libpmem in the working folder: results, errno, whether there is a text
 * of the error, and the files. The same with every implementation.
 */
#define _GNU_SOURCE
#if defined __has_include && __has_include(<libpmem.h>)
#include <libpmem.h>
#else
#include "libpmem_abi.h"
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t sum(const unsigned char *bytes, size_t length)
{
    uint64_t sum = 0xcbf29ce484222325;
    for (size_t at = 0; at < length; at++)
        sum = (sum ^ bytes[at]) * 0x100000001b3;
    return sum;
}

/* A file's size, permissions, whether all blocks are allocated, and contents. */
static void show_file(const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0) {
        printf("    %s: absent\n", path);
        return;
    }
    if (!S_ISREG(status.st_mode)) {
        printf("    %s: not a file\n", path);
        return;
    }
    unsigned char *bytes = malloc((size_t)status.st_size + 1);
    int file = open(path, O_RDONLY);
    ssize_t length = file < 0 ? -1 : read(file, bytes, (size_t)status.st_size);
    printf("    %s: %lld bytes, mode %o, %s, sum %llx\n", path, (long long)status.st_size, status.st_mode & 07777,
           status.st_blocks * 512 >= status.st_size ? "allocated" : "sparse",
           (unsigned long long)(length < 0 ? 1 : sum(bytes, (size_t)length)));
    if (file >= 0)
        close(file);
    free(bytes);
}

static void show(const char *what, int result)
{
    printf("  %s: %d", what, result);
    if (result != 0)
        printf(" errno %d, text: %d", errno, pmem_errormsg()[0] != 0);
    printf("\n");
    errno = 0;
}

/* Maps a file, writes to it in each way, and unmaps it. */
static void map(const char *path, size_t length, int flags, mode_t mode)
{
    size_t mapped = 12345;
    int is_pmem = 12345;
    errno = 0;
    unsigned char *memory = pmem_map_file(path, length, flags, mode, &mapped, &is_pmem);
    printf("map %s, %zu bytes, flags %x, mode %o: ", path ? path : "NULL", length, (unsigned)flags, (unsigned)mode);
    if (memory == NULL) {
        printf("errno %d, text: %d, mapped %zu, is_pmem %d\n", errno, pmem_errormsg()[0] != 0, mapped, is_pmem);
        if (path)
            show_file(path);
        return;
    }
    printf("mapped %zu, is_pmem %d\n", mapped, is_pmem);
    printf("  aligned to 4K: %d, to 2M: %d\n", (uintptr_t)memory % 4096 == 0,
           mapped >= 4 << 20 && (uintptr_t)memory % (2 << 20) == 0);
    if (getenv("PMEM_MMAP_HINT"))
        printf("  at %p\n", (void *)memory);
    printf("  is_pmem: whole %d, none %d, part %d, more %d\n", pmem_is_pmem(memory, mapped), pmem_is_pmem(memory, 0),
           pmem_is_pmem(memory + 1, 1), pmem_is_pmem(memory, mapped + (1 << 20)));
    for (size_t at = 0; at < mapped; at++)
        memory[at] = (unsigned char)(at * 7);
    pmem_persist(memory, mapped);
    if (mapped > 4000) {
        pmem_memset_persist(memory + 10, 0x1a5, 1000);
        pmem_memcpy_nodrain(memory + 2000, memory + 33, 1500);
        pmem_drain();
        pmem_memmove_persist(memory + 100, memory + 50, 3000);
        pmem_memcpy_persist(memory + 50, memory + 60, 3000); /* overlaps: as memmove */
        for (unsigned flags = 0; flags < 64; flags++) {
            pmem_memmove(memory + flags, memory + 8 * flags, 300, flags);
            pmem_memcpy(memory + 3000 + flags, memory + flags, 600, flags);
            pmem_memset(memory + 7 * flags, (int)flags * 0x101, 1 + flags, flags);
        }
        pmem_flush(memory, mapped);
        pmem_drain();
    }
    show("msync", pmem_msync(memory + mapped / 2, mapped / 3));
    show("msync of nothing", pmem_msync(memory, 0));
    show("deep_persist", pmem_deep_persist(memory, mapped));
    show("deep_drain", pmem_deep_drain(memory, mapped));
    pmem_deep_flush(memory, mapped);
    show("unmap at an odd address", pmem_unmap(memory + 1, mapped));
    show("unmap of nothing", pmem_unmap(memory, 0));
    show("unmap", pmem_unmap(memory, mapped));
    show("msync of unmapped memory", pmem_msync(memory, 4096));
    show("deep_drain of unmapped memory", pmem_deep_drain(memory, 4096));
    show_file(path);
}

static void *text_of_another_thread(void *text)
{
    *(int *)text = pmem_errormsg()[0] != 0;
    return NULL;
}

int main(void)
{
    umask(022);
    /* PMEM_IS_PMEM_FORCE counts as the first call of pmem_is_pmem finds it. */
    const char *force = getenv("OBSERVE_FORCE");
    if (force)
        setenv("PMEM_IS_PMEM_FORCE", force, 1);
    printf("is_pmem of nothing: %d\n", pmem_is_pmem(&force, 0));
    if (force)
        unsetenv("PMEM_IS_PMEM_FORCE");
    printf("text at first: %d\n", pmem_errormsg()[0] != 0);
    for (unsigned major = 0; major < 3; major++)
        for (unsigned minor = 0; minor < 4; minor++)
            printf("version %u.%u: %s\n", major, minor, pmem_check_version(major, minor) ? "no" : "yes");
    int text = 0;
    pthread_t thread;
    pthread_create(&thread, NULL, text_of_another_thread, &text);
    pthread_join(thread, NULL);
    printf("text: %d, of another thread: %d\n", pmem_errormsg()[0] != 0, text);
    printf("hw_drain %d, auto_flush %d\n", pmem_has_hw_drain(), pmem_has_auto_flush());

    /* Every combination of flags, those unknown included, on a file that is there, one that is not, and a folder. */
    static const size_t lengths[] = {0, 1, 5000, 9000, SIZE_MAX, (size_t)1 << 63, ((size_t)1 << 63) - 1};
    for (int flags = 0; flags < 32; flags++) {
        for (unsigned at = 0; at < sizeof lengths / sizeof *lengths; at++) {
            FILE *there = fopen("there", "w");
            fprintf(there, "%6000s", "contents");
            fclose(there);
            map("there", lengths[at], flags, 0640);
            unlink("absent");
            map("absent", lengths[at], flags, 0606);
            map(".", lengths[at], flags, 0600);
        }
    }
    map("large", 9 << 20, PMEM_FILE_CREATE, 0666);
    map("large", 0, 0, 0);
    map("large", 5 << 20, PMEM_FILE_CREATE | PMEM_FILE_SPARSE, 0);

    fclose(fopen("empty", "w"));
    map("empty", 0, 0, 0);
    map("there/below", 4096, PMEM_FILE_CREATE, 0600);
    map("no/such/folder", 4096, PMEM_FILE_CREATE, 0600);
    map("", 4096, PMEM_FILE_CREATE, 0600);
    map(NULL, 4096, PMEM_FILE_CREATE, 0600);
    map("/dev/null", 0, 0, 0);
    map("/dev/null", 4096, PMEM_FILE_CREATE, 0600);
    mkfifo("fifo", 0600);
    map("fifo", 4096, PMEM_FILE_CREATE, 0600);
    symlink("nowhere", "dangling");
    map("dangling", 4096, PMEM_FILE_CREATE, 0600);
    symlink("loop", "loop");
    map("loop", 4096, PMEM_FILE_CREATE, 0600);
    char longest[5000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    map(longest, 4096, PMEM_FILE_CREATE, 0600);
    map("negative flags", 0, -1, 0);

    int local = 0;
    printf("is_pmem of the stack: %d\n", pmem_is_pmem(&local, sizeof local));
    printf("is_pmem around the end of the addresses: %d\n", pmem_is_pmem((void *)-16, 64));
    unsigned char *anonymous =
        mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("is_pmem of other memory: %d\n", pmem_is_pmem(anonymous, 8192));
    show("msync of other memory", pmem_msync(anonymous, 8192));
    show("deep_persist of other memory", pmem_deep_persist(anonymous, 8192));
    show("unmap other memory", pmem_unmap(anonymous, 8192));

    /* No memory, and lengths that reach past the end of the addresses. */
    static const size_t past[] = {0, 4096, (size_t)1 << 63, SIZE_MAX - 4095, SIZE_MAX};
    for (unsigned at = 0; at < sizeof past / sizeof *past; at++) {
        printf("%zu bytes: is_pmem of NULL %d, of the stack %d\n", past[at], pmem_is_pmem(NULL, past[at]),
               pmem_is_pmem(&local, past[at]));
        show("msync of NULL", pmem_msync(NULL, past[at]));
        show("deep_drain of NULL", pmem_deep_drain(NULL, past[at]));
        if (past[at] > 4096) {
            void *inside = (void *)((uintptr_t)&local & ~(uintptr_t)4095);
            show("msync of more than there is", pmem_msync(inside, past[at]));
            show("deep_drain of more than there is", pmem_deep_drain(inside, past[at]));
            show("unmap more than there is", pmem_unmap(inside, past[at]));
        }
        show("unmap NULL", pmem_unmap(NULL, past[at]));
    }
    return 0;
}
