/* Functions of the preloaded library in situations that a program may bring about. The argument names one. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/ucontext.h>
#include <sys/wait.h>
#include <unistd.h>

extern int early(void);
void *__memcpy_chk(void *, const void *, size_t, size_t), *__memmove_chk(void *, const void *, size_t, size_t);
void *__mempcpy_chk(void *, const void *, size_t, size_t), *__memset_chk(void *, int, size_t, size_t);
void __explicit_bzero_chk(void *, size_t, size_t);

/* The memcpy of programs that were linked before 2010, which is memmove. */
void *old_memcpy(void *, const void *, size_t);
__asm__(".symver old_memcpy, memcpy@GLIBC_2.2.5");

enum { MOST = 5 << 20 };
static const size_t lengths[] = {0, 8, 200, 16383, 16384, 70001, 300000, MOST};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static void need(int condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "failed: %s (errno %d)\n", what, errno);
        _exit(1);
    }
}

static char *map(size_t length)
{
    char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(memory != MAP_FAILED, "mmap");
    return memory;
}

/* Whether all of the bytes are that. Looks at one byte of each 61. */
static int all(const char *memory, size_t length, char byte)
{
    size_t at;
    for (at = 0; at < length; at += 61)
        if (memory[at] != byte)
            return 0;
    return length == 0 || memory[length - 1] == byte;
}

/* Copies, moves, fills and clears of all lengths in memory of 2 * MOST bytes. Makes no system call. */
static int work(char *memory)
{
    int right = 1;
    size_t at;
    for (at = 0; at < LENGTHS; at++) {
        size_t length = lengths[at];
        char *other = memory + MOST;
        right &= memset(memory, 0x5a, length) == memory && all(memory, length, 0x5a);
        right &= memcpy(other, memory, length) == other && all(other, length, 0x5a);
        bzero(memory, length);
        right &= all(memory, length, 0);
        right &= mempcpy(other, memory, length) == other + length && all(other, length, 0);
        right &= memset(other, 1, length) == other && memmove(other - 1, other, length) == other - 1;
        right &= all(other - 1, length, 1);
        /* As behind a header: 8 bytes after the source modulo the page size. */
        if (length < MOST)
            right &= memcpy(other + 8, memory, length) == other + 8 && all(other + 8, length, 0);
    }
    return right;
}

static void handler(int signal)
{
    static char memory[2 * MOST];
    static volatile sig_atomic_t count;
    (void)signal;
    if (!work(memory))
        _exit(3);
    count++;
}

/* Handlers interrupt the same functions. */
static void signals(void)
{
    struct sigaction action = {.sa_handler = handler};
    struct itimerval often = {{0, 20000}, {0, 1000}};
    char *memory = map(2 * MOST);
    int round;
    need(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0, "timer");
    for (round = 0; round < 100; round++)
        need(work(memory), "bytes between signals");
}

/* A handler on a small stack of its own. */
static void small_stack(void)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    stack_t stack = {.ss_size = sysconf(_SC_MINSIGSTKSZ) + 2048};
    stack.ss_sp = map(stack.ss_size);
    need(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0, "sigaltstack");
    need(raise(SIGUSR1) == 0, "raise");
}

static void *work_on(void *stop)
{
    char *memory = map(2 * MOST);
    do
        need(work(memory), "bytes in a thread");
    while (!*(volatile int *)stop);
    return NULL;
}

/* Children of a process whose other thread is in the middle of a call. */
static void forks(void)
{
    int stop = 0, round, status;
    char *memory = map(2 * MOST);
    pthread_t thread;
    need(pthread_create(&thread, NULL, work_on, &stop) == 0, "thread");
    for (round = 0; round < 20; round++) {
        pid_t child = fork();
        need(child >= 0, "fork");
        if (child == 0)
            _exit(!work(memory));
        need(waitpid(child, &status, 0) == child && status == 0, "the child's bytes");
    }
    stop = 1;
    pthread_join(thread, NULL);
}

/* The same in several threads at a time. */
static void threads(void)
{
    enum { THREADS = 4 };
    int stop = 0, at;
    pthread_t thread[THREADS];
    for (at = 0; at < THREADS; at++)
        need(pthread_create(&thread[at], NULL, work_on, &stop) == 0, "thread");
    usleep(300000);
    stop = 1;
    for (at = 0; at < THREADS; at++)
        need(pthread_join(thread[at], NULL) == 0, "join");
}

static void end(int right)
{
    static const char message[] = "wrong bytes\n";
    if (!right)
        syscall(SYS_write, 2, message, sizeof message - 1);
    syscall(SYS_exit, !right);
}

/* The kernel kills a process in this mode that makes another system call than read, write and exit, and forbids it to read
 * the clock. */
static void strict(void)
{
    char *memory = map(2 * MOST);
    need(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0, "strict mode");
    end(work(memory));
}

/* A filter that kills the process at any system call but write and exit. */
static void filter(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    char *memory = map(2 * MOST);
    need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges");
    need(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "filter");
    end(work(memory));
}

static volatile sig_atomic_t trapped;

/* Counts a system call, which succeeds without doing anything. */
static void trap(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    trapped++;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = 0;
}

/* Prints how often a fill of 1 MiB, and one of 256 KiB after it, call madvise. */
static void populates(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    struct sigaction action = {.sa_sigaction = trap, .sa_flags = SA_SIGINFO};
    enum { PORTION = 512 << 10 };
    char *memory = map(4 * PORTION);
    int first;
    memory += -(uintptr_t)memory % PORTION;
    need(sigaction(SIGSYS, &action, NULL) == 0, "sigaction");
    need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges");
    need(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "filter");
    errno = 77;
    memset(memory, 7, 2 * PORTION);
    first = trapped;
    memset(memory, 8, PORTION / 2);
    need(errno == 77, "errno");
    need(all(memory, PORTION / 2, 8) && all(memory + PORTION / 2, 3 * PORTION / 2, 7), "bytes");
    printf("%d, %d\n", first, (int)trapped - first);
}

/* Reading the clock raises SIGSEGV. */
static void no_clock(void)
{
    int mode = 0;
    char *memory = map(2 * MOST);
    need(prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0) == 0, "PR_SET_TSC");
    need(prctl(PR_GET_TSC, &mode, 0, 0, 0) == 0 && mode == PR_TSC_SIGSEGV, "PR_GET_TSC");
    need(work(memory), "bytes without a clock");
}

/* prctl fails as it does without the library. */
static void bad_prctl(void)
{
    errno = 0;
    need(prctl(-1, 0, 0, 0, 0) == -1 && errno == EINVAL, "an unknown option");
    need(prctl(PR_SET_TSC, 77, 0, 0, 0) == -1 && errno == EINVAL, "an unknown mode");
}

/* The upper halves of the vector registers that AVX has are clear: 1 if they are not. */
static int upper_in_use(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
    return low >> 2 & 1;
}

static void vectors(void)
{
    unsigned a = 0, b, c, d;
    char *memory = map(2 * MOST);
    size_t at;
    if (!__get_cpuid_count(1, 0, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_AVX) ||
        !__get_cpuid_count(0xd, 1, &a, &b, &c, &d) || !(a & 4)) {
        puts("skipped: this processor does not say which registers are in use");
        return;
    }
    __asm__ volatile("vzeroupper");
    if (upper_in_use()) {
        puts("skipped: this processor takes cleared registers for used ones");
        return;
    }
    for (at = 0; at < LENGTHS; at++) {
        memset(memory, 3, lengths[at]);
        need(!upper_in_use(), "vzeroupper after memset");
        bzero(memory, lengths[at]);
        need(!upper_in_use(), "vzeroupper after bzero");
        memcpy(memory + MOST, memory, lengths[at]);
        need(!upper_in_use(), "vzeroupper after memcpy");
        if (lengths[at] < MOST)
            memcpy(memory + MOST + 8, memory, lengths[at]);
        need(!upper_in_use(), "vzeroupper after memcpy behind a header");
        memmove(memory + MOST, memory, lengths[at]);
        need(!upper_in_use(), "vzeroupper after memmove");
        need(mempcpy(memory + MOST, memory, lengths[at]) == memory + MOST + lengths[at], "mempcpy");
        need(!upper_in_use(), "vzeroupper after mempcpy");
        explicit_bzero(memory, lengths[at]);
        need(!upper_in_use(), "vzeroupper after explicit_bzero");
    }
}

/* Calls from a stack that is not aligned: memcpy does not depend on that. */
static void stack(void)
{
    char *memory = map(2 * MOST);
    void *returned = memset, *dst = memory;
    size_t length = MOST, byte = 0x77;
    __asm__ volatile("mov %%rsp, %%rbx\n\tand $-16, %%rsp\n\tsub $8, %%rsp\n\tcall *%%rax\n\tmov %%rbx, %%rsp"
                     : "+a"(returned), "+D"(dst), "+S"(byte), "+d"(length)
                     :
                     : "rbx", "rcx", "r8", "r9", "r10", "r11", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4",
                       "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
    need(returned == memory && all(memory, MOST, 0x77), "bytes");
}

/* A length of -1 faults, as in the C library, instead of running on. */
static void segv(int signal)
{
    (void)signal;
    _exit(0);
}

static void endless(const char *function)
{
    volatile size_t length = (size_t)-1;
    char *memory = map(MOST), *source = map(MOST);
    /* Without it, the call may overwrite the dynamic loader's data, which lies above and which calling _exit needs. A copy from the end
       begins below. */
    for (int i = 0; i < 2; i++) {
        char *start = i ? memory : source;
        need(mprotect(start, 1 << 20, PROT_NONE) == 0, "mprotect");
        need(mprotect(start + (2 << 20), MOST - (2 << 20), PROT_NONE) == 0, "mprotect");
    }
    memory += 1 << 20;
    source += 1 << 20;
    signal(SIGSEGV, segv);
    if (strcmp(function, "memset") == 0)
        memset(memory, 1, length);
    if (strcmp(function, "memcpy") == 0)
        memcpy(memory, source, length);
    if (strcmp(function, "memmove") == 0)
        memmove(source, memory, length);
    if (strcmp(function, "bzero") == 0)
        bzero(memory, length);
    if (strcmp(function, "mempcpy") == 0)
        mempcpy(memory, source, length);
    if (strcmp(function, "explicit_bzero") == 0)
        explicit_bzero(memory, length);
    need(0, "returned");
}

/* A null pointer faults, as in the C library, whether the call is short or long. */
static void null(const char *function, size_t length)
{
    char *volatile nothing = NULL;
    char *memory = map(MOST);
    need(length <= MOST, "length");
    signal(SIGSEGV, segv);
    if (strcmp(function, "memset") == 0)
        memset(nothing, 1, length);
    if (strcmp(function, "bzero") == 0)
        bzero(nothing, length);
    if (strcmp(function, "explicit_bzero") == 0)
        explicit_bzero(nothing, length);
    if (strcmp(function, "memcpy") == 0)
        memcpy(nothing, memory, length);
    if (strcmp(function, "memmove") == 0)
        memmove(nothing, memory, length);
    if (strcmp(function, "mempcpy") == 0)
        mempcpy(nothing, memory, length);
    if (strcmp(function, "source") == 0)
        memcpy(memory, nothing, length);
    need(0, "returned");
}

/* A destination that is too short ends the process. */
static void overflow(const char *function)
{
    static char memory[64], source[64];
    volatile size_t length = 33;
    if (strcmp(function, "memcpy") == 0)
        __memcpy_chk(memory, source, length, 32);
    if (strcmp(function, "memmove") == 0)
        __memmove_chk(memory, source, length, 32);
    if (strcmp(function, "mempcpy") == 0)
        __mempcpy_chk(memory, source, length, 32);
    if (strcmp(function, "memset") == 0)
        __memset_chk(memory, 1, length, 32);
    if (strcmp(function, "explicit_bzero") == 0)
        __explicit_bzero_chk(memory, length, 32);
}

/* Prints the library whose instruction faults at the end of the range. */
static void fault(int signal, siginfo_t *info, void *context)
{
    Dl_info found;
    (void)signal, (void)info;
    if (dladdr((void *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP], &found))
        puts(strrchr(found.dli_fname, '/') + 1);
    fflush(stdout);
    _exit(0);
}

static void who(const char *function, size_t length)
{
    struct sigaction action = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO};
    char *memory = map(2 * length + 8192), *other = map(length);
    char *start = memory + (length + 4095) / 4096 * 4096 - length + 1;
    need(mprotect(start + length - 1, 4096, PROT_NONE) == 0, "mprotect");
    need(sigaction(SIGSEGV, &action, NULL) == 0, "sigaction");
    if (strcmp(function, "memset") == 0)
        memset(start, 1, length);
    if (strcmp(function, "bzero") == 0)
        bzero(start, length);
    if (strcmp(function, "memcpy") == 0)
        memcpy(start, other, length);
    if (strcmp(function, "old_memcpy") == 0)
        old_memcpy(start, other, length);
    if (strcmp(function, "memmove") == 0)
        memmove(start, other, length);
    if (strcmp(function, "mempcpy") == 0)
        need(mempcpy(start, other, length) == NULL, "fault");
    if (strcmp(function, "explicit_bzero") == 0)
        explicit_bzero(start, length);
    if (strcmp(function, "__memcpy_chk") == 0)
        __memcpy_chk(start, other, length, length);
    if (strcmp(function, "__memmove_chk") == 0)
        __memmove_chk(start, other, length, length);
    if (strcmp(function, "__mempcpy_chk") == 0)
        __mempcpy_chk(start, other, length, length);
    if (strcmp(function, "__memset_chk") == 0)
        __memset_chk(start, 1, length, length);
    if (strcmp(function, "__explicit_bzero_chk") == 0)
        __explicit_bzero_chk(start, length, length);
    if (strcmp(function, "overlap") == 0)
        memcpy(start, start - 1, length);
    need(0, "returned");
}

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : "";
    /* The library leaves no trace of what it tried. */
    need(errno == 0, "errno is 0");
    need(dlerror() == NULL, "no error of the dynamic linker");
    if (strcmp(name, "early") == 0)
        need(early(), "bytes before main");
    else if (strcmp(name, "signals") == 0)
        signals();
    else if (strcmp(name, "small_stack") == 0)
        small_stack();
    else if (strcmp(name, "forks") == 0)
        forks();
    else if (strcmp(name, "threads") == 0)
        threads();
    else if (strcmp(name, "strict") == 0)
        strict();
    else if (strcmp(name, "filter") == 0)
        filter();
    else if (strcmp(name, "populates") == 0)
        populates();
    else if (strcmp(name, "no_clock") == 0)
        no_clock();
    else if (strcmp(name, "bad_prctl") == 0)
        bad_prctl();
    else if (strcmp(name, "vectors") == 0)
        vectors();
    else if (strcmp(name, "stack") == 0)
        stack();
    else if (strcmp(name, "endless") == 0 && count > 2)
        endless(arguments[2]);
    else if (strcmp(name, "null") == 0 && count > 3)
        null(arguments[2], strtoul(arguments[3], NULL, 0));
    else if (strcmp(name, "overflow") == 0 && count > 2)
        overflow(arguments[2]);
    else if (strcmp(name, "who") == 0 && count > 3)
        who(arguments[2], strtoul(arguments[3], NULL, 0));
    else
        need(0, "the name of a situation");
    return 0;
}
