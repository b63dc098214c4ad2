// A fault in the middle of a call becomes a C++ exception, which the caller catches: exception zero|fill|copy|source BYTES.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <sys/mman.h>

static void *(*volatile copy)(void *, const void *, size_t) = memcpy;
static void *(*volatile fill)(void *, int, size_t) = memset;

static void handler(int number)
{
    sigset_t faults;
    sigemptyset(&faults);
    sigaddset(&faults, number);
    sigprocmask(SIG_UNBLOCK, &faults, nullptr);
    throw std::runtime_error("fault");
}

int main(int, char **arguments)
{
    const size_t length = 8 << 20, readable = strtoul(arguments[2], nullptr, 10);
    char *memory[2];
    for (char *&start : memory) {
        start = static_cast<char *>(mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        if (start == MAP_FAILED)
            return 2;
    }
    if (mprotect(memory[0] + readable, length - readable, PROT_NONE))
        return 2;
    signal(SIGSEGV, handler);
    try {
        switch (arguments[1][0]) {
        case 'z': fill(memory[0], 0, length); break;
        case 'f': fill(memory[0], 7, length); break;
        case 'c': copy(memory[0], memory[1], length); break;
        default: copy(memory[1], memory[0], length); break;
        }
    } catch (const std::exception &exception) {
        puts(exception.what());
        return 0;
    }
    return 1;
}
