/*
 * Makes riscv_hwprobe report Zicbom with blocks of 64 bytes, as Linux does
 * from 6.16 on. QEMU 10 executes CBO.CLEAN and CBO.FLUSH in user mode, but
 * does not report them. scripts/test-arch.sh preloads it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>

enum { RISCV_HWPROBE = 258, EXTENSIONS = 4, ZICBOM_BLOCK = 12, ZICBOM = 55, WORDS = 6 };

struct pair {
    int64_t key;
    uint64_t value;
};

long syscall(long number, ...)
{
    long (*next)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    int64_t keys[16];
    long words[WORDS];
    struct pair *pairs;
    va_list rest;
    long result;

    va_start(rest, number);
    for (int i = 0; i < WORDS; i++)
        words[i] = va_arg(rest, long);
    va_end(rest);
    pairs = (struct pair *)words[0];
    if (number == RISCV_HWPROBE)
        for (long i = 0; i < words[1] && i < 16; i++)
            keys[i] = pairs[i].key;
    result = next(number, words[0], words[1], words[2], words[3], words[4], words[5]);
    if (number != RISCV_HWPROBE || result != 0)
        return result;
    for (long i = 0; i < words[1] && i < 16; i++) {
        if (keys[i] == EXTENSIONS) {
            pairs[i].value |= UINT64_C(1) << ZICBOM;
        } else if (keys[i] == ZICBOM_BLOCK) {
            pairs[i].key = ZICBOM_BLOCK;
            pairs[i].value = 64;
        }
    }
    return result;
}
